/* Plans as data: the proof and what it catches, differences, lines, JSON. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "unit/plan/worlds.h"

/* A small valid plan by hand: two clusters of three devices, four layers. */
static void make(struct cp_world *w, struct cp_plan *p, enum cp_order order)
{
    toy_world(w, 2, 3, 4, 1);
    assert_int_equal(cp_plan_init(p, 2), CP_OK);
    for (int c = 0; c < 2; c++) {
        struct cp_cluster_plan *k = &p->cluster[c];
        *k = (struct cp_cluster_plan){.order = order, .segments = 3, .micro_batches = 8};
        const int device[] = {1, 0, 2}, layers[] = {2, 1, 1};
        memcpy(k->device, device, sizeof device);
        memcpy(k->layers, layers, sizeof layers);
        cp_plan_set_slots(k);
        double part = order == CP_ORDER_GPIPE ? 1 : 0.5;
        k->uplink_share = 0.5;
        k->power_up_w = w->cluster[c].cu.power_d2e_w;
        k->power_fwd_w[0] = w->cluster[c].cu.power_d2d_w;
        for (int s = 0; s < 3; s++) {
            const struct cp_device *d = &w->cluster[c].device[device[s]];
            k->band_fwd[s] = k->band_bwd[s] = 1.0 / 3;
            k->power_fwd_w[s + 1] = part * (s == 2 ? d->power_d2e_w : d->power_d2d_w);
            k->power_bwd_w[s + 1] = part * d->power_d2d_w;
        }
    }
    assert_int_equal(cp_plan_check(p, w), CP_OK);
}

#define MUTATIONS(X)                                                                               \
    X(k->segments = 0, "0 segments on 3 devices")                                                  \
    X(k->segments = 4, "4 segments on 3 devices")                                                  \
    X(k->segments = -1, "-1 segments")                                                             \
    X(k->device[1] = 3, "segment 2 is on device 4 of 3")                                           \
    X(k->device[1] = -1, "segment 2 is on device 0 of 3")                                          \
    X(k->device[1] = 2, "d3 is used twice")                                                        \
    X(w.cluster[1].device[0].present = false, "segment 2 is on d1, which is absent")               \
    X(k->layers[0] = 0, "d2 has 0 layers")                                                         \
    X(k->layers[0] = -2, "d2 has -2 layers")                                                       \
    X(k->layers[0] = 3, "the segments and the edge server have 5 layers together, the model")      \
    X(k->layers[0] = 1, "the edge server have 3 layers together, the model has 4")                 \
    X(k->edge_layers = 1, "the edge server have 5 layers together, the model has 4")               \
    X(k->edge_layers = -1, "the edge server has -1 layers; 0 to 4 can be")                         \
    X(k->edge_layers = 5, "the edge server has 5 layers; 0 to 4 can be")                           \
    X(k->link_format[2] = (enum cp_format)3, "link 2 has the format unknown")                      \
    X(k->upload_format = (enum cp_format) - 1, "the format -1 of the upload is unknown")           \
    X(k->mode = CP_MODE_SPLIT, "d1 has 1 layers and d2 2; in split all hold the same")             \
    X(k->micro_batches = 0, "0 micro-batches; 1 to 16 are allowed")                                \
    X(k->micro_batches = 17, "17 micro-batches")                                                   \
    X(k->micro_batches = 3, "slots for 3 micro-batches")                                           \
    X(k->slots[2] = 0, "stage 2 has 0 slots")                                                      \
    X(k->slots[3] = 9, "stage 3 has 9 slots")                                                      \
    X(k->slots[3] = k->slots[2] + 1, "stage 3 has")                                                \
    X(k->order = CP_ORDER_SEQ, "which is not the order seq")                                       \
    X(k->order = (enum cp_order)7, "unknown")                                                      \
    X(k->mode = (enum cp_plan_mode)7, "unknown")                                                   \
    X(k->mode = CP_MODE_FULL, "d2 trains the whole model but has 2 of 4 layers")                   \
    X(w.cluster[1].device[1].mem_bytes = toy_bytes(&TOY, 2, k->slots[1]) - 1,                      \
      "d2 has not enough memory: 2 layers")                                                        \
    X(k->band_fwd[1] = 0.4, "forward band shares add up to 1.0")                                   \
    X(k->band_bwd[1] = 0.4, "backward band shares add up to 1.0")                                  \
    X(k->band_fwd[1] = 0, "D2D link 1 has the forward band share 0")                               \
    X(k->band_bwd[2] = -0.1, "D2D link 2 has the backward band share -0.1")                        \
    X(k->band_fwd[0] = NAN, "forward band share")                                                  \
    X(k->uplink_share = 0.6, "uplink shares of the clusters add up to 1.1")                        \
    X(k->uplink_share = 0, "the uplink share is 0")                                                \
    X(k->uplink_share = NAN, "the uplink share is")                                                \
    X(k->power_up_w *= 1.01, "cu sends the model with")                                            \
    X(k->power_up_w = 0, "cu sends the model with 0 W")                                            \
    X(k->power_fwd_w[0] *= 1.01, "cu sends activations with")                                      \
    X(k->power_fwd_w[2] *= 2.01, "d1 sends activations with")                                      \
    X(k->power_fwd_w[3] *= 2.01, "d3 sends activations with")                                      \
    X(k->power_fwd_w[1] = NAN, "d2 sends activations with")                                        \
    X(k->power_bwd_w[1] = 0, "d2 sends gradients with 0 W")                                        \
    X(k->power_bwd_w[3] = 9e-5, "d3 sends gradients with 9e-05 W")                                 \
    X(p.n_clusters = 1, "the plan has 1 clusters, the world has 2")

