/* net: inboxes, the wait by tag, the fence, deadlines and the stop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "net/net.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { NODES = 4, FOREVER_S = 100 };

static const char *const NAMES[NODES] = {"edge", "c1.cu", "c1.d1", "c1.d2"};
static const struct cp_key ANY = {CP_ANY, CP_ANY, CP_ANY, CP_ANY, CP_ANY};

static uint32_t bit(enum cp_msg_type type)
{
    return 1u << type;
}

static struct cp_net *make_net(void)
{
    struct cp_net *net = NULL;
    assert_int_equal(cp_net_new(NODES, NAMES, &net), CP_OK);
    return net;
}

/* A message whose payload is one number. */
static void send_number(struct cp_net *net, struct cp_mem *mem, int to, enum cp_msg_type type,
                        uint32_t gen, struct cp_key key, int32_t number)
{
    struct cp_msg *m = NULL;
    assert_int_equal(cp_msg_new(mem, type, gen, key, sizeof number, &m), CP_OK);
    memcpy(m->payload, &number, sizeof number);
    assert_int_equal(cp_net_send(net, to, m), CP_OK);
}

/* Takes what must be there already and returns its number. */
static int32_t take_number(struct cp_net *net, int self, uint32_t types, struct cp_key want)
{
    struct cp_msg *m = NULL;
    int32_t number;
    assert_int_equal(cp_net_wait(net, self, types, want, 0, &m), CP_OK);
    assert_int_equal(m->bytes, sizeof number);
    memcpy(&number, m->payload, sizeof number);
    cp_msg_free(m);
    return number;
}

static void assert_nothing(struct cp_net *net, int self, uint32_t types, struct cp_key want)
{
    struct cp_msg *m = NULL;
    assert_int_equal(cp_net_wait(net, self, types, want, 0, &m), CP_E_TIMEOUT);
    assert_null(m);
}

/* --- messages ---------------------------------------------------------------------------- */

static void test_messages(void **state)
{
    (void)state;
    struct cp_mem mem = {.name = "m", .limit_bytes = 4096};
    struct cp_msg *m = NULL, *keep = (struct cp_msg *)&mem;
    const struct cp_key key = {1, 2, 3, 4, 5};
    assert_int_equal(cp_msg_new(&mem, CP_MSG_ACT, 7, key, 1000, &m), CP_OK);
    assert_int_equal((uintptr_t)m->payload % 64, 0);
    assert_true(m->type == CP_MSG_ACT && m->gen == 7 && m->bytes == 1000);
    assert_memory_equal(&m->key, &key, sizeof key);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(((char *)m->payload)[i], 0);
    }
    memset(m->payload, 1, 1000); /* all of it is ours */
    size_t with_payload = mem.held_bytes;
    cp_msg_free(m);
    cp_msg_free(NULL);
    assert_int_equal(mem.held_bytes, 0);

    assert_int_equal(cp_msg_new(&mem, CP_MSG_QUIT, 0, key, 0, &m), CP_OK);
    assert_int_equal(m->bytes, 0);
    assert_int_equal(with_payload - mem.held_bytes, 1000);
    cp_msg_free(m);
    assert_int_equal(cp_msg_new(&mem, CP_MSG_ACT, 0, key, 4096, &keep), CP_E_NOMEM);
    /* sizes that would wrap round to a small message */
    assert_int_equal(cp_msg_new(&mem, CP_MSG_ACT, 0, key, SIZE_MAX, &keep), CP_E_NOMEM);
    assert_string_equal(cp_err_text(), "ACT: a message of 18446744073709551615 bytes is more than "
                                       "can be addressed");
    assert_int_equal(cp_msg_new(&mem, CP_MSG_ACT, 0, key, SIZE_MAX / 2, &keep), CP_E_NOMEM);
    assert_ptr_equal(keep, &mem);
    assert_int_equal(mem.held_bytes, 0);
}

