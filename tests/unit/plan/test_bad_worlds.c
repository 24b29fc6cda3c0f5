/* Worlds that cannot be, or hardly: every policy ends in a named error or in a valid plan whose
 * figures are all finite (docs/theory.md section 16, item 23). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "plan/lower.h"
#include "unit/plan/worlds.h"

enum { CLUSTERS = 2, DEVICES = 2, LAYERS = 3 };

/* --- the worlds ------------------------------------------------------------------------------ */

static void no_clusters(struct cp_world *w)
{
    w->n_clusters = 0;
}
static void no_devices(struct cp_world *w)
{
    w->cluster[1].n_devices = 0;
}
static void nobody_present(struct cp_world *w)
{
    w->cluster[1].device[0].present = w->cluster[1].device[1].present = false;
}
static void one_present(struct cp_world *w)
{
    w->cluster[1].device[0].present = false;
}
static void one_device(struct cp_world *w)
{
    w->cluster[1].n_devices = 1;
}
static void one_layer(struct cp_world *w)
{
    w->model = toy_model(1);
}
static void one_of_everything(struct cp_world *w)
{
    one_layer(w);
    w->cluster[0].n_devices = w->cluster[1].n_devices = 1;
    w->local_steps = w->micro_ref = w->micro_max = 1;
    cp_world_weigh(w);
}
static void no_d2d_band(struct cp_world *w)
{
    w->radio.band_d2d_hz = 0;
}
static void no_uplink(struct cp_world *w)
{
    w->radio.band_up_hz = 0;
}
static void no_downlink(struct cp_world *w)
{
    w->radio.band_down_hz = -0.0;
}
static void bands_of_a_hertz(struct cp_world *w)
{
    w->radio.band_d2d_hz = w->radio.band_up_hz = w->radio.band_down_hz = 1;
}
static void hardly_any_band(struct cp_world *w)
{
    w->radio.band_d2d_hz = w->radio.band_up_hz = w->radio.band_down_hz = 1e-300;
}
static void deafening_noise(struct cp_world *w)
{
    w->radio.noise_w_hz = 1e300;
}
static void no_noise(struct cp_world *w)
{
    w->radio.noise_w_hz = 0;
}

