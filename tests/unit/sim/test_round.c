/* sim: whole rounds against a case done by hand, and against the forecast of the plan floor. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "sim/sim.h"
#include "world/radio.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WORLDS = 700, CLUSTERS = 3, DEVICES = 6, MOVES = 4 };

static void assert_near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-9 * fabs(want))) {
        fail_msg("%.17g is not %.17g", got, want);
    }
}

static size_t no_bytes(const void *arg, int n_layers, int slots)
{
    (void)arg;
    (void)n_layers;
    (void)slots;
    return 0;
}

static size_t no_client_bytes(const void *arg, int n_layers)
{
    return no_bytes(arg, n_layers, 1);
}

/* --- by hand ----------------------------------------------------------------------------- */

/* Every rate is 8 bit/s (share 1, p g = W N_0) and 1 FLOP/s: bytes and FLOPs are seconds. */
static void make_plain(struct cp_world *w, struct cp_plan *p)
{
    assert_int_equal(cp_world_init(w, 1), CP_OK);
    struct cp_cluster *cl = &w->cluster[0];
    const struct cp_device node = {
        .present = true, .rate_flops = 1, .mem_bytes = 1, .power_d2d_w = 1, .power_d2e_w = 1};
    cl->cu = cl->device[0] = cl->device[1] = node;
    snprintf(cl->name, sizeof cl->name, "c1");
    snprintf(cl->cu.name, sizeof cl->cu.name, "cu");
    snprintf(cl->device[0].name, sizeof cl->device[0].name, "d1");
    cl->n_devices = 2;
    cl->data_size = 1;
    cl->cu.energy_j_flop = 2;
    cl->device[0].energy_j_flop = 0.5;
    for (int a = 0; a < 3; a++) {
        cl->gain_d2e[a] = 1;
        for (int b = 0; b < 3; b++) {
            cl->gain_d2d[a][b] = 1;
        }
    }
    w->radio = (struct cp_radio){8, 8, 8, 1.0 / 8, 1};
    w->model = (struct cp_model_cost){.layers = 2,
                                      .emb = {1, 2, 7},
                                      .layer = {1.5, 3, 10},
                                      .head = {1, 1, 100},
                                      .boundary_bytes = 4,
                                      .label_bytes = 1,
                                      .width = 1,
                                      .optim_words = 2,
                                      .segment_bytes = no_bytes,
                                      .client_bytes = no_client_bytes};
    w->server_flops = 1;
    w->round = 9;
    w->local_steps = 3;
    w->micro_samples = 1;
    w->micro_ref = w->micro_max = 2;
    cp_world_weigh(w);
    assert_int_equal(cp_plan_init(p, 1), CP_OK);
    p->cluster[0] = (struct cp_cluster_plan){.order = CP_ORDER_GPIPE,
                                             .segments = 1,
                                             .device = {0},
                                             .layers = {2},
                                             .micro_batches = 2,
                                             .slots = {2, 2, 2},
                                             .uplink_share = 1,
                                             .band_fwd = {1},
                                             .band_bwd = {1},
                                             .power_fwd_w = {1, 1},
                                             .power_bwd_w = {0, 1},
                                             .power_up_w = 1};
}

static void test_by_hand(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    struct cp_sim_round r;
    make_plain(&w, &p);
    assert_int_equal(cp_plan_check(&p, &w), CP_OK);
    assert_int_equal(cp_sim_round(&p, &w, NULL, 0, &r), CP_OK);
    const struct cp_sim_cluster *c = &r.cluster[0];
    /* forwards 1 5 3 5 1, backwards 1 4 6 4 2; a second micro-batch adds 5 + 6 */
    assert_near(c->step_s, 15 + 17 + 5 + 6);
    assert_near(c->scatter_s, 20);
    assert_near(c->gather_s, 20);
    assert_near(c->upload_s, 27);
    assert_near(c->round_s, 3 * 43 + 20 + 20 + 27);
    assert_true(c->moves_s == 0 && !c->modelled);
    assert_near(c->energy_j[0], 6 * (2 * 3 + 5) + 20 + 27);
    assert_near(c->energy_j[1], 6 * (0.5 * 9 + 5 + 4) + 20);
    assert_true(c->energy_j[2] == 0);
    assert_near(c->bubble, 1 - 2 * (3 + 9 + 2) / (3 * 43.0));
    assert_int_equal(c->step.in_flight_peak[1], 2);
    assert_near(r.broadcast_s, 27);
    assert_near(r.latency_s, 27 + 196);
    assert_near(r.energy_j, 113 + 101);
    assert_true(r.bubble == c->bubble);
    cp_sim_round_fini(&r);
    assert_true(r.cluster == NULL);

    /* two words of 10 bytes; of what an absent device had, nothing */
    struct cp_move moves[2] = {{0, 1, 0, 1}, {0, 2, 0, 1}};
    assert_int_equal(cp_sim_round(&p, &w, moves, 2, &r), CP_OK);
    assert_near(r.cluster[0].moves_s, 40);
    assert_near(r.cluster[0].round_s, 196 + 40);
    assert_near(r.cluster[0].energy_j[1], 101 + 40);
    cp_sim_round_fini(&r);
    moves[1] = (struct cp_move){0, 2, 1, 0};
    w.cluster[0].device[1].present = false;
    assert_int_equal(cp_sim_round(&p, &w, moves, 2, &r), CP_OK);
    assert_near(r.cluster[0].moves_s, 20);
    assert_true(r.cluster[0].energy_j[2] == 0);
    cp_sim_round_fini(&r);
    cp_plan_fini(&p);
    cp_world_fini(&w);
}