static void test_names(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    assert_string_equal(cp_msg_name(CP_MSG_PLAN), "PLAN");
    assert_string_equal(cp_msg_name(CP_MSG_QUIT), "QUIT");
    assert_string_equal(cp_msg_name(CP_MSG_TYPE_COUNT), "?");
    assert_string_equal(cp_msg_name((enum cp_msg_type) - 1), "?");
    assert_string_equal(cp_net_name(net, 3), "c1.d2");
    assert_string_equal(cp_net_name(net, 4), "?");
    assert_string_equal(cp_net_name(net, -1), "?");
    cp_net_free(net);
    cp_net_free(NULL);
}

/* --- the wait by tag --------------------------------------------------------------------- */

static void test_out_of_order(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    for (int micro = 0; micro < 4; micro++) {
        send_number(net, NULL, 2, CP_MSG_ACT, 0, (struct cp_key){1, 0, 0, micro, -1}, micro);
        send_number(net, NULL, 2, CP_MSG_GRAD, 0, (struct cp_key){3, 0, 0, micro, -1}, 10 + micro);
    }
    const int want[] = {2, 0, 3, 1}; /* first from the middle, last the oldest one left */
    for (int i = 0; i < 4; i++) {
        struct cp_key key = {1, 0, 0, want[i], CP_ANY};
        assert_int_equal(take_number(net, 2, bit(CP_MSG_ACT), key), want[i]);
        assert_nothing(net, 2, bit(CP_MSG_ACT), key); /* once */
    }
    /* after the tail was taken, the inbox still grows at its end */
    send_number(net, NULL, 2, CP_MSG_GRAD, 0, (struct cp_key){3, 0, 0, 4, -1}, 14);
    for (int i = 4; i >= 0; i--) {
        struct cp_key key = {CP_ANY, CP_ANY, CP_ANY, i, CP_ANY};
        assert_int_equal(take_number(net, 2, bit(CP_MSG_GRAD), key), 10 + i);
    }
    send_number(net, NULL, 2, CP_MSG_ACT, 0, (struct cp_key){1, 0, 0, 9, -1}, 99);
    assert_int_equal(take_number(net, 2, bit(CP_MSG_ACT), ANY), 99);
    cp_net_free(net);
}

static void test_every_field_of_the_key(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    const struct cp_key key = {1, 2, 3, 4, 5};
    send_number(net, NULL, 0, CP_MSG_BLOCK, 0, key, 42);
    for (int field = 0; field < 5; field++) {
        struct cp_key other = key;
        int32_t *at[] = {&other.from, &other.round, &other.step, &other.micro, &other.block};
        *at[field] = 0;
        assert_nothing(net, 0, bit(CP_MSG_BLOCK), other);
        *at[field] = 6;
        other.from = field == 0 ? 2 : 1;
        assert_nothing(net, 0, bit(CP_MSG_BLOCK), other);
    }
    assert_nothing(net, 0, bit(CP_MSG_STATE), key);
    assert_nothing(net, 0, 0, key);
    assert_nothing(net, 1, bit(CP_MSG_BLOCK), ANY); /* not its inbox */
    assert_int_equal(take_number(net, 0, bit(CP_MSG_STATE) | bit(CP_MSG_BLOCK), key), 42);
    cp_net_free(net);
}

/* Equal keys come as they were sent; of several types and senders the oldest comes first. */
static void test_fifo(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    for (int i = 0; i < 100; i++) {
        send_number(net, NULL, 3, i % 2 ? CP_MSG_NORM : CP_MSG_REPORT, 0,
                    (struct cp_key){i % 3, 0, 0, 0, 0}, i);
    }
    for (int i = 1; i < 100; i += 6) { /* NORM of sender 1, in between */
        assert_int_equal(take_number(net, 3, bit(CP_MSG_NORM), (struct cp_key){1, 0, 0, 0, 0}), i);
    }
    for (int i = 0; i < 100; i++) {
        if (i % 6 != 1) {
            assert_int_equal(take_number(net, 3, bit(CP_MSG_NORM) | bit(CP_MSG_REPORT), ANY), i);
        }
    }
    assert_nothing(net, 3, bit(CP_MSG_NORM) | bit(CP_MSG_REPORT), ANY);
    cp_net_free(net);
}

