/* Charge of devices and backlog of samples over rounds (docs/theory.md section 4). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "world/arrivals.h"
#include "world/battery.h"

#include <math.h>

static void assert_near(double a, double b, double rel)
{
    if (!(fabs(a - b) <= rel * fmax(fabs(a), fabs(b)))) {
        fail_msg("%.17g is not %.17g", a, b);
    }
}

/* --- batteries ------------------------------------------------------------------------------- */

static void a_device_leaves_and_returns(void **state)
{
    (void)state;
    struct cp_world w, base;
    double charge[CP_DEVICES_MAX], energy[CP_DEVICES_MAX + 1] = {500, 90, 90, 90};
    assert_int_equal(cp_world_draw_default(1, 3, 5, &w), CP_OK);
    struct cp_cluster *cl = &w.cluster[0];
    cl->device[1].battery_j = 200; /* d2 has a battery, d1 and d3 are on mains */
    cl->device[1].battery_reserve_j = 50;
    cl->device[1].harvest_w = 2;
    cp_battery_fill(cl, charge);
    assert_true(charge[0] == 0 && charge[1] == 200 && charge[2] == 0);
    assert_true(charge[CP_DEVICES_MAX - 1] == 0);

    assert_int_equal(cp_battery_apply(cl, charge), 0);
    cp_battery_advance(cl, energy, 10, charge);
    assert_true(charge[1] == 130 && charge[0] == 0 && charge[2] == 0);
    cp_battery_advance(cl, energy, 5, charge);
    assert_true(charge[1] == 50); /* its reserve, not under it */
    assert_int_equal(cp_battery_apply(cl, charge), 0);
    assert_true(cl->device[1].present);
    energy[2] = 61;
    cp_battery_advance(cl, energy, 5, charge);
    assert_true(charge[1] == 0); /* never less than nothing */
    base = w;
    assert_int_equal(cp_battery_apply(cl, charge), 1);
    assert_true(!cl->device[1].present && cl->device[1].absence == CP_ABSENCE_BATTERY);
    assert_true(cl->device[0].present && cl->device[2].present && cl->cu.present);
    /* One that has left already is not counted, and keeps its reason. */
    assert_int_equal(cp_battery_apply(cl, charge), 0);
    cl->device[1].absence = CP_ABSENCE_LEFT;
    assert_int_equal(cp_battery_apply(cl, charge), 0);
    assert_int_equal(cl->device[1].absence, CP_ABSENCE_LEFT);

    energy[2] = 0; /* absent, it charges */
    cp_battery_advance(cl, energy, 24.5, charge);
    assert_true(charge[1] == 49);
    assert_int_equal(cp_battery_apply(cl, charge), 0);
    cp_battery_advance(cl, energy, 0.5, charge);
    base.cluster[0].device[1].present = true;
    assert_int_equal(cp_battery_apply(&base.cluster[0], charge), 0); /* back: it has its reserve */
    cp_battery_advance(cl, energy, 1e9, charge);
    assert_true(charge[1] == 200); /* never more than full */
    cp_world_fini(&w);
}

static void energy_is_conserved(void **state)
{
    (void)state;
    struct cp_world w;
    double charge[CP_DEVICES_MAX], spent = 0, got = 0;
    assert_int_equal(cp_world_draw_default(1, 1, 5, &w), CP_OK);
    w.cluster[0].device[0].battery_j = 1e6;
    w.cluster[0].device[0].harvest_w = 0.25;
    cp_battery_fill(&w.cluster[0], charge);
    for (int round = 0; round < 100; round++) {
        double energy[CP_DEVICES_MAX + 1] = {0, 100.0 + round};
        cp_battery_advance(&w.cluster[0], energy, 20 + round, charge);
        spent += energy[1];
        got += 0.25 * (20 + round);
    }
    assert_near(charge[0], 1e6 - spent + got, 1e-12);
    cp_world_fini(&w);
}

/* --- arrivals -------------------------------------------------------------------------------- */

static void arrivals_have_their_distribution(void **state)
{
    (void)state;
    static const double MEANS[] = {0.3, 4, 9.9, 10, 37.5, 5000, 3e6};
    enum { ROUNDS = 20000 };
    struct cp_world w = {0}, full;
    assert_int_equal(cp_world_draw_default(7, 1, 5, &full), CP_OK);
    assert_int_equal(cp_world_copy(&w, &full), CP_OK);
    double sum[7] = {0}, square[7] = {0}, cube[7] = {0}, none = 0;
    for (int c = 0; c < 7; c++) {
        full.cluster[c].arrivals = MEANS[c];
    }
    for (w.round = 0; w.round < ROUNDS; w.round++) {
        cp_arrivals_draw(&w, &full, CP_ARRIVAL_POISSON, 11);
        for (int c = 0; c < 7; c++) {
            double a = w.cluster[c].arrivals, z = (a - MEANS[c]) / sqrt(MEANS[c]);
            assert_true(a >= 0 && a == floor(a));
            sum[c] += z;
            square[c] += z * z;
            cube[c] += z * z * z;
        }
        none += w.cluster[0].arrivals == 0;
    }
    for (int c = 0; c < 7; c++) { /* z: mean 0, variance 1, third moment 1 / sqrt(mean) */
        assert_true(fabs(sum[c] / ROUNDS) < 0.03);
        assert_true(fabs(square[c] / ROUNDS - 1) < 0.06);
        assert_true(fabs(cube[c] / ROUNDS - 1 / sqrt(MEANS[c])) < 0.3);
    }
    assert_true(fabs(none / ROUNDS - exp(-0.3)) < 0.015);
    cp_world_fini(&w);
    cp_world_fini(&full);
}