static void test_costs(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    struct cp_sim_costs k;
    make_plain(&w, &p);
    cp_sim_costs_make(&p.cluster[0], &w.cluster[0], &w, &k);
    assert_string_equal(k.node[0], "c1.cu");
    assert_string_equal(k.node[1], "c1.d1");
    assert_string_equal(k.node[2], "edge");
    assert_true(k.act_bytes[0] == 5 && k.act_bytes[1] == 5);
    assert_true(k.grad_bytes[1] == 4 && k.grad_bytes[2] == 4);
    assert_true(k.round == 9 && k.step == -1 && k.start_ns == 0);
    assert_near(k.fwd_j[0], 2);
    assert_near(k.bwd_j[0], 4);
    assert_near(k.fwd_j[1], 1.5);
    assert_near(k.bwd_j[1], 3);
    assert_near(k.send_act_j[1], 5);
    assert_near(k.send_grad_j[1], 4);
    /* the edge server's energy is not counted */
    assert_true(k.fwd_j[2] == 0 && k.bwd_j[2] == 0 && k.send_grad_j[2] == 0);
    cp_plan_fini(&p);
    cp_world_fini(&w);
}

/* --- random worlds and plans ------------------------------------------------------------- */

/* Any fading, with and without shadowing; some devices are away or slowed down. */
static void draw_world(struct cp_rng *rng, struct cp_world *w)
{
    const struct cp_channel channel = {.fading = (enum cp_fading)cp_rng_below(rng, 3),
                                       .rician_k = 4,
                                       .clamp = 0.1,
                                       .shadow_db = cp_rng_below(rng, 2) ? 8 : 0};
    uint64_t seed = cp_rng_u32(rng);
    int clusters = 1 + (int)cp_rng_below(rng, CLUSTERS);
    int devices = 1 + (int)cp_rng_below(rng, DEVICES);
    assert_int_equal(cp_world_draw_default(clusters, devices, seed, w), CP_OK);
    w->model = (struct cp_model_cost){
        .layers = devices + (int)cp_rng_below(rng, 8),
        .emb = {cp_rng_range(rng, 1e6, 1e9), cp_rng_range(rng, 1e6, 1e9), 9e7},
        .layer = {cp_rng_range(rng, 1e8, 1e10), cp_rng_range(rng, 1e8, 2e10), 2.8e7},
        .head = {cp_rng_range(rng, 1e6, 1e9), cp_rng_range(rng, 1e6, 1e9), 2.4e6},
        .boundary_bytes = cp_rng_range(rng, 1e4, 1e7),
        .label_bytes = 16,
        .width = 64,
        .optim_words = cp_rng_below(rng, 3),
        .segment_bytes = no_bytes,
        .client_bytes = no_client_bytes};
    w->local_steps = 1 + (int)cp_rng_below(rng, 20);
    cp_world_weigh(w);
    w->radio.band_d2d_hz *= cp_rng_range(rng, 0.1, 1);
    w->radio.band_down_hz *= cp_rng_range(rng, 0.5, 1);
    for (int c = 0; c < clusters; c++) { /* no two nodes alike */
        w->cluster[c].cu.power_d2d_w *= cp_rng_range(rng, 0.1, 1);
        for (int k = 0; k < devices; k++) {
            w->cluster[c].device[k].power_d2d_w *= cp_rng_range(rng, 0.1, 1);
            w->cluster[c].device[k].present = k == 0 || cp_rng_below(rng, 4) > 0;
        }
    }
    cp_world_draw_rates(w, w, 0.5, seed);
    cp_channel_draw(w, &channel, seed, false);
}