static void test_counts_what_was_sent(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    send_number(net, NULL, 3, CP_MSG_NORM, 0, (struct cp_key){1, 0, 0, 0, 0}, 0);
    send_number(net, NULL, 2, CP_MSG_ACT, 0, (struct cp_key){1, 0, 0, 0, 0}, 0);
    assert_int_equal(cp_net_fence(net, 2, 1), 1);
    send_number(net, NULL, 2, CP_MSG_ACT, 0, (struct cp_key){1, 0, 0, 0, 0}, 0);
    struct cp_net_stats sender = cp_net_stats(net, 1), receiver = cp_net_stats(net, 2);
    assert_true(sender.sent_msgs == 3 && sender.sent_bytes == 12 && sender.fenced == 0);
    assert_true(receiver.sent_msgs == 0 && receiver.sent_bytes == 0 && receiver.fenced == 2);
    cp_net_free(net);
}

/* --- FAIL -------------------------------------------------------------------------------- */

static void send_fail(struct cp_net *net, int from, int to, int32_t code, const char *text,
                      size_t bytes)
{
    struct cp_msg *m = NULL;
    const struct cp_key key = {from, -1, -1, -1, code};
    assert_int_equal(cp_msg_new(NULL, CP_MSG_FAIL, 0, key, bytes, &m), CP_OK);
    memcpy(m->payload, text, bytes);
    assert_int_equal(cp_net_send(net, to, m), CP_OK);
}

static void test_fail_becomes_the_error(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    struct cp_msg *m = NULL;
    const char text[] = "loss of step 5 is not finite: lower train.lr";
    send_fail(net, 3, 0, CP_E_NONFINITE, text, sizeof text);
    send_fail(net, 2, 0, 12345, "strange", 7); /* no such code; no zero byte at its end */
    send_fail(net, 2, 0, CP_OK, "not ok", 3);  /* a failure is never OK */
    send_fail(net, 1, 0, -1, "", 0);           /* and nothing at all */
    assert_int_equal(cp_net_wait(net, 0, bit(CP_MSG_PROGRESS), ANY, 0, &m), CP_E_NONFINITE);
    assert_string_equal(cp_err_text(), "c1.d2: loss of step 5 is not finite: lower train.lr");
    assert_int_equal(cp_net_wait(net, 0, 0, (struct cp_key){1, 1, 1, 1, 1}, 0, &m), CP_E_PEER);
    assert_string_equal(cp_err_text(), "c1.d1: strange");
    assert_int_equal(cp_net_wait(net, 0, bit(CP_MSG_FAIL), ANY, 0, &m), CP_E_PEER);
    assert_string_equal(cp_err_text(), "c1.d1: not");
    assert_int_equal(cp_net_wait(net, 0, bit(CP_MSG_ACT), ANY, 0, &m), CP_E_PEER);
    assert_string_equal(cp_err_text(), "c1.cu: ");
    assert_null(m);
    assert_nothing(net, 0, bit(CP_MSG_PROGRESS), ANY); /* each told once */
    cp_net_free(net);
}

/* What came before the failure is still delivered; the fence does not keep a failure out. */
static void test_fail_in_its_turn(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    struct cp_msg *m = NULL;
    send_number(net, NULL, 0, CP_MSG_PROGRESS, 0, (struct cp_key){1, 0, 0, 0, 0}, 7);
    send_fail(net, 1, 0, CP_E_DATA, "bad row", 7);
    cp_net_fence(net, 0, 99);
    assert_int_equal(take_number(net, 0, bit(CP_MSG_PROGRESS), ANY), 7);
    assert_int_equal(cp_net_wait(net, 0, bit(CP_MSG_PROGRESS), ANY, 0, &m), CP_E_DATA);
    assert_string_equal(cp_err_text(), "c1.cu: bad row");
    cp_net_free(net);
}

/* --- the fence --------------------------------------------------------------------------- */

