/* net: four nodes that talk all at once; also the program for the thread sanitizer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "net/net.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { NODES = 4, FOREVER_S = 100 };

static const char *const NAMES[NODES] = {"edge", "c1.cu", "c1.d1", "c1.d2"};

enum { MESSAGES = 10000, WINDOW = 32 };

struct player {
    pthread_t thread;
    struct cp_net *net;
    struct cp_mem *mem;
    int self;
    cp_err err;
    int wrong;
};

static cp_err play_send(struct player *p, int i)
{
    int to = (p->self + 1 + i % (NODES - 1)) % NODES; /* every other node in turn */
    struct cp_msg *m;
    CP_TRY(cp_msg_new(p->mem, i % 2 ? CP_MSG_ACT : CP_MSG_GRAD, 1,
                      (struct cp_key){p->self, 0, i / WINDOW, i, -1}, 64, &m));
    memset(m->payload, i & 0x7f, 64);
    return cp_net_send(p->net, to, m);
}

/* Wants message i of the node that sends it here, whatever else has arrived. */
static cp_err play_wait(struct player *p, int from, int i)
{
    struct cp_msg *m;
    CP_TRY(cp_net_wait(p->net, p->self, 1u << (i % 2 ? CP_MSG_ACT : CP_MSG_GRAD),
                       (struct cp_key){from, 0, CP_ANY, i, CP_ANY}, cp_deadline_ns(FOREVER_S), &m));
    char want[64];
    memset(want, i & 0x7f, sizeof want);
    p->wrong += m->key.from != from || m->key.micro != i || m->key.step != i / WINDOW ||
                memcmp(m->payload, want, sizeof want) != 0;
    cp_msg_free(m);
    return CP_OK;
}

/* A window of messages to the others, then their window, newest first: always out of order. */
static cp_err play_all(struct player *p)
{
    for (int first = 0; first < MESSAGES; first += WINDOW) {
        int end = first + WINDOW < MESSAGES ? first + WINDOW : MESSAGES;
        for (int i = first; i < end; i++) {
            CP_TRY(play_send(p, i));
        }
        cp_net_fence(p->net, p->self, 1); /* drops nothing, but runs against the senders */
        p->wrong += cp_net_stats(p->net, (p->self + 1) % NODES).sent_msgs > MESSAGES;
        for (int i = end - 1; i >= first; i--) {
            int from = (p->self + NODES - 1 - i % (NODES - 1)) % NODES;
            CP_TRY(play_wait(p, from, i));
        }
    }
    return CP_OK;
}

static void *play(void *arg)
{
    struct player *p = arg;
    p->err = play_all(p);
    return NULL;
}

static void test_stress(void **state)
{
    (void)state;
    struct cp_net *net = NULL;
    assert_int_equal(cp_net_new(NODES, NAMES, &net), CP_OK);
    struct cp_mem mem = {.name = "m"};
    struct player p[NODES];
    for (int i = 0; i < NODES; i++) {
        p[i] = (struct player){.net = net, .mem = &mem, .self = i};
        assert_int_equal(pthread_create(&p[i].thread, NULL, play, &p[i]), 0);
    }
    for (int i = 0; i < NODES; i++) {
        pthread_join(p[i].thread, NULL);
        assert_int_equal(p[i].err, CP_OK);
        assert_int_equal(p[i].wrong, 0);
        struct cp_net_stats s = cp_net_stats(net, i);
        assert_true(s.sent_msgs == MESSAGES && s.sent_bytes == 64 * MESSAGES && s.fenced == 0);
    }
    assert_int_equal(mem.held_bytes, 0);
    cp_net_free(net);
}

/* Senders, fences and a stop at any moment: everybody ends, nothing leaks. */
static void test_stop_under_load(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct cp_net *net = NULL;
        assert_int_equal(cp_net_new(NODES, NAMES, &net), CP_OK);
        struct cp_mem mem = {.name = "m"};
        struct player p[NODES];
        for (int i = 0; i < NODES; i++) {
            p[i] = (struct player){.net = net, .mem = &mem, .self = i};
            assert_int_equal(pthread_create(&p[i].thread, NULL, play, &p[i]), 0);
        }
        for (int i = 0; i < round * 20; i++) {
            sched_yield();
        }
        cp_net_stop(net);
        for (int i = 0; i < NODES; i++) {
            pthread_join(p[i].thread, NULL);
            assert_true(p[i].err == CP_E_STOPPED || p[i].err == CP_OK);
            assert_int_equal(p[i].wrong, 0);
        }
        cp_net_free(net);
        assert_int_equal(mem.held_bytes, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stress),
        cmocka_unit_test(test_stop_under_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
