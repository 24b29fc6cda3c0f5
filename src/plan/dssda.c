/*
 * DSSDA (docs/theory.md section 11.7), its ablations and the policies of section 13 that are the
 * same solver under other rules, and dssda-x (section 11.9).
 */
#include "plan/policies.h"
#include "plan/solver.h"

#include "base/mem.h"

#include <math.h>
#include <string.h>

static cp_err decide_dssda(const struct cp_policy_args *a, struct cp_plan *out,
                           struct cp_decision *d)
{
    return cp_slot_solve(a, &(struct cp_solver_options){0}, out, d);
}

const struct cp_policy CP_POLICY_DSSDA = {
    .name = "dssda",
    .help = "cuts, devices, order, micro-batches, bands and powers by drift plus penalty",
    .decide = decide_dssda,
};

/* --- ablations ------------------------------------------------------------------------------- */

#define ABLATION(ident, title, text, option)                                                       \
    static cp_err decide_##option(const struct cp_policy_args *a, struct cp_plan *out,             \
                                  struct cp_decision *d)                                           \
    {                                                                                              \
        return cp_slot_solve(a, &(struct cp_solver_options){.option = true}, out, d);              \
    }                                                                                              \
    const struct cp_policy ident = {.name = title, .help = text, .decide = decide_##option};

ABLATION(CP_POLICY_DSSDA_UNIFORM, "dssda-uniform", "dssda with the cut of gpipe-uniform",
         uniform_cut)
ABLATION(CP_POLICY_DSSDA_ORDER, "dssda-order", "dssda with the devices in index order", index_order)
ABLATION(CP_POLICY_DSSDA_BAND, "dssda-equal-band", "dssda with equal shares of the D2D band",
         equal_band)
ABLATION(CP_POLICY_DSSDA_SHARE, "dssda-equal-share",
         "dssda with equal shares of the band to the edge server", equal_share)
ABLATION(CP_POLICY_DSSDA_POWER, "dssda-max-power", "dssda with the greatest powers", max_power)

/* The arguments of a policy whose M is not its own choice. */
static struct cp_policy_args fix_micro(const struct cp_policy_args *a)
{
    struct cp_policy_args fixed = *a;
    if (a->choose_micro) {
        fixed.choose_micro = false;
        fixed.micro = NULL; /* M_ref */
    }
    return fixed;
}

static cp_err decide_fixed_micro(const struct cp_policy_args *a, struct cp_plan *out,
                                 struct cp_decision *d)
{
    struct cp_policy_args fixed = fix_micro(a);
    return cp_slot_solve(&fixed, &(struct cp_solver_options){0}, out, d);
}

const struct cp_policy CP_POLICY_DSSDA_MICRO = {
    .name = "dssda-fixed-m",
    .help = "dssda with the configured number of micro-batches",
    .decide = decide_fixed_micro,
};

/* --- exhaustive ------------------------------------------------------------------------------ */

enum { EXHAUSTIVE_DEVICES = 4, EXHAUSTIVE_LAYERS = 6 };

static cp_err decide_exhaustive(const struct cp_policy_args *a, struct cp_plan *out,
                                struct cp_decision *d)
{
    int most = 0;
    for (int c = 0; c < a->world->n_clusters; c++) {
        int device[CP_DEVICES_MAX], n;
        CP_TRY(cp_draft_present(&a->world->cluster[c], device, &n));
        most = n > most ? n : most;
    }
    if (most > EXHAUSTIVE_DEVICES || a->world->model.layers > EXHAUSTIVE_LAYERS) {
        return cp_fail(CP_E_PLAN,
                       "exhaustive: %d devices in a cluster and %d layers have too many cuts; at "
                       "most %d and %d can be tried: take dssda",
                       most, a->world->model.layers, EXHAUSTIVE_DEVICES, EXHAUSTIVE_LAYERS);
    }
    struct cp_policy_args cold = *a;
    cold.incumbent = NULL; /* everything is tried, and nothing kept */
    return cp_slot_solve(&cold, &(struct cp_solver_options){.exhaustive = true}, out, d);
}

const struct cp_policy CP_POLICY_EXHAUSTIVE = {
    .name = "exhaustive",
    .help = "every cut, order and M, the rest polished; at most 4 devices and 6 layers",
    .decide = decide_exhaustive,
};

/* --- without queues -------------------------------------------------------------------------- */

static cp_err decide_latency(const struct cp_policy_args *a, struct cp_plan *out,
                             struct cp_decision *d)
{
    struct cp_policy_args free_of = fix_micro(a);
    free_of.queues = NULL;
    return cp_slot_solve(&free_of, &(struct cp_solver_options){0}, out, d);
}

const struct cp_policy CP_POLICY_LATENCY_ONLY = {
    .name = "latency-only",
    .help = "the least latency, whatever the energy",
    .decide = decide_latency,
};

/* The most that a node spends of its budget in a round, and the length of the round. */
struct spending {
    double ratio, time_s;
};

static cp_err spend(const struct cp_plan *p, const struct cp_world *w, struct cp_queues *q,
                    double step, struct spending *out)
{
    struct cp_forecast f;
    CP_TRY(cp_forecast_make(p, w, NULL, 0, &f));
    *out = (struct spending){.time_s = f.latency_s};
    for (int c = 0; c < w->n_clusters; c++) {
        for (int node = 0; node <= w->cluster[c].n_devices; node++) {
            const struct cp_cluster *cl = &w->cluster[c];
            double budget = node == 0 ? cl->cu.budget_j : cl->device[node - 1].budget_j;
            if (budget > 0) {
                double ratio = f.cluster[c].energy_j[node] / budget;
                out->ratio = fmax(out->ratio, ratio);
                q->energy[c][node] = fmax(0, q->energy[c][node] + step * (ratio - 1));
            }
        }
    }
    cp_forecast_fini(&f);
    return CP_OK;
}

/*
 * Myopic: the least latency of this slot with E <= E-bar for every node in it. Prices rise for who
 * spends too much and fall for who does not, in ever larger steps until everybody keeps to his
 * budget; the fastest plan that does is taken, or where none does the one that exceeds it least.
 */
static cp_err search_prices(struct cp_policy_args *a, struct cp_queues *q, struct cp_plan *out,
                            struct cp_decision *d)
{
    enum { TRIES = 10 };
    struct cp_plan trial = {0};
    struct spending best = {INFINITY, INFINITY}, now;
    double step = 0.5;
    cp_err err = cp_plan_copy(&trial, out);
    for (int i = 0; i < TRIES && !err; i++, step *= 1.5) {
        struct cp_decision note = {0};
        CP_TRY_GOTO(err, cp_slot_solve(a, &(struct cp_solver_options){0}, &trial, &note), done);
        CP_TRY_GOTO(err, spend(&trial, a->world, q, step, &now), done);
        bool keeps = now.ratio <= 1, kept = best.ratio <= 1;
        q->v = 1 / now.time_s; /* prices are for a round of about this length */
        if (keeps ? !kept || now.time_s < best.time_s : !kept && now.ratio < best.ratio) {
            best = now;
            memcpy(out->cluster, trial.cluster, (size_t)out->n_clusters * sizeof *out->cluster);
            *d = note;
        }
        if (i == 0 && keeps) {
            break; /* nothing binds: this is the least latency */
        }
    }
    if (!err && best.ratio > 1) {
        cp_draft_note(d, "a budget cannot be kept: %.0f %% of it is spent", 100 * best.ratio);
    }
done:
    cp_plan_fini(&trial);
    return err;
}

static cp_err decide_myopic(const struct cp_policy_args *a, struct cp_plan *out,
                            struct cp_decision *d)
{
    struct cp_policy_args args = fix_micro(a);
    struct cp_queues q = {.n_clusters = a->world->n_clusters, .v = 1};
    CP_TRY(cp_mem_array(NULL, (size_t)q.n_clusters, sizeof *q.energy, &q.energy));
    args.queues = &q;
    args.incumbent = NULL; /* its own last plan was made under other prices */
    cp_err err = search_prices(&args, &q, out, d);
    cp_queues_fini(&q);
    return err;
}

const struct cp_policy CP_POLICY_MYOPIC = {
    .name = "myopic",
    .help = "the least latency that keeps every energy budget in this very round",
    .decide = decide_myopic,
};

/* --- beyond the paper ------------------------------------------------------------------------ */

/* Whose decisions dssda-x can always fall back on: the deterministic policies that scale. */
static const struct cp_policy *const CANDIDATES[] = {
    &CP_POLICY_DSSDA,        &CP_POLICY_STATIC,        &CP_POLICY_GPIPE_UNIFORM,
    &CP_POLICY_PIPEEDGE,     &CP_POLICY_GREEDY,        &CP_POLICY_FEDAVG,
    &CP_POLICY_BEST_SINGLE,  &CP_POLICY_SPLITFED,      &CP_POLICY_MYOPIC,
    &CP_POLICY_LATENCY_ONLY, &CP_POLICY_DSSDA_UNIFORM, &CP_POLICY_DSSDA_ORDER,
    &CP_POLICY_DSSDA_MICRO,  &CP_POLICY_DSSDA_BAND,    &CP_POLICY_DSSDA_SHARE,
    &CP_POLICY_DSSDA_POWER,
};

/* The best decision of the others so far. */
struct rival {
    struct cp_plan plan;
    struct cp_decision note;
    double value; /* its J; infinite: none */
};

/* Takes a policy's decision where it is the best; one that has none is no rival. */
static cp_err ask(const struct cp_policy *policy, const struct cp_policy_args *a,
                  struct rival *best)
{
    struct cp_plan trial;
    struct cp_decision note = {0};
    CP_TRY(cp_plan_init(&trial, best->plan.n_clusters));
    cp_err err = policy->decide(a, &trial, &note);
    bool holds = !err && cp_plan_check(&trial, a->world) == CP_OK &&
                 cp_plan_round_s(&trial, a->world) <= CP_ROUND_MOST_S;
    double value = holds ? cp_plan_objective(&trial, a->world, a->queues) : INFINITY;
    if (value < best->value) {
        struct cp_plan worse = best->plan;
        *best = (struct rival){trial, note, value};
        trial = worse;
        cp_draft_note(&best->note, "as %s decides", policy->name);
    }
    cp_plan_fini(&trial);
    return err == CP_E_NOMEM ? err : CP_OK;
}

/* With a last plan, other cuts than the search's must be worth the change here, too. */
static cp_err compare_with_others(const struct cp_policy_args *a, struct cp_plan *out,
                                  struct cp_decision *d)
{
    struct rival best = {.value = INFINITY};
    double margin = a->incumbent ? CP_KEEP_MARGIN : 0;
    cp_err err = cp_plan_copy(&best.plan, out);
    for (size_t i = 0; i < sizeof CANDIDATES / sizeof CANDIDATES[0] && !err; i++) {
        err = ask(CANDIDATES[i], a, &best);
    }
    if (!err && best.value < cp_plan_objective(out, a->world, a->queues) * (1 - margin)) {
        memcpy(out->cluster, best.plan.cluster, (size_t)out->n_clusters * sizeof *out->cluster);
        *d = best.note;
    }
    cp_plan_fini(&best.plan);
    return err;
}

static cp_err decide_dssda_x(const struct cp_policy_args *a, struct cp_plan *out,
                             struct cp_decision *d)
{
    CP_TRY(cp_slot_solve(a, &(struct cp_solver_options){.extended = true}, out, d));
    return a->alone ? CP_OK : compare_with_others(a, out, d);
}

const struct cp_policy CP_POLICY_DSSDA_X = {
    .name = "dssda-x",
    .help = "dssda that may also use the edge server, formats, slots, and the other modes",
    .beyond = {.edge_layers = true, .formats = true, .apart = true},
    .decide = decide_dssda_x,
};