static const enum cp_msg_type FENCED[] = {CP_MSG_ACT,    CP_MSG_GRAD, CP_MSG_NORM,
                                          CP_MSG_COMMIT, CP_MSG_STEP, CP_MSG_STATE};

static bool is_fenced(enum cp_msg_type type)
{
    for (size_t i = 0; i < sizeof FENCED / sizeof FENCED[0]; i++) {
        if (FENCED[i] == type) {
            return true;
        }
    }
    return false;
}

static void test_fence(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    struct cp_mem mem = {.name = "m"};
    const struct cp_key key = {1, 0, 0, 0, 0};
    for (int type = 0; type < CP_MSG_TYPE_COUNT; type++) {
        for (uint32_t gen = 4; gen <= 6 && type != CP_MSG_FAIL; gen++) {
            send_number(net, &mem, 2, (enum cp_msg_type)type, gen, key, (int32_t)gen);
        }
    }
    size_t held = mem.held_bytes;
    assert_int_equal(cp_net_fence(net, 2, 5), 6); /* generation 4 of six types, already there */
    assert_true(mem.held_bytes < held);
    held = mem.held_bytes;
    for (size_t i = 0; i < 6; i++) { /* and what comes late */
        send_number(net, &mem, 2, FENCED[i], 0, key, 0);
        send_number(net, &mem, 2, FENCED[i], 4, key, 4);
    }
    assert_int_equal(mem.held_bytes, held);
    assert_int_equal(cp_net_stats(net, 2).fenced, 18);
    for (int type = 0; type < CP_MSG_TYPE_COUNT; type++) {
        if (type != CP_MSG_FAIL) {
            uint32_t types = bit((enum cp_msg_type)type);
            for (int gen = is_fenced((enum cp_msg_type)type) ? 5 : 4; gen <= 6; gen++) {
                assert_int_equal(take_number(net, 2, types, ANY), gen);
            }
            assert_nothing(net, 2, types, ANY);
        }
    }
    /* other inboxes are not fenced; after the fence the list still works */
    send_number(net, &mem, 3, CP_MSG_ACT, 0, key, 1);
    send_number(net, &mem, 2, CP_MSG_ACT, 7, key, 2);
    assert_int_equal(take_number(net, 3, bit(CP_MSG_ACT), ANY), 1);
    assert_int_equal(take_number(net, 2, bit(CP_MSG_ACT), ANY), 2);
    assert_int_equal(cp_net_fence(net, 2, 6), 0);
    cp_net_free(net);
    assert_int_equal(mem.held_bytes, 0);
}

/* The last message is the one that goes: the next must follow the one before it. */
static void test_fence_takes_the_tail(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    const struct cp_key key = {1, 0, 0, 0, 0};
    send_number(net, NULL, 2, CP_MSG_ACT, 1, key, 1);
    send_number(net, NULL, 2, CP_MSG_ACT, 0, key, 0);
    assert_int_equal(cp_net_fence(net, 2, 1), 1);
    send_number(net, NULL, 2, CP_MSG_ACT, 1, key, 2);
    assert_int_equal(take_number(net, 2, bit(CP_MSG_ACT), ANY), 1);
    assert_int_equal(take_number(net, 2, bit(CP_MSG_ACT), ANY), 2);
    cp_net_free(net);
}

/* Nothing that was sent outlives its account; the inboxes go on as new ones. */
static void test_clear(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    struct cp_mem mem = {.name = "m"};
    const struct cp_key key = {1, 0, 0, 0, 0};
    for (int i = 0; i < 3 * NODES; i++) {
        send_number(net, &mem, i % NODES, CP_MSG_REPORT, 0, key, i);
    }
    assert_true(mem.held_bytes > 0);
    cp_net_clear(net);
    assert_int_equal(mem.held_bytes, 0);
    for (int i = 0; i < NODES; i++) {
        assert_nothing(net, i, ~0u, ANY);
        send_number(net, NULL, i, CP_MSG_REPORT, 0, key, i);
        send_number(net, NULL, i, CP_MSG_REPORT, 0, key, i + 10);
        assert_int_equal(take_number(net, i, ~0u, ANY), i);
        assert_int_equal(take_number(net, i, ~0u, ANY), i + 10);
    }
    cp_net_clear(net);
    cp_net_free(net);
}