static void set_gain_d2d(struct cp_world *w, int a, int b, double gain)
{
    w->cluster[1].gain_d2d[a][b] = w->cluster[1].gain_d2d[b][a] = gain;
}
static void set_gains_d2d(struct cp_world *w, double gain)
{
    set_gain_d2d(w, 0, 1, gain);
    set_gain_d2d(w, 0, 2, gain);
    set_gain_d2d(w, 1, 2, gain);
}
static void set_gains_d2e(struct cp_world *w, double gain)
{
    for (int node = 0; node <= DEVICES; node++) {
        w->cluster[1].gain_d2e[node] = gain;
    }
}
static void gain_0_to_a_device(struct cp_world *w)
{
    set_gain_d2d(w, 0, 2, 0);
}
static void gain_0_to_the_edge(struct cp_world *w)
{
    w->cluster[1].gain_d2e[2] = 0;
}
static void gain_below_0(struct cp_world *w)
{
    w->cluster[1].gain_d2e[2] = -1e-9;
}
static void faint_between_devices(struct cp_world *w)
{
    set_gain_d2d(w, 1, 2, 1e-300);
}
static void faint_inside(struct cp_world *w)
{
    set_gains_d2d(w, 1e-300);
}
static void faint_from_the_control_unit(struct cp_world *w)
{
    w->cluster[1].gain_d2e[0] = 1e-300;
}
static void faint_from_a_device(struct cp_world *w)
{
    w->cluster[1].gain_d2e[1] = 1e-300;
}
static void faint_to_the_edge(struct cp_world *w)
{
    set_gains_d2e(w, 1e-300);
}
static void subnormal_to_the_edge(struct cp_world *w)
{
    set_gains_d2e(w, 1e-320);
}
static void deafening_gains(struct cp_world *w)
{
    set_gains_d2d(w, 1e280);
    set_gains_d2e(w, 1e280);
}
static void gains_at_the_clamp(struct cp_world *w)
{
    const struct cp_channel ch = {.fading = CP_FADING_RAYLEIGH, .clamp = 1e9};
    cp_channel_draw(w, &ch, 1, false);
}
static void memory_below_a_layer(struct cp_world *w)
{
    for (int k = 0; k < DEVICES; k++) {
        w->cluster[1].device[k].mem_bytes = toy_bytes(&TOY, 1, 1) - 1;
    }
}
static void no_memory_at_all(struct cp_world *w)
{
    w->cluster[1].device[0].mem_bytes = w->cluster[1].device[1].mem_bytes = 0;
}
static void memory_for_one_layer_each(struct cp_world *w)
{
    for (int k = 0; k < DEVICES; k++) {
        w->cluster[1].device[k].mem_bytes = toy_bytes(&TOY, 1, 1);
    }
}
static void no_budget(struct cp_world *w)
{
    w->cluster[1].cu.budget_j = w->cluster[1].device[0].budget_j = 0;
}
static void hardly_any_budget(struct cp_world *w)
{
    w->cluster[1].cu.budget_j = w->cluster[1].device[0].budget_j = 1e-300;
}
static void free_energy(struct cp_world *w)
{
    for (int k = 0; k < DEVICES; k++) {
        w->cluster[1].device[k].energy_j_flop = 0;
    }
}
static void a_device_that_stands_still(struct cp_world *w)
{
    w->cluster[1].device[0].rate_flops = 0;
}
static void a_snail(struct cp_world *w)
{
    w->cluster[1].device[0].rate_flops = 1e-300;
}
static void snails(struct cp_world *w)
{
    w->cluster[1].device[0].rate_flops = w->cluster[1].device[1].rate_flops = 1e-300;
}
static void a_snail_of_a_server(struct cp_world *w)
{
    w->server_flops = 1e-300;
}
static void rockets(struct cp_world *w)
{
    w->cluster[1].device[0].rate_flops = w->cluster[1].device[1].rate_flops = 1e300;
}
static void nan_rate(struct cp_world *w)
{
    w->cluster[1].device[1].rate_flops = NAN;
}
static void nan_gain(struct cp_world *w)
{
    set_gain_d2d(w, 0, 1, NAN);
}
static void nan_budget(struct cp_world *w)
{
    w->cluster[1].device[1].budget_j = NAN;
}
static void nan_band(struct cp_world *w)
{
    w->radio.band_up_hz = NAN;
}
static void endless_energy(struct cp_world *w)
{
    w->cluster[1].device[1].energy_j_flop = INFINITY;
}
static void nan_of_who_is_away(struct cp_world *w)
{
    w->cluster[1].device[0].present = false;
    w->cluster[1].device[0].rate_flops = NAN;
    set_gain_d2d(w, 1, 2, NAN);
    set_gain_d2d(w, 0, 1, NAN);
    w->cluster[1].gain_d2e[1] = NAN;
}