static void draw_slots(struct cp_rng *rng, struct cp_cluster_plan *c)
{
    c->order = (enum cp_order)cp_rng_below(rng, 3);
    cp_plan_set_slots(c);
    if (c->order == CP_ORDER_1F1B && cp_rng_below(rng, 2)) { /* any slots that do not increase */
        uint32_t most = (uint32_t)c->micro_batches;
        for (int j = 0; j < c->segments + 2; j++) {
            most = 1 + cp_rng_below(rng, most);
            c->slots[j] = (int)most;
        }
    }
}

static void draw_cluster(struct cp_rng *rng, const struct cp_cluster *cl, const struct cp_world *w,
                         struct cp_cluster_plan *c)
{
    int32_t order[DEVICES], n_present = 0;
    for (int k = 0; k < cl->n_devices; k++) {
        if (cl->device[k].present) {
            order[n_present++] = k;
        }
    }
    *c = (struct cp_cluster_plan){.segments = 1 + (int)cp_rng_below(rng, (uint32_t)n_present),
                                  .micro_batches = 1 + (int)cp_rng_below(rng, 8),
                                  .uplink_share = cp_rng_range(rng, 0.5, 1) / w->n_clusters,
                                  .upload_format = (enum cp_format)cp_rng_below(rng, 3)};
    cp_rng_shuffle(rng, order, (size_t)n_present);
    draw_slots(rng, c);
    c->edge_layers = (int)cp_rng_below(rng, (uint32_t)(w->model.layers - c->segments) + 1);
    for (int j = 0; j <= c->segments; j++) {
        c->link_format[j] = (enum cp_format)cp_rng_below(rng, 3);
    }
    for (int s = 0; s < c->segments; s++) {
        c->device[s] = order[s];
        c->layers[s] = 1;
        c->band_fwd[s] = cp_rng_range(rng, 0.1, 1) / c->segments;
        c->band_bwd[s] = cp_rng_range(rng, 0.1, 1) / c->segments;
    }
    for (int n = c->segments; n < w->model.layers - c->edge_layers; n++) {
        c->layers[cp_rng_below(rng, (uint32_t)c->segments)]++;
    }
    /* half of the power each way, for orders that overlap */
    for (int j = 0; j <= c->segments; j++) {
        const struct cp_device *d = j == 0 ? &cl->cu : &cl->device[c->device[j - 1]];
        double most_w = j == c->segments ? d->power_d2e_w : d->power_d2d_w;
        c->power_fwd_w[j] = cp_rng_range(rng, 0.1, 0.5) * most_w;
        c->power_bwd_w[j] = j > 0 ? cp_rng_range(rng, 0.1, 0.5) * d->power_d2d_w : 0;
    }
    c->power_up_w = cp_rng_range(rng, 0.1, 1) * cl->cu.power_d2e_w;
}

/* The same devices, each for itself: the whole model, or the first layers of it. */
static void make_apart(const struct cp_cluster *cl, const struct cp_world *w,
                       enum cp_plan_mode mode, struct cp_cluster_plan *c)
{
    struct cp_cluster_plan full = {.mode = mode,
                                   .order = CP_ORDER_SEQ,
                                   .segments = c->segments,
                                   .edge_layers = mode == CP_MODE_SPLIT ? w->model.layers / 2 : 0,
                                   .micro_batches = c->micro_batches,
                                   .uplink_share = c->uplink_share};
    for (int s = 0; s < c->segments; s++) {
        full.device[s] = c->device[s];
        full.layers[s] = w->model.layers - full.edge_layers;
        full.power_fwd_w[s + 1] = cl->device[c->device[s]].power_d2e_w;
    }
    for (int j = 0; j < c->segments + 2; j++) {
        full.slots[j] = 1;
    }
    *c = full;
}

static int draw_moves(struct cp_rng *rng, struct cp_world *w, const struct cp_plan *p,
                      struct cp_move *moves)
{
    int n = 0;
    for (int i = 0; i < MOVES; i++) {
        int c = (int)cp_rng_below(rng, (uint32_t)w->n_clusters);
        uint32_t devices = (uint32_t)w->cluster[c].n_devices;
        struct cp_move m = {c, 1, (int)cp_rng_below(rng, devices), (int)cp_rng_below(rng, devices)};
        bool used = false;
        if (cp_rng_below(rng, 4) == 0) {
            *(cp_rng_below(rng, 2) ? &m.from : &m.to) = CP_OWNER_EDGE;
        }
        for (int s = 0; s < p->cluster[c].segments; s++) {
            used = used || p->cluster[c].device[s] == m.from;
        }
        if (!used && m.from != CP_OWNER_EDGE && cp_rng_below(rng, 2)) {
            w->cluster[c].device[m.from].present = false;
        }
        if (m.from != m.to) {
            moves[n++] = m;
        }
    }
    return n;
}