/* --- deadlines and the stop -------------------------------------------------------------- */

static void test_deadline(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    struct cp_msg *m = NULL;
    const struct cp_key want = {1, 2, 5, 3, CP_ANY};
    int64_t deadline_ns = cp_deadline_ns(0.02);
    assert_int_equal(cp_net_wait(net, 2, bit(CP_MSG_ACT), want, deadline_ns, &m), CP_E_TIMEOUT);
    assert_true(cp_now_ns() >= deadline_ns); /* not before */
    assert_string_equal(cp_err_text(),
                        "c1.d1: no ACT, round 2 step 5 micro 3, from c1.cu within the deadline");
    uint32_t types = bit(CP_MSG_REPORT) | bit(CP_MSG_BLOCK);
    assert_int_equal(cp_net_wait(net, 0, types, ANY, 0, &m), CP_E_TIMEOUT);
    assert_string_equal(cp_err_text(), "edge: no BLOCK or REPORT from anybody within the deadline");
    const struct cp_key block = {3, CP_ANY, CP_ANY, CP_ANY, 4};
    assert_int_equal(cp_net_wait(net, 0, bit(CP_MSG_BLOCK), block, -5, &m), CP_E_TIMEOUT);
    assert_string_equal(cp_err_text(), "edge: no BLOCK, block 4, from c1.d2 within the deadline");
    /* everything at once still ends in a sentence */
    assert_int_equal(cp_net_wait(net, 0, UINT32_MAX, want, INT64_MIN, &m), CP_E_TIMEOUT);
    assert_non_null(strstr(cp_err_text(), "QUIT, round 2 step 5 micro 3, from c1.cu within"));
    assert_null(m);
    cp_net_free(net);
}

struct waiter {
    pthread_t thread;
    struct cp_net *net;
    int self;
    cp_err err;
    int32_t number;
    char text[128];
};

static void *wait_in_thread(void *arg)
{
    struct waiter *w = arg;
    struct cp_msg *m = NULL;
    w->err = cp_net_wait(w->net, w->self, bit(CP_MSG_ACT), ANY, cp_deadline_ns(FOREVER_S), &m);
    if (w->err) {
        snprintf(w->text, sizeof w->text, "%s", cp_err_text());
    } else {
        memcpy(&w->number, m->payload, sizeof w->number);
        cp_msg_free(m);
    }
    return NULL;
}

static void start_waiters(struct waiter *w, struct cp_net *net)
{
    for (int i = 0; i < NODES; i++) {
        w[i] = (struct waiter){.net = net, .self = i};
        assert_int_equal(pthread_create(&w[i].thread, NULL, wait_in_thread, &w[i]), 0);
    }
    int64_t until_ns = cp_deadline_ns(0.02); /* so that most of them sleep by now */
    while (cp_now_ns() < until_ns) {
        sched_yield();
    }
}

static void test_a_message_wakes_its_waiter(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    struct waiter w[NODES];
    start_waiters(w, net);
    for (int i = 0; i < NODES; i++) {
        send_number(net, NULL, i, CP_MSG_GRAD, 0, (struct cp_key){0, 0, 0, 0, 0}, -1);
        send_number(net, NULL, i, CP_MSG_ACT, 0, (struct cp_key){0, 0, 0, 0, 0}, i);
    }
    for (int i = 0; i < NODES; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].err, CP_OK);
        assert_int_equal(w[i].number, i);
    }
    cp_net_free(net);
}

static void test_a_failure_wakes_a_waiter(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    struct waiter w[NODES];
    start_waiters(w, net);
    for (int i = 0; i < NODES; i++) {
        send_fail(net, 2, i, CP_E_NOMEM, "no room", 7);
    }
    for (int i = 0; i < NODES; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].err, CP_E_NOMEM);
        assert_string_equal(w[i].text, "c1.d1: no room");
    }
    cp_net_free(net);
}

