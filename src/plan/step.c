/*
 * How long a local step takes (section 6).
 *
 * The recurrence needs no op list: a stage runs a forward while a slot is free, else its oldest
 * backward, which is the list of section 6.2. Stages are swept up and down the pipeline, each going
 * as far as the arrivals allow, until stage 0 has done its last backward. Slots that do not rise
 * along the pipeline cannot deadlock, so every sweep gets something done.
 */
#include "plan/predict.h"

#include <assert.h>
#include <math.h>

double cp_times_max_fwd_s(const struct cp_times *t)
{
    double m = 0;
    for (int j = 0; j <= t->segments + 1; j++) {
        m = fmax(m, t->fwd_s[j]);
    }
    for (int j = 0; j <= t->segments; j++) {
        m = fmax(m, t->link_fwd_s[j]);
    }
    return m;
}

double cp_times_max_bwd_s(const struct cp_times *t)
{
    double m = 0;
    for (int j = 0; j <= t->segments + 1; j++) {
        m = fmax(m, t->bwd_s[j]);
    }
    for (int j = 0; j <= t->segments; j++) {
        m = fmax(m, t->link_bwd_s[j]);
    }
    return m;
}

double cp_step_gpipe_s(const struct cp_times *t, int micro_batches)
{
    double sum = 0;
    for (int j = 0; j <= t->segments + 1; j++) {
        sum += t->fwd_s[j] + t->bwd_s[j];
    }
    for (int j = 0; j <= t->segments; j++) {
        sum += t->link_fwd_s[j] + t->link_bwd_s[j];
    }
    return sum + (micro_batches - 1) * (cp_times_max_fwd_s(t) + cp_times_max_bwd_s(t));
}

struct stage {
    int fwd_done, bwd_done;      /* operations done */
    int fwd_in, bwd_in;          /* micro-batches that have arrived */
    double end_s;                /* of its last operation */
    double air_fwd_s, air_bwd_s; /* last arrival at this stage, forwards and backwards */
};

struct walk {
    const struct cp_times *t;
    const int *slots;
    int micro, last; /* M, S + 1 */
    struct stage stage[CP_STAGES_MAX];
    /* Arrival at a stage: of the activation until its forward ran, then of the gradient. */
    double arrival_s[CP_STAGES_MAX][CP_MICRO_MAX];
};

static void run_fwd(struct walk *w, int j)
{
    struct stage *s = &w->stage[j];
    int m = s->fwd_done++;
    s->end_s = fmax(s->end_s, w->arrival_s[j][m]) + w->t->fwd_s[j];
    if (j == w->last) {
        w->arrival_s[j][m] = s->end_s; /* the loss turns it round */
        s->bwd_in++;
    } else {
        struct stage *next = &w->stage[j + 1];
        next->air_fwd_s = fmax(s->end_s, next->air_fwd_s) + w->t->link_fwd_s[j];
        w->arrival_s[j + 1][m] = next->air_fwd_s;
        next->fwd_in++;
    }
}

static void run_bwd(struct walk *w, int j)
{
    struct stage *s = &w->stage[j];
    int m = s->bwd_done++;
    s->end_s = fmax(s->end_s, w->arrival_s[j][m]) + w->t->bwd_s[j];
    if (j > 0) {
        struct stage *before = &w->stage[j - 1];
        before->air_bwd_s = fmax(s->end_s, before->air_bwd_s) + w->t->link_bwd_s[j - 1];
        w->arrival_s[j - 1][m] = before->air_bwd_s;
        before->bwd_in++;
    }
}

/* Runs the operations of stage j whose inputs have arrived, in the order of its list. */
static void advance(struct walk *w, int j)
{
    struct stage *s = &w->stage[j];
    for (;;) {
        bool fwd = s->fwd_done < w->micro && s->fwd_done - s->bwd_done < w->slots[j];
        if (fwd && s->fwd_done < s->fwd_in) {
            run_fwd(w, j);
        } else if (!fwd && s->bwd_done < s->bwd_in) {
            run_bwd(w, j);
        } else {
            return;
        }
    }
}

double cp_step_recurrence_s(const struct cp_times *t, int micro_batches, const int *slots)
{
    assert(micro_batches >= 1 && micro_batches <= CP_MICRO_MAX);
    struct walk w; /* arrivals are written before they are read: not cleared */
    w.t = t;
    w.slots = slots;
    w.micro = micro_batches;
    w.last = t->segments + 1;
    for (int j = 0; j <= w.last; j++) {
        assert(slots[j] >= 1 && (j == 0 || slots[j] <= slots[j - 1]));
        w.stage[j] = (struct stage){0};
    }
    for (int m = 0; m < micro_batches; m++) {
        w.arrival_s[0][m] = 0;
    }
    w.stage[0].fwd_in = micro_batches;
    while (w.stage[0].bwd_done < micro_batches) {
        for (int j = 0; j <= w.last; j++) {
            advance(&w, j);
        }
        for (int j = w.last; j >= 0; j--) {
            advance(&w, j);
        }
    }
    return w.stage[0].end_s;
}

double cp_step_s(const struct cp_cluster_plan *c, const struct cp_times *t)
{
    return cp_plan_overlaps(c) ? cp_step_recurrence_s(t, c->micro_batches, c->slots)
                               : cp_step_gpipe_s(t, c->micro_batches);
}