static void check_catches_each_mutation(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    int n = 0;
#define X(mutation, text)                                                                          \
    for (int o = CP_ORDER_GPIPE; o <= CP_ORDER_1F1B; o++) {                                        \
        make(&w, &p, (enum cp_order)o);                                                            \
        struct cp_cluster_plan *k = &p.cluster[1];                                                 \
        (void)k;                                                                                   \
        mutation;                                                                                  \
        assert_int_equal(cp_plan_check(&p, &w), CP_E_PLAN);                                        \
        if (!strstr(cp_err_text(), text)) {                                                        \
            fail_msg("'%s' does not have '%s' (%s)", cp_err_text(), text, #mutation);              \
        }                                                                                          \
        assert_true(strstr(cp_err_text(), "c2: ") || strstr(cp_err_text(), "clusters"));           \
        cp_plan_fini(&p);                                                                          \
        cp_world_fini(&w);                                                                         \
        n++;                                                                                       \
    }
    MUTATIONS(X)
#undef X
    assert_int_equal(n, 2 * 45);
}

/* What only overlapping phases forbid, and what only they allow. */
static void check_of_overlap(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    make(&w, &p, CP_ORDER_1F1B);
    p.cluster[1].power_fwd_w[2] *= 1.2; /* 0.6 + 0.5 */
    assert_int_equal(cp_plan_check(&p, &w), CP_E_PLAN);
    assert_non_null(strstr(cp_err_text(), "d1 sends both ways at once"));
    p.cluster[1].power_bwd_w[2] *= 0.8;
    assert_int_equal(cp_plan_check(&p, &w), CP_OK);
    p.cluster[1].power_fwd_w[3] *= 1.2; /* the last device: to the edge server and back */
    assert_int_equal(cp_plan_check(&p, &w), CP_E_PLAN);
    assert_non_null(strstr(cp_err_text(), "d3 sends both ways at once"));
    cp_plan_fini(&p);
    cp_world_fini(&w);
    make(&w, &p, CP_ORDER_1F1B); /* fewer slots than 1f1b has, or more: a decision */
    for (int j = 0; j < 5; j++) {
        p.cluster[0].slots[j] = 5 - j;
        p.cluster[1].slots[j] = 7 - j;
    }
    assert_int_equal(cp_plan_check(&p, &w), CP_OK);
    cp_plan_fini(&p);
    cp_world_fini(&w);
}

static void slots_of_orders(void **state)
{
    (void)state;
    struct cp_cluster_plan c = {.segments = 3, .micro_batches = 4};
    const struct {
        enum cp_order order;
        int slots[5];
        bool overlaps;
    } cases[] = {{CP_ORDER_SEQ, {1, 1, 1, 1, 1}, true},
                 {CP_ORDER_GPIPE, {4, 4, 4, 4, 4}, false},
                 {CP_ORDER_1F1B, {4, 4, 3, 2, 1}, true}};
    for (size_t i = 0; i < 3; i++) {
        c.order = cases[i].order;
        c.micro_batches = 4;
        cp_plan_set_slots(&c);
        assert_memory_equal(c.slots, cases[i].slots, sizeof cases[i].slots);
        assert_int_equal(cp_plan_overlaps(&c), cases[i].overlaps);
        c.micro_batches = 1; /* with one micro-batch all orders are one */
        cp_plan_set_slots(&c);
        assert_false(cp_plan_overlaps(&c));
    }
}

static void blocks_and_stages(void **state)
{
    (void)state;
    const struct cp_cluster_plan c = {.segments = 3, .layers = {2, 1, 3}};
    const int stage[] = {0, 1, 1, 2, 3, 3, 3, 4};
    for (int block = 0; block <= 7; block++) {
        assert_int_equal(cp_plan_stage_of(&c, 6, block), stage[block]);
    }
    assert_int_equal(cp_plan_first_layer(&c, 0), 0);
    assert_int_equal(cp_plan_first_layer(&c, 1), 2);
    assert_int_equal(cp_plan_first_layer(&c, 2), 3);
}

static void difference_of_plans(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan a, b = {0};
    struct cp_move m[8];
    make(&w, &a, CP_ORDER_GPIPE);
    assert_int_equal(cp_plan_copy(&b, &a), CP_OK);
    assert_int_equal(cp_plan_diff(&a, &b, 4, m, 8), 0);
    /* d2 2, d1 1, d3 1 -> d3 1, d2 2, d1 1: blocks 1, 3 and 4 move, block 2 stays on d2. */
    const int device[] = {2, 1, 0}, layers[] = {1, 2, 1};
    memcpy(b.cluster[1].device, device, sizeof device);
    memcpy(b.cluster[1].layers, layers, sizeof layers);
    assert_int_equal(cp_plan_diff(&a, &b, 4, m, 8), 3);
    const struct cp_move want[] = {{1, 1, 1, 2}, {1, 3, 0, 1}, {1, 4, 2, 0}};
    assert_memory_equal(m, want, sizeof want);
    m[1] = (struct cp_move){0};
    assert_int_equal(cp_plan_diff(&a, &b, 4, m, 1), 3); /* counts on, writes one */
    assert_int_equal(m[1].block, 0);
    cp_plan_fini(&a);
    cp_plan_fini(&b);
    cp_world_fini(&w);
}

static void line_of_plan(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    struct cp_str s = {0};
    make(&w, &p, CP_ORDER_1F1B);
    cp_plan_line(&p.cluster[0], &w.cluster[0], &s);
    assert_string_equal(s.p, "c1: cu=emb  d2=1-2  d1=3  d3=4  edge=head  M=8 1f1b");
    cp_str_clear(&s);
    p.cluster[1].mode = CP_MODE_FULL;
    cp_plan_line(&p.cluster[1], &w.cluster[1], &s);
    assert_string_equal(s.p, "c2: d2=all  d1=all  d3=all  M=8 full");
    cp_str_fini(&s);
    cp_plan_fini(&p);
    cp_world_fini(&w);
}

static void json_round_trip(void **state)
{
    (void)state;
    const char *const policies[] = {"dssda", "greedy", "random", "fedavg"};
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct cp_world w;
        struct cp_plan p, q;
        struct cp_str text = {0}, again = {0};
        toy_world(&w, 1 + (int)(seed % 3), 1 + (int)(seed % 7), 6, seed);
        for (int c = 0; c < w.n_clusters; c++) {
            for (int k = 0; k < w.cluster[c].n_devices; k++) {
                w.cluster[c].device[k].mem_bytes = (size_t)2 << 30;
            }
        }
        toy_plan(&p, &w, policies[seed % 4]);
        p.cluster[0].edge_layers = (int)(seed % 3); /* whether it holds is not asked here */
        p.cluster[0].link_format[1] = (enum cp_format)(seed % 3);
        p.cluster[0].upload_format = (enum cp_format)((seed + 1) % 3);
        p.gen = seed == 1 ? UINT32_MAX : (uint32_t)seed;
        assert_int_equal(cp_plan_to_json(&p, seed % 2 ? &w : NULL, &text), CP_OK);
        assert_int_equal(cp_plan_from_json(text.p, &q), CP_OK);
        assert_int_equal(q.n_clusters, p.n_clusters);
        assert_int_equal(q.gen, p.gen);
        assert_string_equal(q.policy, p.policy);
        assert_memory_equal(q.cluster, p.cluster, (size_t)p.n_clusters * sizeof *p.cluster);
        assert_int_equal(cp_plan_to_json(&q, seed % 2 ? &w : NULL, &again), CP_OK);
        assert_string_equal(text.p, again.p);
        cp_str_fini(&text);
        cp_str_fini(&again);
        cp_plan_fini(&p);
        cp_plan_fini(&q);
        cp_world_fini(&w);
    }
}

