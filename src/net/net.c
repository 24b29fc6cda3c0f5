#include "net/net.h"

#include "base/clock.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char *const NAMES[CP_MSG_TYPE_COUNT] = {
#define X(type, name) [CP_MSG_##type] = name,
    CP_MSG_TYPES(X)
#undef X
};

enum {
    FENCED = 1u << CP_MSG_ACT | 1u << CP_MSG_GRAD | 1u << CP_MSG_NORM | 1u << CP_MSG_COMMIT |
             1u << CP_MSG_STEP | 1u << CP_MSG_STATE
};

struct inbox {
    const char *name;
    pthread_mutex_t lock;
    pthread_cond_t arrived;
    struct cp_msg *head, **tail;
    uint32_t gen;
    struct cp_net_stats stats; /* of what this node sent; under its own lock */
};

struct cp_net {
    int n;
    _Atomic bool stopped;
    struct inbox inbox[];
};

const char *cp_msg_name(enum cp_msg_type type)
{
    return (unsigned)type < CP_MSG_TYPE_COUNT ? NAMES[type] : "?";
}

cp_err cp_msg_new(struct cp_mem *mem, enum cp_msg_type type, uint32_t gen, struct cp_key key,
                  size_t bytes, struct cp_msg **out)
{
    struct cp_msg *m = NULL;
    size_t head = cp_arena_round(sizeof *m);
    if (bytes > SIZE_MAX - head) {
        return cp_fail(CP_E_NOMEM, "%s: a message of %zu bytes is more than can be addressed",
                       cp_msg_name(type), bytes);
    }
    CP_TRY(cp_mem_new(mem, head + bytes, &m));
    *m = (struct cp_msg){.type = type, .gen = gen, .key = key, .bytes = bytes};
    m->payload = (char *)m + head;
    *out = m;
    return CP_OK;
}

void cp_msg_free(struct cp_msg *m)
{
    cp_mem_free(m);
}

cp_err cp_net_new(int n, const char *const *names, struct cp_net **out)
{
    struct cp_net *net = NULL;
    assert(n >= 1);
    CP_TRY(cp_mem_new(NULL, sizeof *net + (size_t)n * sizeof net->inbox[0], &net));
    net->n = n;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    for (int i = 0; i < n; i++) {
        struct inbox *in = &net->inbox[i];
        in->name = names[i];
        in->tail = &in->head;
        pthread_mutex_init(&in->lock, NULL);
        pthread_cond_init(&in->arrived, &attr);
    }
    pthread_condattr_destroy(&attr);
    *out = net;
    return CP_OK;
}

void cp_net_clear(struct cp_net *net)
{
    for (int i = 0; i < net->n; i++) {
        struct inbox *in = &net->inbox[i];
        pthread_mutex_lock(&in->lock);
        for (struct cp_msg *m = in->head, *next; m; m = next) {
            next = m->next;
            cp_msg_free(m);
        }
        in->head = NULL;
        in->tail = &in->head;
        pthread_mutex_unlock(&in->lock);
    }
}

void cp_net_free(struct cp_net *net)
{
    if (!net) {
        return;
    }
    cp_net_clear(net);
    for (int i = 0; i < net->n; i++) {
        pthread_mutex_destroy(&net->inbox[i].lock);
        pthread_cond_destroy(&net->inbox[i].arrived);
    }
    cp_mem_free(net);
}

const char *cp_net_name(const struct cp_net *net, int node)
{
    return node >= 0 && node < net->n ? net->inbox[node].name : "?";
}

static void count_sent(struct inbox *in, size_t bytes)
{
    pthread_mutex_lock(&in->lock);
    in->stats.sent_msgs++;
    in->stats.sent_bytes += (int64_t)bytes;
    pthread_mutex_unlock(&in->lock);
}

cp_err cp_net_send(struct cp_net *net, int to, struct cp_msg *m)
{
    assert(to >= 0 && to < net->n && m->key.from >= 0 && m->key.from < net->n);
    struct inbox *in = &net->inbox[to];
    count_sent(&net->inbox[m->key.from], m->bytes);
    pthread_mutex_lock(&in->lock);
    bool stopped = net->stopped, old = (FENCED >> m->type & 1u) && m->gen < in->gen;
    if (!stopped && !old) {
        m->next = NULL;
        *in->tail = m;
        in->tail = &m->next;
        pthread_cond_signal(&in->arrived);
    } else {
        in->stats.fenced += old;
        cp_msg_free(m);
    }
    pthread_mutex_unlock(&in->lock);
    return stopped ? cp_fail(CP_E_STOPPED, "the run was stopped") : CP_OK;
}

static bool fits(const struct cp_msg *m, uint32_t types, const struct cp_key *want)
{
    return (types >> m->type & 1u) && (want->from == CP_ANY || want->from == m->key.from) &&
           (want->round == CP_ANY || want->round == m->key.round) &&
           (want->step == CP_ANY || want->step == m->key.step) &&
           (want->micro == CP_ANY || want->micro == m->key.micro) &&
           (want->block == CP_ANY || want->block == m->key.block);
}

