/*
 * migrate: takes over a part of a new plan.
 *
 * One mechanism for blocks that stay, leave and come: the state of every block held goes to its new
 * owner as a STATE message, even when that is this node itself. The old arenas are given back
 * before new ones are taken, so a node never holds two segments.
 */
#include "base/clock.h"
#include "pipe/stage.h"

#include <assert.h>
#include <string.h>

size_t cp_state_bytes(const struct cp_shape *s, int block, enum cp_optim_kind optim)
{
    return sizeof(int64_t) + (size_t)cp_optim_words(optim) *
                                 (size_t)cp_shape_params(s, block, block) * sizeof(cp_real);
}

/* Payload: step count, then the moments that the optimizer keeps. */
void cp_state_pack(struct cp_segment *seg, const struct cp_shape *s, int block,
                   enum cp_optim_kind optim, void *payload)
{
    size_t plane = (size_t)cp_shape_params(s, block, block) * sizeof(cp_real);
    char *p = payload;
    memcpy(p, cp_segment_steps(seg, block), sizeof(int64_t));
    p += sizeof(int64_t);
    for (int k = 0; k < cp_optim_words(optim); k++, p += plane) {
        memcpy(p, cp_segment_plane(seg, block, (enum cp_plane)(CP_PLANE_M + k)), plane);
    }
}

void cp_state_unpack(struct cp_segment *seg, const struct cp_shape *s, int block,
                     enum cp_optim_kind optim, const void *payload)
{
    size_t plane = (size_t)cp_shape_params(s, block, block) * sizeof(cp_real);
    const char *p = payload;
    memcpy(cp_segment_steps(seg, block), p, sizeof(int64_t));
    p += sizeof(int64_t);
    for (int k = 0; k < cp_optim_words(optim); k++, p += plane) {
        memcpy(cp_segment_plane(seg, block, (enum cp_plane)(CP_PLANE_M + k)), p, plane);
    }
}

static cp_err send_states(struct cp_stage *st, uint32_t gen, const int *to)
{
    for (int block = st->part.first; block <= st->part.last; block++) {
        if (to[block] < 0) {
            continue;
        }
        struct cp_msg *m;
        struct cp_key key = {st->self, CP_ANY, CP_ANY, CP_ANY, block};
        CP_TRY(cp_msg_new(st->msg_mem, CP_MSG_STATE, gen, key,
                          cp_state_bytes(st->shape, block, st->optim.kind), &m));
        cp_state_pack(st->seg, st->shape, block, st->optim.kind, m->payload);
        CP_TRY(cp_net_send(st->net, to[block], m));
    }
    return CP_OK;
}

static cp_err recv_states(struct cp_stage *st, const int *from)
{
    for (int block = st->part.first; block <= st->part.last; block++) {
        if (from[block] < 0) {
            continue;
        }
        struct cp_msg *m;
        struct cp_key want = {from[block], CP_ANY, CP_ANY, CP_ANY, block};
        CP_TRY(cp_net_wait(st->net, st->self, 1u << CP_MSG_STATE, want, cp_deadline_ns(st->wait_s),
                           &m));
        cp_err err = CP_OK;
        if (m->bytes == cp_state_bytes(st->shape, block, st->optim.kind)) {
            cp_state_unpack(st->seg, st->shape, block, st->optim.kind, m->payload);
        } else {
            err = cp_fail(CP_E_PROTO, "%s: state of block %d from %s has %zu bytes, %zu expected",
                          cp_net_name(st->net, st->self), block, cp_net_name(st->net, m->key.from),
                          m->bytes, cp_state_bytes(st->shape, block, st->optim.kind));
        }
        cp_msg_free(m);
        CP_TRY(err);
    }
    return CP_OK;
}

/* Gives back everything that belongs to the part in force. */
static void drop_part(struct cp_stage *st)
{
    cp_segment_free(st->seg);
    st->seg = NULL;
    cp_mem_free(st->held);
    st->held = NULL;
    cp_gradstat_free(st->stat);
    st->stat = NULL;
    cp_ops_fini(&st->ops);
    st->ops_micros = 0;
    st->part = (struct cp_part){.first = 0, .last = -1, .index = -1};
}

/* [slots] of struct cp_held with their arrays, in one piece. */
static cp_err new_held(struct cp_stage *st, int slots)
{
    size_t b = (size_t)st->b_max, n = (size_t)slots;
    size_t arrays = cp_arena_round(b * (2 * sizeof(int32_t) + sizeof(int64_t)));
    char *p = NULL;
    CP_TRY(cp_mem_new(st->msg_mem, cp_arena_round(n * sizeof(struct cp_held)) + n * arrays, &p));
    st->held = (struct cp_held *)(void *)p;
    p += cp_arena_round(n * sizeof(struct cp_held));
    for (size_t i = 0; i < n; i++, p += arrays) {
        st->held[i].sample = (int64_t *)(void *)p;
        st->held[i].len = (int32_t *)(void *)(p + b * sizeof(int64_t));
        st->held[i].label = st->held[i].len + b;
    }
    return CP_OK;
}

/* The same arenas, and nothing in them goes elsewhere or comes from elsewhere. */
static bool stays(const struct cp_stage *st, const struct cp_part *part, const int *from,
                  const int *to)
{
    bool same = st->seg && st->part.first == part->first && st->part.last == part->last &&
                st->part.slots == part->slots;
    for (int block = part->first; same && block <= part->last; block++) {
        same = from[block] == st->self && to[block] == st->self;
    }
    return same;
}

cp_err cp_stage_take(struct cp_stage *st, uint32_t gen, const struct cp_part *part, const int *from,
                     const int *to, bool keep)
{
    assert(part->last < CP_BLOCKS_MAX);
    cp_net_fence(st->net, st->self, gen);
    if (stays(st, part, from, to)) {
        st->gen = gen;
        st->part = *part;
        st->ops_micros = 0; /* stage numbers may have changed */
        if (!keep) {
            cp_segment_reset_moments(st->seg);
        }
        return CP_OK;
    }
    if (st->seg && keep) {
        CP_TRY(send_states(st, gen, to));
    }
    drop_part(st);
    st->gen = gen;
    if (part->first > part->last) {
        return CP_OK;
    }
    struct cp_cost cost = cp_shape_cost(st->shape, part->first, part->last, st->b_max, st->t_max,
                                        part->slots, cp_optim_words(st->optim.kind));
    CP_TRY(cp_segment_new(st->shape, part->first, part->last, st->b_max, st->t_max, part->slots,
                          st->optim.kind, st->mem, &st->seg));
    cp_segment_freeze(st->seg, st->first_trained);
    st->part = *part;
    st->model_bytes = cost.total_bytes > st->model_bytes ? cost.total_bytes : st->model_bytes;
    CP_TRY(new_held(st, part->slots));
    if (st->estimate) {
        st->stat_round = -1;
        CP_TRY(cp_gradstat_new(st->shape, part->first, part->last, st->msg_mem, &st->stat));
    }
    return keep ? recv_states(st, from) : CP_OK;
}

void cp_stage_fini(struct cp_stage *st)
{
    drop_part(st);
}