/* What a world must lead to; the policy static may also say that its cut is another world's. */
enum verdict {
    PLANNED, /* by every policy */
    NAMED,   /* by none, with this code and text */
    EITHER,  /* a plan, or E_PLAN: policies that fix the cut have it worse */
};
static const struct {
    void (*spoil)(struct cp_world *w);
    enum verdict verdict;
    cp_err code;
    const char *says;
} BAD[] = {
    {no_clusters, NAMED, CP_E_CONFIG, "0 clusters"},
    {no_devices, NAMED, CP_E_PLAN, "c2: none of its 0 devices"},
    {nobody_present, NAMED, CP_E_PLAN, "c2: none of its 2 devices is present"},
    {one_present, PLANNED, CP_OK, NULL},
    {one_device, PLANNED, CP_OK, NULL},
    {one_layer, PLANNED, CP_OK, NULL},
    {one_of_everything, PLANNED, CP_OK, NULL},
    {no_d2d_band, NAMED, CP_E_CONFIG, "the D2D band is 0; it must be above 0"},
    {no_uplink, NAMED, CP_E_CONFIG, "the uplink band is 0"},
    {no_downlink, NAMED, CP_E_CONFIG, "the downlink band is -0"},
    {bands_of_a_hertz, NAMED, CP_E_PLAN, "a year"},
    {hardly_any_band, NAMED, CP_E_PLAN, "a year"},
    {deafening_noise, NAMED, CP_E_PLAN, "a year"},
    {no_noise, NAMED, CP_E_CONFIG, "the noise density is 0"},
    {gain_0_to_a_device, NAMED, CP_E_CONFIG, "c2.cu: the gain to another node is 0"},
    {gain_0_to_the_edge, NAMED, CP_E_CONFIG, "c2.d2: the gain to the edge server is 0"},
    {gain_below_0, NAMED, CP_E_CONFIG, "c2.d2: the gain to the edge server is -1e-09"},
    {faint_between_devices, EITHER, CP_OK, NULL},
    {faint_inside, EITHER, CP_OK, NULL},
    {faint_from_the_control_unit, EITHER, CP_OK, NULL},
    {faint_from_a_device, EITHER, CP_OK, NULL},
    {faint_to_the_edge, NAMED, CP_E_PLAN, "a year"},
    {subnormal_to_the_edge, NAMED, CP_E_PLAN, "a year"},
    {deafening_gains, PLANNED, CP_OK, NULL},
    {gains_at_the_clamp, PLANNED, CP_OK, NULL},
    {memory_below_a_layer, NAMED, CP_E_PLAN, "c2: "},
    {no_memory_at_all, NAMED, CP_E_PLAN, "c2: "},
    {memory_for_one_layer_each, EITHER, CP_OK, NULL},
    {no_budget, PLANNED, CP_OK, NULL},
    {hardly_any_budget, NAMED, CP_E_CONFIG, "c2.cu: an energy budget of 1e-300 J"},
    {free_energy, PLANNED, CP_OK, NULL},
    {a_device_that_stands_still, NAMED, CP_E_CONFIG, "c2.d1: the compute rate (FLOP/s) is 0"},
    {a_snail, EITHER, CP_OK, NULL},
    {snails, EITHER, CP_OK, NULL},
    {a_snail_of_a_server, EITHER, CP_OK, NULL},
    {rockets, PLANNED, CP_OK, NULL},
    {nan_rate, NAMED, CP_E_NONFINITE, "c2.d2: the compute rate (FLOP/s) is not a finite number"},
    {nan_gain, NAMED, CP_E_NONFINITE, "c2.cu: the gain to another node is not"},
    {nan_budget, NAMED, CP_E_NONFINITE, "c2.d2: the energy budget is not a finite number"},
    {nan_band, NAMED, CP_E_NONFINITE, "world: the uplink band is not a finite number"},
    {endless_energy, NAMED, CP_E_NONFINITE, "c2.d2: the energy per FLOP is not a finite number"},
    {nan_of_who_is_away, PLANNED, CP_OK, NULL},
};
enum { BAD_WORLDS = sizeof BAD / sizeof BAD[0] };

/* --- what is looked at ----------------------------------------------------------------------- */

static void assert_sane(double x, const char *policy, int bad, const char *what)
{
    if (!(isfinite(x) && x >= 0)) {
        fail_msg("%s, world %d: %s is %g", policy, bad, what, x);
    }
}

static void check_forecast(const struct cp_plan *p, const struct cp_world *w, int bad)
{
    struct cp_forecast f;
    assert_int_equal(cp_forecast_make(p, w, NULL, 0, &f), CP_OK);
    assert_sane(f.latency_s, p->policy, bad, "latency");
    assert_sane(f.energy_j, p->policy, bad, "energy");
    assert_sane(f.gamma, p->policy, bad, "gamma");
    assert_true(near_rel(f.latency_s, cp_plan_round_s(p, w), 1e-12));
    assert_true(f.latency_s <= CP_ROUND_MOST_S);
    for (int c = 0; c < p->n_clusters; c++) {
        const struct cp_cluster_forecast *x = &f.cluster[c];
        assert_sane(x->bubble, p->policy, bad, "bubble");
        assert_sane(x->step_s, p->policy, bad, "step");
        assert_sane(x->scatter_s + x->gather_s + x->upload_s, p->policy, bad, "exchange");
        for (int node = 0; node <= w->cluster[c].n_devices; node++) {
            assert_sane(x->energy_j[node], p->policy, bad, "energy of a node");
        }
        for (int j = 0; j < CP_STAGES_MAX; j++) {
            assert_sane(x->times.fwd_s[j] + x->times.bwd_s[j], p->policy, bad, "stage time");
        }
        for (int j = 0; j <= CP_DEVICES_MAX; j++) {
            assert_sane(x->times.link_fwd_s[j] + x->times.link_bwd_s[j], p->policy, bad,
                        "link time");
        }
    }
    cp_forecast_fini(&f);
}