static void assert_forecast(const struct cp_sim_round *r, const struct cp_forecast *f,
                            const struct cp_world *w, const struct cp_plan *p)
{
    double bubbles = 0, stages = 0;
    assert_int_equal(r->n_clusters, f->n_clusters);
    assert_near(r->broadcast_s, f->broadcast_s);
    assert_near(r->latency_s, f->latency_s);
    assert_near(r->energy_j, f->energy_j);
    for (int i = 0; i < r->n_clusters; i++) {
        const struct cp_sim_cluster *c = &r->cluster[i];
        const struct cp_cluster_forecast *want = &f->cluster[i];
        int n = p->cluster[i].segments + (c->modelled ? 0 : 2);
        assert_near(c->step_s, want->step_s);
        assert_near(c->scatter_s, want->scatter_s);
        assert_near(c->gather_s, want->gather_s);
        assert_near(c->upload_s, want->upload_s);
        assert_near(c->round_s, want->round_s);
        assert_near(1 - c->bubble, 1 - want->bubble);
        for (int k = 0; k <= w->cluster[i].n_devices; k++) {
            assert_near(c->energy_j[k], want->energy_j[k]);
        }
        assert_true(c->modelled == (p->cluster[i].mode != CP_MODE_PIPELINE));
        assert_int_equal(c->step.n_stages, c->modelled ? 0 : n);
        bubbles += n * want->bubble;
        stages += n;
    }
    assert_near(1 - r->bubble, 1 - bubbles / stages);
}

static void test_equals_forecast(void **state)
{
    (void)state;
    struct cp_rng rng;
    int orders[3] = {0}, other_slots = 0, moved = 0, apart = 0;
    cp_rng_init(&rng, 5, CP_RNG_TEST, 0, 0);
    for (int i = 0; i < WORLDS; i++) {
        struct cp_world w;
        struct cp_plan p;
        struct cp_move moves[MOVES];
        struct cp_sim_round r;
        struct cp_forecast f;
        draw_world(&rng, &w);
        assert_int_equal(cp_plan_init(&p, w.n_clusters), CP_OK);
        for (int c = 0; c < w.n_clusters; c++) {
            struct cp_cluster_plan *plan = &p.cluster[c], same;
            draw_cluster(&rng, &w.cluster[c], &w, plan);
            orders[plan->order]++;
            same = *plan;
            cp_plan_set_slots(&same);
            other_slots += memcmp(same.slots, plan->slots, sizeof same.slots) != 0;
        }
        if (cp_plan_check(&p, &w)) {
            fail_msg("%s", cp_err_text());
        }
        if (i % 5 == 0) { /* other modes among pipelines, or alone */
            make_apart(&w.cluster[0], &w, i % 10 ? CP_MODE_SPLIT : CP_MODE_FULL, &p.cluster[0]);
            apart++;
        }
        int n_moves = i % 2 ? draw_moves(&rng, &w, &p, moves) : 0;
        moved += n_moves;
        assert_int_equal(cp_sim_round(&p, &w, moves, n_moves, &r), CP_OK);
        assert_int_equal(cp_forecast_make(&p, &w, moves, n_moves, &f), CP_OK);
        assert_forecast(&r, &f, &w, &p);
        cp_forecast_fini(&f);
        cp_sim_round_fini(&r);
        cp_plan_fini(&p);
        cp_world_fini(&w);
    }
    assert_true(orders[0] > 300 && orders[1] > 300 && orders[2] > 300 && other_slots > 100);
    assert_true(moved > 100 && apart == WORLDS / 5);
}

/* --- unhappy paths ----------------------------------------------------------------------- */

static void test_failures_leave_no_trace(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    struct cp_sim_round r = {.n_clusters = 42};
    make_plain(&w, &p);
    cp_err err = CP_E_NOMEM;
    int n = 0;
    while (err) {
        cp_mem_fail_at((uint64_t)++n);
        err = cp_sim_round(&p, &w, NULL, 0, &r);
        cp_mem_fail_at(0);
        assert_true(err == CP_OK || (err == CP_E_NOMEM && r.n_clusters == 42));
        assert_true(err == CP_OK || n <= 2 || strstr(cp_err_text(), "cluster c1: ") != NULL);
    }
    assert_int_equal(n, 7); /* programs, clusters, three lists, their program: each failed once */
    cp_sim_round_fini(&r);

    r.n_clusters = 42;
    p.cluster[0].slots[0] = 1; /* 1 2 2: the plan's checker would refuse it */
    assert_int_equal(cp_sim_round(&p, &w, NULL, 0, &r), CP_E_PLAN);
    assert_non_null(strstr(cp_err_text(), "cluster c1: simulation: deadlock"));
    assert_int_equal(r.n_clusters, 42);
    cp_plan_fini(&p);
    cp_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_equals_forecast),
        cmocka_unit_test(test_failures_leave_no_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