static void arrivals_are_keyed(void **state)
{
    (void)state;
    struct cp_world a = {0}, full;
    assert_int_equal(cp_world_draw_default(2, 1, 5, &full), CP_OK);
    assert_int_equal(cp_world_copy(&a, &full), CP_OK);
    full.cluster[0].arrivals = full.cluster[1].arrivals = 1e6;
    a.round = 3;
    cp_arrivals_draw(&a, &full, CP_ARRIVAL_POISSON, 1);
    double first = a.cluster[0].arrivals;
    assert_true(first != a.cluster[1].arrivals);
    cp_arrivals_draw(&a, &full, CP_ARRIVAL_POISSON, 1);
    assert_true(a.cluster[0].arrivals == first);
    cp_arrivals_draw(&a, &full, CP_ARRIVAL_POISSON, 2);
    assert_true(a.cluster[0].arrivals != first);
    a.round = 4;
    cp_arrivals_draw(&a, &full, CP_ARRIVAL_POISSON, 1);
    assert_true(a.cluster[0].arrivals != first);
    full.cluster[0].arrivals = 0;
    full.cluster[1].arrivals = 10.0 / 3;
    double sum = 0;
    for (a.round = 0; a.round < 300; a.round++) {
        cp_arrivals_draw(&a, &full, CP_ARRIVAL_CONSTANT, 1);
        assert_true(a.cluster[0].arrivals == 0);
        assert_true(a.cluster[1].arrivals == 3 || a.cluster[1].arrivals == 4);
        sum += a.cluster[1].arrivals;
    }
    assert_true(fabs(sum - 1000) <= 1);
    a.round = 5;
    cp_arrivals_draw(&a, &full, CP_ARRIVAL_POISSON, 1);
    assert_true(a.cluster[0].arrivals == 0); /* a mean of 0 never comes to anything */
    cp_world_fini(&a);
    cp_world_fini(&full);
}

/* H = 20, b = 4: 80 samples per micro-batch and round. */
static void backlog_by_hand(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_backlog q = {0};
    assert_int_equal(cp_world_draw_default(1, 1, 5, &w), CP_OK);
    assert_int_equal(cp_backlog_micro_max(&q, &w), 0);
    cp_backlog_advance(&q, &w, 3, 200, 10); /* nothing to train yet */
    assert_true(q.waiting == 200 && q.age_s == 5 && q.trained == 0 && q.trained_age_s == 0);
    assert_int_equal(cp_backlog_micro_max(&q, &w), 2);
    cp_backlog_advance(&q, &w, 2, 120, 20); /* 160 of 200 are trained, 15 s old */
    assert_true(q.waiting == 160 && q.trained == 160 && q.trained_age_s == 15);
    assert_near(q.age_s, (40 * 25.0 + 120 * 10) / 160, 1e-15);
    cp_backlog_advance(&q, &w, 4, 0, 4); /* more wanted than there is: all of it */
    assert_true(q.waiting == 0 && q.age_s == 0 && q.trained == 320);
    assert_near(q.trained_age_s, (160 * 15 + 160 * (13.75 + 2)) / 320, 1e-15);
    cp_backlog_advance(&q, &w, 0, 1e7, 4);
    assert_int_equal(cp_backlog_micro_max(&q, &w), w.micro_max);
    q.waiting = 80 - 1e-9;
    assert_int_equal(cp_backlog_micro_max(&q, &w), 0);
    cp_world_fini(&w);
}

/* Little's law: with a mean backlog of Q and an arrival rate of A per second the mean age when
 * trained is Q / A. Rounds of one length, so that the middle of a round is exact. */
static void freshness_obeys_littles_law(void **state)
{
    (void)state;
    struct cp_world w = {0}, full;
    struct cp_backlog q = {0};
    assert_int_equal(cp_world_draw_default(1, 1, 5, &full), CP_OK);
    full.cluster[0].arrivals = 500;
    assert_int_equal(cp_world_copy(&w, &full), CP_OK);
    double sum = 0, arrived = 0;
    enum { ROUNDS = 20000 };
    for (w.round = 0; w.round < ROUNDS; w.round++) {
        cp_arrivals_draw(&w, &full, CP_ARRIVAL_POISSON, 3);
        int m = cp_backlog_micro_max(&q, &w);
        sum += q.waiting;
        arrived += w.cluster[0].arrivals;
        cp_backlog_advance(&q, &w, m, w.cluster[0].arrivals, 7);
        assert_true(q.waiting >= 0 && isfinite(q.age_s));
    }
    assert_near(q.trained_age_s, sum / arrived * 7, 1e-3);
    assert_near(q.trained + q.waiting, arrived, 1e-12);
    cp_world_fini(&w);
    cp_world_fini(&full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_leaves_and_returns),
        cmocka_unit_test(energy_is_conserved),
        cmocka_unit_test(arrivals_have_their_distribution),
        cmocka_unit_test(arrivals_are_keyed),
        cmocka_unit_test(backlog_by_hand),
        cmocka_unit_test(freshness_obeys_littles_law),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
