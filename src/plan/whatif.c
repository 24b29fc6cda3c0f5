#include "plan/whatif.h"

#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BISECTIONS = 4, MEMORY_MOST = 64 };

bool cp_cut_differs(const struct cp_cluster_plan *x, const struct cp_cluster_plan *y)
{
    if (x->mode != y->mode || x->segments != y->segments || x->edge_layers != y->edge_layers) {
        return true;
    }
    for (int s = 0; s < x->segments; s++) {
        if (x->device[s] != y->device[s] || x->layers[s] != y->layers[s]) {
            return true;
        }
    }
    return false;
}

static bool cuts_differ(const struct cp_plan *x, const struct cp_plan *y)
{
    for (int c = 0; c < x->n_clusters; c++) {
        if (cp_cut_differs(&x->cluster[c], &y->cluster[c])) {
            return true;
        }
    }
    return false;
}

static size_t scaled_bytes(size_t bytes, double factor)
{
    double x = (double)bytes * factor;
    return x < (double)(SIZE_MAX / 2) ? (size_t)x : SIZE_MAX / 2;
}

static void turn(struct cp_world *w, const struct cp_knob *knob, double factor)
{
    switch (knob->kind) {
    case CP_KNOB_MEMORY: {
        size_t *bytes = &w->cluster[knob->cluster].device[knob->device].mem_bytes;
        *bytes = scaled_bytes(*bytes, factor);
        break;
    }
    case CP_KNOB_D2D:
        w->radio.band_d2d_hz *= factor;
        break;
    case CP_KNOB_EDGE:
        w->radio.band_up_hz *= factor;
        w->radio.band_down_hz *= factor;
        break;
    case CP_KNOB_SERVER:
        w->server_flops *= factor;
        break;
    }
}

/* Two worlds to change, and the arguments that point at them. */
struct trial {
    struct cp_world world, mean;
    struct cp_policy_args args;
};

static void trial_fini(struct trial *t)
{
    cp_world_fini(&t->world);
    cp_world_fini(&t->mean);
}

static cp_err trial_init(struct trial *t, const struct cp_policy_args *a)
{
    *t = (struct trial){.args = *a};
    cp_err err = cp_world_copy(&t->world, a->world);
    err = err ? err : cp_world_copy(&t->mean, a->mean);
    if (err) {
        trial_fini(t);
        return err;
    }
    t->args.world = &t->world;
    t->args.mean = &t->mean;
    return CP_OK;
}

/* The decision at a factor; kept in out if its cut is another one. */
static cp_err decide_at(const struct cp_policy *policy, const struct cp_policy_args *a,
                        const struct cp_plan *p, const struct cp_knob *knob, double factor,
                        struct cp_what_if *out, bool *changes)
{
    struct trial t;
    struct cp_plan plan;
    struct cp_decision d;
    struct cp_forecast f;
    CP_TRY(trial_init(&t, a));
    turn(&t.world, knob, factor);
    turn(&t.mean, knob, factor);
    t.args.incumbent = p;
    cp_err err = cp_policy_decide(policy, &t.args, &plan, &d);
    if (err) {
        goto done;
    }
    out->decisions++;
    *changes = cuts_differ(&plan, p);
    err = *changes ? cp_forecast_make(&plan, &t.world, NULL, 0, &f) : CP_OK;
    if (!err && *changes) {
        cp_plan_fini(&out->plan);
        out->plan = plan;
        plan = (struct cp_plan){0};
        out->changes = true;
        out->factor = factor;
        out->objective = d.objective;
        out->latency_s = f.latency_s;
        cp_forecast_fini(&f);
    }
    cp_plan_fini(&plan);
done:
    trial_fini(&t);
    return err;
}

cp_err cp_what_if_make(const struct cp_policy *policy, const struct cp_policy_args *a,
                       const struct cp_plan *p, const struct cp_knob *knob, struct cp_what_if *out)
{
    struct cp_what_if x = {.factor = CP_WHATIF_MOST};
    double same = 1, other = 2; /* factors with the same cut and with another one */
    bool changes = false;
    cp_err err = CP_OK;
    for (; !err && other <= CP_WHATIF_MOST; other *= 2) {
        err = decide_at(policy, a, p, knob, other, &x, &changes);
        if (changes) {
            break;
        }
        same = other;
    }
    for (int i = 0; !err && changes && i < BISECTIONS; i++) {
        bool differs = false;
        double middle = sqrt(same * other);
        err = decide_at(policy, a, p, knob, middle, &x, &differs);
        *(differs ? &other : &same) = middle;
    }
    if (err) {
        cp_what_if_fini(&x);
        return cp_fail_in(err, "what would change the decision");
    }
    *out = x;
    return CP_OK;
}

void cp_what_if_fini(struct cp_what_if *x)
{
    cp_plan_fini(&x->plan);
    *x = (struct cp_what_if){0};
}

/* --- when there is no plan ------------------------------------------------------------------- */

/* Whether there is a plan with other memory on every device, or other layers in the model. */
static bool has_plan(const struct cp_policy *policy, const struct cp_policy_args *a, double factor,
                     int layers)
{
    struct trial t;
    struct cp_plan plan;
    struct cp_decision d;
    if (trial_init(&t, a) != CP_OK) {
        return false;
    }
    struct cp_world *const worlds[] = {&t.world, &t.mean};
    for (int i = 0; i < 2; i++) {
        worlds[i]->model.layers = layers;
        for (int c = 0; c < t.world.n_clusters; c++) {
            for (int k = 0; k < t.world.cluster[c].n_devices; k++) {
                size_t *bytes = &worlds[i]->cluster[c].device[k].mem_bytes;
                *bytes = scaled_bytes(*bytes, factor);
            }
        }
    }
    bool found = cp_policy_decide(policy, &t.args, &plan, &d) == CP_OK;
    if (found) {
        cp_plan_fini(&plan);
    }
    trial_fini(&t);
    return found;
}

/* The least factor for all memory, to about 1 %; 0: none up to MEMORY_MOST helps. */
static double memory_needed(const struct cp_policy *policy, const struct cp_policy_args *a)
{
    double low = 1, high = 2;
    int layers = a->world->model.layers;
    while (high <= MEMORY_MOST && !has_plan(policy, a, high, layers)) {
        low = high;
        high *= 2;
    }
    if (high > MEMORY_MOST) {
        return 0;
    }
    while (high / low > 1.01) {
        double middle = sqrt(low * high);
        *(has_plan(policy, a, middle, layers) ? &high : &low) = middle;
    }
    return high;
}

static int most_layers(const struct cp_policy *policy, const struct cp_policy_args *a)
{
    int low = 0, high = a->world->model.layers;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        *(has_plan(policy, a, 1, middle) ? &low : &high) = middle;
    }
    return low;
}

cp_err cp_what_if_fail(const struct cp_policy *policy, const struct cp_policy_args *a, cp_err err)
{
    char why[1024], help[160] = "";
    if (err != CP_E_PLAN) {
        return err;
    }
    snprintf(why, sizeof why, "%s", cp_err_text());
    double factor = memory_needed(policy, a);
    int layers = factor > 0 ? most_layers(policy, a) : 0;
    if (factor > 0) {
        snprintf(help, sizeof help, "; it takes %.2f times the memory on every device%s", factor,
                 layers > 0 ? "" : ", or more devices");
    }
    if (layers > 0) {
        size_t n = strlen(help);
        snprintf(help + n, sizeof help - n, ", or a model of at most %d layer%s, or more devices",
                 layers, layers == 1 ? "" : "s");
    }
    return cp_fail(err, "%s%s", why, help);
}
