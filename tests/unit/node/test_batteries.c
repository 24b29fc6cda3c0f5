/* Batteries in a run: who leaves and comes back, what waits, what ends, and what a checkpoint knows
 * of it. */
#include "kit.h"

#include <math.h>

enum { ROUNDS = 8 };

struct log {
    struct kit *k;
    bool present[KIT_ROUNDS_MAX]; /* device x */
    double wait_s[KIT_ROUNDS_MAX], latency_s[KIT_ROUNDS_MAX], energy_j[KIT_ROUNDS_MAX];
};

static int set_up(void **state)
{
    static struct kit k;
    memset(&k, 0, sizeof k);
    kit_dir(&k, 40);
    *state = &k;
    return 0;
}

static int tear_down(void **state)
{
    kit_remove(*state);
    return 0;
}

static cp_err on_round(void *arg, const struct cp_round_report *r)
{
    struct log *l = arg;
    l->present[r->round] = r->world->cluster[0].device[0].present;
    l->wait_s[r->round] = r->wait_s;
    l->latency_s[r->round] = r->sim->latency_s;
    l->energy_j[r->round] = r->sim->cluster[0].energy_j[1];
    return kit_on_round(l->k, r);
}

static cp_err on_save(void *arg, const struct cp_edge *e, int rounds_done)
{
    return kit_on_save(((struct log *)arg)->k, e, rounds_done);
}

static bool stop(void *arg)
{
    return kit_stop(((struct log *)arg)->k);
}

/* A cluster of x, with a battery (joules, reserve, harvest), and as many others as asked for. */
struct power {
    double battery_j, reserve_j, harvest_w;
};

static void open_run(struct kit *k, const struct power *p, int others, const char *rounds)
{
    char clusters[512];
    snprintf(clusters, sizeof clusters,
             "clusters=[{name: a, devices: [{name: x, battery_j: %.17g, battery_reserve_j: %.17g, "
             "harvest_w: %.17g}%s%s]}]",
             p->battery_j, p->reserve_j, p->harvest_w, others > 0 ? ", {name: y}" : "",
             others > 1 ? ", {name: z}" : "");
    k->rounds = 0;
    if (kit_open(k, (const char *const[]){"plan.policy=greedy", "plan.cuts=null", rounds,
                                          "train.local_steps=1", "run.save_every=100", clusters,
                                          NULL}) != CP_OK) {
        fail_msg("%s", cp_err_text());
    }
}

/* from: the checkpoint to go on with; NULL: the beginning. */
static cp_err run(struct kit *k, struct log *l, const char *from)
{
    struct cp_str text = {0};
    int done;
    l->k = k;
    assert_int_equal(cp_net_new(k->job.cast.n_nodes, k->job.cast.names, &k->net), CP_OK);
    assert_int_equal(cp_edge_init(&k->edge, &k->job, k->net), CP_OK);
    if (from && cp_snapshot_load(from, &k->edge, &text) != CP_OK) {
        fail_msg("%s", cp_err_text());
    }
    cp_str_fini(&text);
    k->edge.on_round = on_round;
    k->edge.on_save = on_save;
    k->edge.stop = stop;
    k->edge.arg = l;
    return cp_local_run(&k->edge, NULL, &done);
}

/* What a round costs x: joules and seconds. */
static void probe(struct kit *k, int others, double *energy_j, double *time_s)
{
    struct log l = {0};
    open_run(k, &(struct power){1, 0, 0}, others, "fed.rounds=1");
    assert_int_equal(run(k, &l, NULL), CP_OK);
    *energy_j = l.energy_j[0];
    *time_s = l.latency_s[0];
    assert_true(*energy_j > 0 && *energy_j < 0.1);
    assert_true(fabs(k->edge.charge_j[0][0] - (1 - *energy_j)) < 1e-12);
    kit_close(k);
}

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6 * fabs(want))) {
        fail_msg("%.17g is not %.17g", got, want);
    }
}

/* Two rounds empty it, it charges while others train, and comes back. */
static void a_device_leaves_and_comes_back(void **state)
{
    struct kit *k = *state;
    struct log l = {0};
    double energy_j, time_s;
    probe(k, 2, &energy_j, &time_s);
    struct power p = {2.2 * energy_j, 0.9 * energy_j, 0.4 * energy_j / time_s};
    open_run(k, &p, 2, "fed.rounds=8");
    assert_int_equal(run(k, &l, NULL), CP_OK);
    double charge_j = p.battery_j;
    int away = 0, back = 0;
    for (int i = 0; i < ROUNDS; i++) {
        assert_true(l.present[i] == (charge_j >= p.reserve_j));
        assert_true(l.wait_s[i] == 0); /* the others go on */
        assert_true((l.energy_j[i] > 0) == l.present[i]);
        charge_j = fmin(p.battery_j, charge_j - l.energy_j[i] + p.harvest_w * l.latency_s[i]);
        away += !l.present[i];
        back += i > 0 && l.present[i] && !l.present[i - 1];
    }
    assert_true(away >= 2 && back >= 1);
    assert_near(k->edge.charge_j[0][0], charge_j);
    kit_close(k);
}