/* text with the first `from` replaced; the caller frees. */
static void replace(const char *text, const char *from, const char *to, struct cp_str *out)
{
    const char *at = strstr(text, from);
    assert_non_null(at);
    cp_str_clear(out);
    cp_str_add(out, text, (size_t)(at - text));
    cp_str_puts(out, to);
    cp_str_puts(out, at + strlen(from));
}

static void json_refuses(void **state)
{
    (void)state;
    const struct {
        const char *from, *to, *text;
    } cases[] = {
        {"\"gen\": 0", "\"gen\": -1", "'gen' must be a whole number from 0"},
        {"\"gen\": 0", "\"gen\": 4294967296", "'gen' must be a whole number from 0 to 4294967295"},
        {"\"gen\": 0", "\"gen\": 0.5", "'gen'"},
        {"\"gen\": 0", "\"gen\": 0, \"gen\": 1", "duplicate"},
        {"\"policy\": \"\"", "\"policy\": \"a-name-longer-than-any-policy-has\"", "'policy'"},
        {"\"policy\": \"\"", "\"policy\": 3", "'policy'"},
        {"\"clusters\"", "\"cluster\"", "'clusters' must be an array"},
        {"\"pipeline\"", "\"tree\"", "clusters[0]: 'mode'"},
        {"\"gpipe\"", "\"pipe\"", "clusters[0]: 'order'"},
        {"\"micro_batches\": 8", "\"micro_batches\": 0", "clusters[0]: 'micro_batches'"},
        {"\"micro_batches\": 8", "\"micro_batches\": 1025", "'micro_batches'"},
        {"\"micro_batches\": 8", "\"micro_batches\": 1e30", "'micro_batches'"},
        {"\"uplink_share\": 0.5", "\"uplink_share\": \"half\"", "'uplink_share' must be a number"},
        {"\"uplink_share\": 0.5", "\"uplink_share\": -0.5", "'uplink_share' must be a number"},
        {"\"uplink_share\": 0.5", "\"uplink_share\": NaN", "line"},
        {"\"uplink_share\": 0.5", "\"uplink_share\": 1e999", "line"},
        {"\"segments\": [", "\"segments\": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,", "'segments'"},
        {"\"segments\": [", "\"segments\": [1,", "'devices' must be an array of 4"},
        {"\"devices\": [", "\"devices\": [16,", "'devices' must be an array of 3"},
        {"\"slots\": [", "\"slots\": 5, \"x\": [", "'slots' must be an array of 5"},
        {"\"power_bwd_w\": [", "\"power_bwd_w\": [0.1,", "'power_bwd_w' must be an array of 3"},
        {"\"edge_layers\": 0", "\"edge_layers\": -1", "'edge_layers' must be a whole number"},
        {"\"link_format\": [", "\"link_format\": [\"fp32\",",
         "'link_format' must be an array of 4"},
        {"\"fp32\",", "\"fp31\",", "'link_format' must name fp32, bf16 or int8"},
        {"\"upload_format\": \"fp32\"", "\"upload_format\": 3", "'upload_format' must be"},
        {"{", "", "line 2"},
        {"{", "[{", "line"},
    };
    struct cp_world w;
    struct cp_plan p, q;
    struct cp_str text = {0}, broken = {0};
    make(&w, &p, CP_ORDER_GPIPE);
    assert_int_equal(cp_plan_to_json(&p, NULL, &text), CP_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        replace(text.p, cases[i].from, cases[i].to, &broken);
        assert_int_equal(cp_plan_from_json(broken.p, &q), CP_E_DATA);
        if (!strstr(cp_err_text(), cases[i].text)) {
            fail_msg("case %zu: '%s' does not have '%s'", i, cp_err_text(), cases[i].text);
        }
    }
    assert_int_equal(cp_plan_from_json("", &q), CP_E_DATA);
    assert_int_equal(cp_plan_from_json("{\"clusters\": []}", &q), CP_E_DATA);
    p.cluster[1].power_bwd_w[2] = NAN;
    cp_str_clear(&text);
    assert_int_equal(cp_plan_to_json(&p, NULL, &text), CP_E_NONFINITE);
    assert_int_equal(text.len, 0);
    cp_str_fini(&text);
    cp_str_fini(&broken);
    cp_plan_fini(&p);
    cp_world_fini(&w);
}

static void sizes_of_plans(void **state)
{
    (void)state;
    struct cp_plan p = {.gen = 9};
    assert_int_equal(cp_plan_init(&p, 0), CP_E_PLAN);
    assert_int_equal(cp_plan_init(&p, -3), CP_E_PLAN);
    assert_int_equal(cp_plan_init(&p, CP_CLUSTERS_MAX + 1), CP_E_PLAN);
    assert_int_equal(p.gen, 9);
    cp_mem_fail_at(1);
    assert_int_equal(cp_plan_init(&p, 2), CP_E_NOMEM);
    assert_int_equal(p.gen, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_catches_each_mutation),
        cmocka_unit_test(check_of_overlap),
        cmocka_unit_test(slots_of_orders),
        cmocka_unit_test(blocks_and_stages),
        cmocka_unit_test(difference_of_plans),
        cmocka_unit_test(line_of_plan),
        cmocka_unit_test(json_round_trip),
        cmocka_unit_test(json_refuses),
        cmocka_unit_test(sizes_of_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