/* The plan as people get it, and back. */
static void check_json(const struct cp_plan *p, const struct cp_world *w)
{
    struct cp_str text = {0};
    struct cp_plan back;
    assert_int_equal(cp_plan_to_json(p, w, &text), CP_OK);
    const char *json = cp_str_text(&text);
    assert_null(strstr(json, "nan"));
    assert_null(strstr(json, "inf"));
    assert_null(strstr(json, "null"));
    assert_int_equal(cp_plan_from_json(json, &back), CP_OK);
    assert_int_equal(cp_plan_check(&back, w), CP_OK);
    cp_plan_fini(&back);
    cp_str_fini(&text);
}

static void check_bound(const struct cp_policy_args *a, const struct cp_plan *p, double objective)
{
    static const struct cp_lower_set all = {true, true, true};
    struct cp_policy_args any = *a;
    double bound;
    any.choose_order = true;
    assert_int_equal(cp_lower_bound(&any, &all, p, CP_LOWER_FAST, &bound), CP_OK);
    assert_true(bound <= objective); /* which NaN is not */
}

/* Asks one policy in one world; the queues are those of a good world. */
static bool ask(int bad, const struct cp_policy *policy, const struct cp_policy_args *a)
{
    struct cp_plan p = {.gen = 7};
    struct cp_decision d = {.objective = 3};
    cp_err err = cp_policy_decide(policy, a, &p, &d);
    if (err) {
        const char *text = cp_err_text();
        cp_err code = BAD[bad].verdict == NAMED ? BAD[bad].code : CP_E_PLAN;
        const char *says = BAD[bad].verdict == NAMED ? BAD[bad].says : "";
        bool own_rule = strcmp(policy->name, "static") == 0 && strstr(text, "plan.cuts: c");
        if (!own_rule && (BAD[bad].verdict == PLANNED || err != code || !strstr(text, says))) {
            fail_msg("%s, world %d: %d, '%s'", policy->name, bad, err, text);
        }
        assert_true(strlen(text) > 20 && !strstr(text, "does not hold"));
        assert_true(p.gen == 7 && !p.cluster && d.objective == 3);
        return false;
    }
    if (BAD[bad].verdict == NAMED) {
        fail_msg("%s, world %d: a plan", policy->name, bad);
    }
    assert_int_equal(cp_plan_check(&p, a->world), CP_OK);
    assert_true(isfinite(d.objective));
    check_forecast(&p, a->world, bad);
    check_json(&p, a->world);
    check_bound(a, &p, d.objective);
    cp_plan_fini(&p);
    return true;
}

/* --- tests ----------------------------------------------------------------------------------- */

static void every_policy_in_every_world(void **state)
{
    (void)state;
    static const int whole[CLUSTERS][CP_DEVICES_MAX] = {{1, 2}, {0, 3}};
    int made = 0, named = 0;
    for (int bad = 0; bad < BAD_WORLDS; bad++) {
        struct cp_world w;
        struct cp_queues q;
        toy_world(&w, CLUSTERS, DEVICES, LAYERS, 4);
        w.micro_ref = 3;
        w.micro_max = 4;
        for (int c = 0; c < CLUSTERS; c++) {
            for (int k = 0; k < DEVICES; k++) { /* whole models fit unless memory is the point */
                w.cluster[c].device[k].mem_bytes = (size_t)4 << 30;
            }
        }
        toy_queues(&q, &w, 10, 4);
        BAD[bad].spoil(&w);
        for (int i = 0; CP_POLICIES[i]; i++) {
            const struct cp_policy *policy = CP_POLICIES[i];
            for (int k = 0; k < 2; k++) { /* without queues, and with all freedom */
                struct cp_policy_args a = {.world = &w,
                                           .mean = &w,
                                           .queues = k ? &q : NULL,
                                           .order = CP_ORDER_GPIPE,
                                           .choose_order = k,
                                           .choose_micro =
                                               k && strcmp(policy->name, "exhaustive") != 0,
                                           .n_cuts = CLUSTERS,
                                           .cuts = whole};
                *(ask(bad, policy, &a) ? &made : &named) += 1;
            }
        }
        w.n_clusters = CLUSTERS; /* to be freed */
        cp_queues_fini(&q);
        cp_world_fini(&w);
    }
    print_message("%d bad worlds: %d plans, %d named refusals\n", BAD_WORLDS, made, named);
    assert_true(made > 400 && named > 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_in_every_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