/* The only device is empty: the run waits for it, and says how long. */
static void a_run_waits_for_its_last_device(void **state)
{
    struct kit *k = *state;
    struct log l = {0};
    double energy_j, time_s, charge_j;
    probe(k, 0, &energy_j, &time_s);
    struct power p = {2 * energy_j, 1.9 * energy_j, 1e-3 * energy_j / time_s};
    open_run(k, &p, 0, "fed.rounds=4");
    assert_int_equal(run(k, &l, NULL), CP_OK);
    assert_int_equal(k->rounds, 4);
    charge_j = p.battery_j;
    for (int i = 0; i < 4; i++) {
        double wait_s = fmax(0, p.reserve_j - charge_j) / p.harvest_w;
        assert_true(l.present[i]);
        assert_true((l.wait_s[i] > 0) == (i > 0));
        assert_near(l.wait_s[i], wait_s);
        charge_j += p.harvest_w * (wait_s + l.latency_s[i]) - l.energy_j[i];
    }
    kit_close(k);
}

/* Whether a run is cut in two or not: parameters, charges, waits. */
static void resume_is_bitwise_the_same(void **state)
{
    struct kit *k = *state;
    for (int others = 0; others <= 2; others += 2) {
        struct log whole = {0}, parts = {0};
        double energy_j, time_s, charge_j;
        char sha[CP_SHA256_HEX], dir[256];
        probe(k, others, &energy_j, &time_s);
        struct power p = {2.2 * energy_j, 0.9 * energy_j, 0.4 * energy_j / time_s};
        open_run(k, &p, others, "fed.rounds=8");
        assert_int_equal(run(k, &whole, NULL), CP_OK);
        kit_hash(k);
        memcpy(sha, k->sha, sizeof sha);
        charge_j = k->edge.charge_j[0][0];
        kit_close(k);
        for (int cut = 2; cut <= 5; cut++) {
            k->save = true;
            k->stop_after = cut;
            open_run(k, &p, others, "fed.rounds=8");
            assert_int_equal(run(k, &parts, NULL), CP_OK);
            assert_int_equal(k->rounds, cut);
            snprintf(dir, sizeof dir, "%s", k->saved.p);
            kit_close(k);
            k->save = false;
            k->stop_after = 0;
            open_run(k, &p, others, "fed.rounds=8");
            assert_int_equal(run(k, &parts, dir), CP_OK);
            kit_hash(k);
            assert_string_equal(k->sha, sha);
            assert_true(k->edge.charge_j[0][0] == charge_j);
            assert_memory_equal(parts.present, whole.present, sizeof whole.present);
            assert_memory_equal(parts.wait_s, whole.wait_s, sizeof whole.wait_s);
            assert_memory_equal(parts.latency_s, whole.latency_s, sizeof whole.latency_s);
            kit_close(k);
        }
    }
}

/* Nobody charges, or not within a year: a named end, with what was trained saved. */
static void an_empty_cluster_is_named(void **state)
{
    struct kit *k = *state;
    double energy_j, time_s;
    probe(k, 0, &energy_j, &time_s);
    for (int i = 0; i < 2; i++) {
        struct log l = {0};
        char dir[256];
        struct power p = {2 * energy_j, 1.9 * energy_j, i ? energy_j / 4e7 : 0};
        k->save = true;
        open_run(k, &p, 0, "fed.rounds=4");
        assert_int_equal(run(k, &l, NULL), CP_E_PLAN);
        assert_non_null(strstr(cp_err_text(), "round 2: a: none of its 1 devices is present (1 "
                                              "under the reserve of the battery)"));
        assert_int_equal(k->rounds, 1);
        kit_close(k);
        open_run(k, &p, 0, "fed.rounds=1"); /* the same, to have its checkpoint */
        assert_int_equal(run(k, &l, NULL), CP_OK);
        snprintf(dir, sizeof dir, "%s", k->saved.p);
        kit_close(k);
        k->save = false;
        open_run(k, &p, 0, "fed.rounds=4"); /* it is still empty */
        assert_int_equal(run(k, &l, dir), CP_E_PLAN);
        assert_non_null(strstr(cp_err_text(), "round 2: "));
        kit_close(k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_leaves_and_comes_back),
        cmocka_unit_test(a_run_waits_for_its_last_device),
        cmocka_unit_test(resume_is_bitwise_the_same),
        cmocka_unit_test(an_empty_cluster_is_named),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