static struct cp_msg *unlink_at(struct inbox *in, struct cp_msg **at)
{
    struct cp_msg *m = *at;
    *at = m->next;
    if (!m->next) {
        in->tail = at;
    }
    m->next = NULL;
    return m;
}

/* The first message that fits, or the first FAIL; NULL if there is none. */
static struct cp_msg *take(struct inbox *in, uint32_t types, const struct cp_key *want)
{
    for (struct cp_msg **at = &in->head; *at; at = &(*at)->next) {
        if ((*at)->type == CP_MSG_FAIL || fits(*at, types, want)) {
            return unlink_at(in, at);
        }
    }
    return NULL;
}

static void add_field(char *text, size_t size, const char *name, int32_t value)
{
    size_t n = strlen(text);
    if (value != CP_ANY) {
        snprintf(text + n, size - n, " %s %d", name, value);
    }
}

/* "c1.d2: no ACT or STEP, round 2 step 5 micro 3, from c1.cu within the deadline" */
static cp_err fail_timeout(const struct cp_net *net, int self, uint32_t types,
                           const struct cp_key *want)
{
    char what[160] = "", key[80] = "";
    for (int type = 0; type < CP_MSG_TYPE_COUNT; type++) {
        size_t n = strlen(what);
        if (types >> type & 1u) {
            snprintf(what + n, sizeof what - n, "%s%s", n ? " or " : "", NAMES[type]);
        }
    }
    add_field(key, sizeof key, "round", want->round);
    add_field(key, sizeof key, "step", want->step);
    add_field(key, sizeof key, "micro", want->micro);
    add_field(key, sizeof key, "block", want->block);
    return cp_fail(CP_E_TIMEOUT, "%s: no %s%s%s%s from %s within the deadline",
                   cp_net_name(net, self), what, key[0] ? "," : "", key, key[0] ? "," : "",
                   want->from == CP_ANY ? "anybody" : cp_net_name(net, want->from));
}

static cp_err fail_from(const struct cp_net *net, struct cp_msg *m)
{
    int code = m->key.block;
    const char *text = m->payload, *name = cp_net_name(net, m->key.from);
    size_t n = strlen(name);
    bool named = m->bytes > n && strncmp(text, name, n) == 0 && text[n] == ':';
    cp_err err = cp_fail(code > CP_OK && code < CP_ERR_COUNT ? (cp_err)code : CP_E_PEER, "%s%s%.*s",
                         named ? "" : name, named ? "" : ": ", (int)m->bytes, text);
    cp_msg_free(m);
    return err;
}

cp_err cp_net_wait(struct cp_net *net, int self, uint32_t types, struct cp_key want,
                   int64_t deadline_ns, struct cp_msg **out)
{
    assert(self >= 0 && self < net->n);
    struct inbox *in = &net->inbox[self];
    int64_t ns = deadline_ns > 0 ? deadline_ns : 0; /* a negative time is an error of the system */
    struct timespec until = {ns / 1000000000, ns % 1000000000};
    struct cp_msg *m = NULL;
    int rc = 0;
    pthread_mutex_lock(&in->lock);
    while (!net->stopped && !(m = take(in, types, &want)) && rc != ETIMEDOUT) {
        rc = pthread_cond_timedwait(&in->arrived, &in->lock, &until);
    }
    bool stopped = net->stopped;
    pthread_mutex_unlock(&in->lock);
    if (!m) {
        return stopped ? cp_fail(CP_E_STOPPED, "the run was stopped")
                       : fail_timeout(net, self, types, &want);
    }
    if (m->type == CP_MSG_FAIL) {
        return fail_from(net, m);
    }
    *out = m;
    return CP_OK;
}

int cp_net_fence(struct cp_net *net, int self, uint32_t gen)
{
    struct inbox *in = &net->inbox[self];
    int dropped = 0;
    pthread_mutex_lock(&in->lock);
    in->gen = gen;
    for (struct cp_msg **at = &in->head; *at;) {
        if ((FENCED >> (*at)->type & 1u) && (*at)->gen < gen) {
            cp_msg_free(unlink_at(in, at));
            dropped++;
        } else {
            at = &(*at)->next;
        }
    }
    in->stats.fenced += dropped;
    pthread_mutex_unlock(&in->lock);
    return dropped;
}

void cp_net_stop(struct cp_net *net)
{
    net->stopped = true;
    for (int i = 0; i < net->n; i++) {
        pthread_mutex_lock(&net->inbox[i].lock);
        pthread_cond_broadcast(&net->inbox[i].arrived);
        pthread_mutex_unlock(&net->inbox[i].lock);
    }
}

struct cp_net_stats cp_net_stats(const struct cp_net *net, int node)
{
    struct inbox *in = (struct inbox *)&net->inbox[node];
    pthread_mutex_lock(&in->lock);
    struct cp_net_stats s = in->stats;
    pthread_mutex_unlock(&in->lock);
    return s;
}