static void test_stop(void **state)
{
    (void)state;
    struct cp_net *net = make_net();
    struct cp_mem mem = {.name = "m"};
    struct waiter w[NODES];
    struct cp_msg *m = NULL;
    start_waiters(w, net);
    send_number(net, &mem, 1, CP_MSG_GRAD, 0, (struct cp_key){0, 0, 0, 0, 0}, 1);
    cp_net_stop(net);
    for (int i = 0; i < NODES; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].err, CP_E_STOPPED);
        assert_string_equal(w[i].text, "the run was stopped");
    }
    /* from now on nothing moves, not even what is there */
    assert_int_equal(cp_net_wait(net, 1, bit(CP_MSG_GRAD), ANY, cp_deadline_ns(FOREVER_S), &m),
                     CP_E_STOPPED);
    assert_null(m);
    size_t held = mem.held_bytes;
    assert_int_equal(cp_msg_new(&mem, CP_MSG_ACT, 0, (struct cp_key){0}, 8, &m), CP_OK);
    assert_int_equal(cp_net_send(net, 1, m), CP_E_STOPPED);
    assert_int_equal(mem.held_bytes, held); /* given away all the same */
    cp_net_stop(net);                       /* twice is no harm */
    cp_net_free(net);
    assert_int_equal(mem.held_bytes, 0);
}

/* --- house law 7: no leak at any failing allocation -------------------------------------- */

static cp_err send_new(struct cp_net *net, struct cp_mem *mem, int to, enum cp_msg_type type,
                       uint32_t gen)
{
    struct cp_msg *m;
    CP_TRY(cp_msg_new(mem, type, gen, (struct cp_key){1, 0, 0, 0, 0}, 100, &m));
    return cp_net_send(net, to, m);
}

static cp_err talk(struct cp_net *net, struct cp_mem *mem)
{
    struct cp_msg *m;
    CP_TRY(send_new(net, mem, 2, CP_MSG_ACT, 0));
    CP_TRY(send_new(net, mem, 2, CP_MSG_GRAD, 0));
    CP_TRY(send_new(net, mem, 2, CP_MSG_PLAN, 0));
    CP_TRY(cp_net_wait(net, 2, bit(CP_MSG_GRAD), ANY, 0, &m));
    cp_msg_free(m);
    cp_net_fence(net, 2, 1);
    CP_TRY(send_new(net, mem, 2, CP_MSG_ACT, 0));
    return send_new(net, mem, 3, CP_MSG_FAIL, 0);
}

static void test_no_leak_at_any_failing_allocation(void **state)
{
    (void)state;
    int n = 0;
    for (cp_err err = CP_E_NOMEM; err;) {
        struct cp_mem mem = {.name = "m"};
        struct cp_net *net = NULL;
        struct cp_msg *m = NULL;
        cp_mem_fail_at((uint64_t)++n);
        err = cp_net_new(NODES, NAMES, &net);
        if (!err) {
            err = talk(net, &mem);
        }
        cp_mem_fail_at(0);
        assert_true(err == CP_OK || err == CP_E_NOMEM);
        if (!err) { /* the FAIL message is freed with the error it becomes */
            assert_int_equal(cp_net_wait(net, 3, 0, ANY, 0, &m), CP_E_PEER);
        }
        cp_net_free(net);
        assert_int_equal(mem.held_bytes, 0);
    }
    assert_int_equal(n, 7); /* the net and five messages failed once */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_out_of_order),
        cmocka_unit_test(test_every_field_of_the_key),
        cmocka_unit_test(test_fifo),
        cmocka_unit_test(test_counts_what_was_sent),
        cmocka_unit_test(test_fail_becomes_the_error),
        cmocka_unit_test(test_fail_in_its_turn),
        cmocka_unit_test(test_fence),
        cmocka_unit_test(test_fence_takes_the_tail),
        cmocka_unit_test(test_clear),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_a_message_wakes_its_waiter),
        cmocka_unit_test(test_a_failure_wakes_a_waiter),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_no_leak_at_any_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
