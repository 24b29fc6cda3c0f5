/* One suite for every row of CP_POLICIES, and what each of them promises by itself. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "plan/draft.h"
#include "unit/plan/situations.h"

/* Memory again, by hand, so that the proof itself is not what proves it. */
static void assert_memory_holds(const struct cp_plan *p, const struct cp_world *w)
{
    for (int c = 0; c < p->n_clusters; c++) {
        const struct cp_cluster_plan *k = &p->cluster[c];
        for (int s = 0; s < k->segments; s++) {
            const struct cp_device *d = &w->cluster[c].device[k->device[s]];
            assert_true(d->present);
            size_t need = k->mode == CP_MODE_FULL ? w->model.full_bytes_micro
                          : k->mode == CP_MODE_SPLIT
                              ? toy_client_bytes(&TOY, k->layers[s])
                              : toy_bytes(&TOY, k->layers[s], k->slots[s + 1]);
            assert_true(need <= d->mem_bytes);
        }
    }
}

/* Whether some cluster cannot hold the model at all, whatever the policy. */
static bool impossible(const struct cp_world *w)
{
    static struct cp_room room;
    for (int c = 0; c < w->n_clusters; c++) {
        int sum = 0;
        cp_room_init(&room, w, c);
        for (int k = 0; k < w->cluster[c].n_devices; k++) {
            sum += w->cluster[c].device[k].present ? cp_room_layers(&room, k, 1) : 0;
        }
        if (sum < w->model.layers) {
            return true;
        }
    }
    return false;
}

/* Policies that have a plan wherever there is one; the others have rules of their own. */
static bool refuses_only_the_impossible(const char *name)
{
    const char *const others[] = {"static",   "gpipe-uniform", "fedavg", "best-single",
                                  "splitfed", "dssda-uniform", "dssda-x"};
    bool found = false;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        found |= strcmp(name, others[i]) == 0;
    }
    return !found;
}

/* Whether a policy is asked in a situation: the slow ones only in small ones, or in some. */
static bool asked(const struct cp_policy *policy, const struct situation *s, uint64_t seed)
{
    if (strcmp(policy->name, "exhaustive") == 0) {
        return s->w.cluster[0].n_devices <= 3 && s->w.model.layers <= 4 && !s->a.choose_micro;
    }
    bool slow = strcmp(policy->name, "dssda-x") == 0 || strcmp(policy->name, "myopic") == 0;
    return !slow || seed % 4 == 0;
}

static void valid_or_named_and_deterministic(void **state)
{
    (void)state;
    for (int i = 0; CP_POLICIES[i]; i++) {
        const struct cp_policy *policy = CP_POLICIES[i];
        int made = 0, refused = 0;
        assert_ptr_equal(cp_policy_find(policy->name), policy);
        assert_true(strlen(policy->help) > 10);
        for (uint64_t seed = 1; seed <= 200; seed++) {
            struct situation s;
            struct cp_plan p, again;
            struct cp_decision d, e;
            draw_situation(&s, seed);
            if (!asked(policy, &s, seed)) {
                free_situation(&s);
                continue;
            }
            cp_err err = cp_policy_decide(policy, &s.a, &p, &d);
            if (refuses_only_the_impossible(policy->name)) {
                assert_int_equal(err != CP_OK, impossible(&s.w));
            } else if (strcmp(policy->name, "dssda-x") == 0 && err) {
                assert_true(impossible(&s.w)); /* the edge server may make it possible */
            }
            if (err) {
                char first[256];
                assert_int_equal(err, CP_E_PLAN);
                snprintf(first, sizeof first, "%s", cp_err_text());
                assert_true(strstr(first, "c1: ") || strstr(first, "c2: ") ||
                            strstr(first, "c3: "));
                assert_true(strstr(first, "iB") || strstr(first, " B") || strstr(first, "absent") ||
                            strstr(first, "present"));
                assert_int_equal(cp_policy_decide(policy, &s.a, &again, &e), CP_E_PLAN);
                assert_string_equal(first, cp_err_text());
                refused++;
                free_situation(&s);
                continue;
            }
            made++;
            assert_int_equal(cp_plan_check(&p, &s.w), CP_OK);
            assert_memory_holds(&p, &s.w);
            assert_int_equal(p.gen, 0);
            assert_string_equal(p.policy, policy->name);
            assert_true(isfinite(d.objective) && d.objective > 0 && d.solve_ms >= 0);
            if (!s.a.choose_micro) {
                for (int c = 0; c < p.n_clusters; c++) {
                    assert_int_equal(p.cluster[c].micro_batches, s.w.micro_ref);
                }
            }
            assert_int_equal(cp_policy_decide(policy, &s.a, &again, &e), CP_OK);
            assert_memory_equal(p.cluster, again.cluster, (size_t)p.n_clusters * sizeof *p.cluster);
            assert_true(d.objective == e.objective);
            assert_string_equal(d.binding, e.binding);
            cp_plan_fini(&p);
            cp_plan_fini(&again);
            free_situation(&s);
        }
        print_message("%s: %d plans, %d named refusals\n", policy->name, made, refused);
        assert_true(made > 20 && refused > 2);
    }
}

/* Devices renamed by a permutation: to[k] of the new world is device k of the old. */
static void permute_devices(struct cp_world *w, struct cp_queues *q, const int *to)
{
    for (int c = 0; c < w->n_clusters; c++) {
        struct cp_cluster old = w->cluster[c], *cl = &w->cluster[c];
        double energy[CP_DEVICES_MAX + 1];
        memcpy(energy, q->energy[c], sizeof energy);
        for (int a = 0; a <= old.n_devices; a++) {
            int na = a == 0 ? 0 : to[a - 1] + 1;
            if (a > 0) {
                cl->device[na - 1] = old.device[a - 1];
            }
            cl->gain_d2e[na] = old.gain_d2e[a];
            q->energy[c][na] = energy[a];
            for (int b = 0; b <= old.n_devices; b++) {
                cl->gain_d2d[na][b == 0 ? 0 : to[b - 1] + 1] = old.gain_d2d[a][b];
            }
        }
    }
}

static void permuting_labels_permutes_the_plan(void **state)
{
    (void)state;
    double worst = 0;
    const char *const names[] = {"greedy",      "fedavg",   "pipeedge",
                                 "best-single", "splitfed", "dssda"}; /* others use the indices */
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool searches = strcmp(names[i], "dssda") == 0; /* and may end beside itself, as near */
        for (uint64_t seed = 1; seed <= 40; seed++) {
            struct cp_world w;
            struct cp_queues q;
            struct cp_plan p, permuted;
            struct cp_decision d, e;
            const int to[] = {2, 0, 3, 1};
            toy_world(&w, 2, 4, 6, seed);
            toy_queues(&q, &w, 10, seed);
            struct cp_policy_args a = {
                .world = &w, .queues = &q, .choose_order = true, .choose_micro = seed % 2};
            assert_int_equal(cp_policy_decide(cp_policy_find(names[i]), &a, &p, &d), CP_OK);
            permute_devices(&w, &q, to);
            struct cp_cluster swap = w.cluster[0]; /* and the clusters change places */
            w.cluster[0] = w.cluster[1];
            w.cluster[1] = swap;
            for (int node = 0; node <= 4; node++) {
                double z = q.energy[0][node];
                q.energy[0][node] = q.energy[1][node];
                q.energy[1][node] = z;
            }
            assert_int_equal(cp_policy_decide(cp_policy_find(names[i]), &a, &permuted, &e), CP_OK);
            worst = searches ? fmax(worst, fabs(d.objective / e.objective - 1)) : worst;
            assert_true(near_rel(d.objective, e.objective, searches ? 1e-3 : 1e-12));
            for (int c = 0; c < 2 && !searches; c++) {
                const struct cp_cluster_plan *x = &p.cluster[c], *y = &permuted.cluster[1 - c];
                assert_int_equal(x->segments, y->segments);
                assert_int_equal(x->micro_batches, y->micro_batches);
                assert_int_equal(x->order, y->order);
                for (int s = 0; s < x->segments; s++) {
                    if (x->mode == CP_MODE_PIPELINE || x->segments == 1) { /* else index order */
                        assert_int_equal(to[x->device[s]], y->device[s]);
                    }
                    assert_int_equal(x->layers[s], y->layers[s]);
                }
            }
            cp_plan_fini(&p);
            cp_plan_fini(&permuted);
            cp_queues_fini(&q);
            cp_world_fini(&w);
        }
    }
}

static void memory_forces_the_order(void **state)
{
    (void)state;
    const char *const names[] = {"dssda", "gpipe-uniform", "greedy"};
    for (size_t i = 0; i < 3; i++) {
        const struct {
            int slots;
            enum cp_order order;
        } cases[] = {{8, CP_ORDER_GPIPE}, {3, CP_ORDER_1F1B}, {1, CP_ORDER_SEQ}};
        for (size_t j = 0; j < 3; j++) { /* two devices with two layers each, just so */
            struct cp_world w;
            struct cp_plan p;
            struct cp_decision d;
            toy_world(&w, 1, 2, 4, 6);
            for (int k = 0; k < 2; k++) {
                w.cluster[0].device[k].mem_bytes = toy_bytes(&TOY, 2, cases[j].slots);
            }
            struct cp_policy_args a = {.world = &w, .order = CP_ORDER_GPIPE};
            assert_int_equal(cp_policy_decide(cp_policy_find(names[i]), &a, &p, &d), CP_OK);
            assert_int_equal(p.cluster[0].order, cases[j].order);
            assert_int_equal(p.cluster[0].micro_batches, 8);
            assert_int_equal(strstr(d.binding, "memory: c1 runs") != NULL, j > 0);
            cp_plan_fini(&p);
            cp_world_fini(&w);
        }
    }
}

/* With more layers than devices need, and more devices than layers, the rest stands by. */
static void surplus_devices_stand_by(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    toy_world(&w, 1, 6, 2, 6);
    const char *const names[] = {"dssda", "gpipe-uniform", "greedy", "random"};
    for (size_t i = 0; i < 4; i++) {
        toy_plan(&p, &w, names[i]);
        assert_in_range(p.cluster[0].segments, 1, 2);
        cp_plan_fini(&p);
    }
    cp_world_fini(&w);
}

/* The draws of the random policy belong to seed, round and cluster. */
static void random_draws_anew(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p[3];
    struct cp_decision d;
    toy_world(&w, 2, 4, 8, 6);
    w.cluster[1] = w.cluster[0];
    struct cp_policy_args a = {.world = &w, .order = CP_ORDER_1F1B, .seed = 1};
    const struct cp_policy *policy = cp_policy_find("random");
    assert_int_equal(cp_policy_decide(policy, &a, &p[0], &d), CP_OK);
    w.round++;
    assert_int_equal(cp_policy_decide(policy, &a, &p[1], &d), CP_OK);
    a.seed = 2;
    assert_int_equal(cp_policy_decide(policy, &a, &p[2], &d), CP_OK);
    const struct cp_cluster_plan *first = &p[0].cluster[0];
    assert_memory_not_equal(first, &p[0].cluster[1], sizeof *first);
    assert_memory_not_equal(first, &p[1].cluster[0], sizeof *first);
    assert_memory_not_equal(&p[1].cluster[0], &p[2].cluster[0], sizeof *first);
    for (int i = 0; i < 3; i++) {
        cp_plan_fini(&p[i]);
    }
    cp_world_fini(&w);
}

static void refusal(const struct cp_policy_args *a, const char *policy, cp_err code,
                    const char *text)
{
    struct cp_plan p = {.gen = 7};
    struct cp_decision d = {.objective = 3};
    assert_int_equal(cp_policy_decide(cp_policy_find(policy), a, &p, &d), code);
    if (!strstr(cp_err_text(), text)) {
        fail_msg("%s: '%s' does not have '%s'", policy, cp_err_text(), text);
    }
    assert_true(p.gen == 7 && !p.cluster && d.objective == 3);
}

static void refusals_say_why(void **state)
{
    (void)state;
    struct cp_world w;
    toy_world(&w, 1, 3, 4, 6);
    struct cp_device *d = w.cluster[0].device;
    struct cp_policy_args a = {.world = &w, .choose_order = true};
    d[0].mem_bytes = d[2].mem_bytes = (size_t)20 << 20;
    d[1].mem_bytes = (size_t)40 << 20;
    refusal(&a, "dssda", CP_E_PLAN,
            "c1: no way to place 4 layers on 3 devices: one layer needs 113.0 MiB, the largest "
            "device d2 has 40.0 MiB");
    refusal(&a, "greedy", CP_E_PLAN, "one layer needs 113.0 MiB, the largest device d2 has 40.0");
    refusal(&a, "random", CP_E_PLAN, "one layer needs 113.0 MiB, the largest device d2 has 40.0");
    refusal(&a, "gpipe-uniform", CP_E_PLAN,
            "c1: 2 layers do not fit into d1: with one micro-batch in flight they need 220.0 MiB, "
            "it has 20.0 MiB");
    refusal(&a, "fedavg", CP_E_PLAN, "c1: d1 cannot train the whole model: it needs");
    d[1].mem_bytes = toy_bytes(&TOY, 3, 1);
    refusal(&a, "dssda", CP_E_PLAN,
            "they hold 3 together; 4 layers need 434.0 MiB, the largest device d2 has 327.0 MiB");
    d[0].present = d[1].present = d[2].present = false;
    for (int i = 0; CP_POLICIES[i]; i++) {
        if (strcmp(CP_POLICIES[i]->name, "static") != 0) {
            refusal(&a, CP_POLICIES[i]->name, CP_E_PLAN, "c1: none of its 3 devices is present");
        }
    }
    d[0].present = d[1].present = d[2].present = true;
    d[1].rate_flops = NAN;
    refusal(&a, "greedy", CP_E_NONFINITE, "c1.d2: the compute rate");
    d[1].rate_flops = 1e10;
    d[0].mem_bytes = d[1].mem_bytes = d[2].mem_bytes = (size_t)1 << 40;
    for (int i = 0; i <= 3; i++) { /* a link that carries nothing in any time */
        w.cluster[0].gain_d2e[i] = 1e-320;
    }
    refusal(&a, "dssda", CP_E_PLAN, "would ever end");
    refusal(&a, "greedy", CP_E_PLAN, "would never end");
    cp_world_fini(&w);
}

static void queues_are_checked(void **state)
{
    (void)state;
    struct cp_world w, other;
    struct cp_queues q;
    toy_world(&w, 2, 3, 4, 6);
    toy_world(&other, 1, 3, 4, 6);
    assert_int_equal(cp_queues_init(&q, &other, 10), CP_OK);
    struct cp_policy_args a = {.world = &w, .queues = &q};
    refusal(&a, "dssda", CP_E_PLAN, "queues are those of 1 clusters");
    a.world = &other;
    q.energy[0][2] = NAN;
    refusal(&a, "dssda", CP_E_NONFINITE, "virtual queue");
    q.energy[0][2] = -1;
    refusal(&a, "dssda", CP_E_NONFINITE, "virtual queue");
    cp_queues_fini(&q);
    cp_world_fini(&w);
    cp_world_fini(&other);
}

static void static_cuts(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p;
    struct cp_decision d;
    toy_world(&w, 2, 3, 4, 6);
    int cuts[2][CP_DEVICES_MAX] = {{2, 0, 2}, {1, 3}};
    struct cp_policy_args a = {.world = &w,
                               .order = CP_ORDER_1F1B,
                               .n_cuts = 2,
                               .cuts = (const int(*)[CP_DEVICES_MAX])cuts};
    assert_int_equal(cp_policy_decide(cp_policy_find("static"), &a, &p, &d), CP_OK);
    assert_int_equal(p.cluster[0].segments, 2);
    assert_int_equal(p.cluster[0].device[1], 2);
    assert_int_equal(p.cluster[1].layers[1], 3);
    assert_int_equal(p.cluster[1].order, CP_ORDER_1F1B);
    cp_plan_fini(&p);
    cuts[1][1] = 2;
    refusal(&a, "static", CP_E_CONFIG, "c2: the cuts have 3 layers together, the model has 4");
    cuts[1][1] = -1;
    refusal(&a, "static", CP_E_CONFIG, "c2: -1 layers on device 2");
    cuts[1][1] = 0;
    cuts[1][3] = 3;
    refusal(&a, "static", CP_E_CONFIG, "c2: layers for device 4, but it has only 3");
    cuts[1][3] = 0;
    cuts[1][0] = 0;
    refusal(&a, "static", CP_E_CONFIG, "c2: the cuts have 0 layers together");
    w.cluster[0].device[2].present = false;
    refusal(&a, "static", CP_E_PLAN, "c1: d3 should hold 2 layers but is absent");
    a.n_cuts = 1;
    refusal(&a, "static", CP_E_CONFIG, "plan.cuts has 1 clusters, the world has 2");
    a.cuts = NULL;
    refusal(&a, "static", CP_E_CONFIG, "plan.cuts has 0 clusters");
    assert_null(cp_policy_find("nobody"));
    cp_world_fini(&w);
}

/* Free to choose, a fixed cut gets the order with the least J; no order is always the best. */
static void static_chooses_its_order(void **state)
{
    (void)state;
    int wins[3] = {0};
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct cp_world w;
        struct cp_plan p;
        struct cp_decision d;
        toy_world(&w, 1, 2, 4, seed);
        int cuts[1][CP_DEVICES_MAX] = {{seed % 2 ? 4 : 2, seed % 2 ? 0 : 2}};
        struct cp_policy_args a = {
            .world = &w, .n_cuts = 1, .cuts = (const int(*)[CP_DEVICES_MAX])cuts};
        double best = INFINITY;
        for (int order = CP_ORDER_SEQ; order <= CP_ORDER_1F1B; order++) {
            a.order = (enum cp_order)order;
            assert_int_equal(cp_policy_decide(cp_policy_find("static"), &a, &p, &d), CP_OK);
            best = fmin(best, d.objective);
            cp_plan_fini(&p);
        }
        a.choose_order = true;
        assert_int_equal(cp_policy_decide(cp_policy_find("static"), &a, &p, &d), CP_OK);
        assert_true(d.objective == best);
        wins[p.cluster[0].order]++;
        cp_plan_fini(&p);
        cp_world_fini(&w);
    }
    assert_true(wins[CP_ORDER_SEQ] == 0 && wins[CP_ORDER_GPIPE] > 2 && wins[CP_ORDER_1F1B] > 2);
}

/* What binds goes into JSON, which takes whole characters only: long names of clusters are cut
 * between two of them, wherever the room ends. */
static void what_binds_is_cut_between_characters(void **state)
{
    static const char *const CHARACTERS[] = {"\xc3\xbc", "\xe6\xbc\xa2", "\xf0\x9d\x84\x9e"};
    (void)state;
    for (size_t bytes = 2; bytes <= 4; bytes++) {
        for (size_t before = 0; before < 4; before++) {
            struct cp_decision d = {0};
            char name[256] = "abc";
            for (size_t n = before; n + bytes < sizeof name; n += bytes) {
                strcpy(name + n, CHARACTERS[bytes - 2]);
            }
            cp_draft_note(&d, "%s", name);
            size_t n = strlen(d.binding);
            assert_memory_equal(d.binding, name, n);
            assert_int_equal((n - before) % bytes, 0);
            assert_true(n + bytes >= sizeof d.binding);
            cp_draft_note(&d, "%s", name); /* there is no room left for a whole one */
            assert_true(strlen(d.binding) <= n + 2);
        }
    }
}

/* With M given per cluster every policy decides as in a world of which it is the reference: order,
 * powers and memory are those of that M, not of M_ref. */
static void a_given_m_is_what_is_decided_for(void **state)
{
    (void)state;
    int made = 0, fallbacks = 0;
    for (int i = 0; CP_POLICIES[i]; i++) {
        for (uint64_t seed = 1; seed <= 40; seed++) {
            struct situation s;
            draw_situation(&s, seed);
            s.a.choose_micro = false;
            if (!asked(CP_POLICIES[i], &s, seed)) {
                free_situation(&s);
                continue;
            }
            struct cp_policy_args given = s.a;
            int micro[3] = {1 + (int)(seed % 16), 1 + (int)(seed % 16), 1 + (int)(seed % 16)};
            struct cp_plan p, q;
            struct cp_decision d, e;
            given.micro = micro;
            given.queues = s.a.queues = NULL; /* the price of M knows M_ref */
            cp_err err = cp_policy_decide(CP_POLICIES[i], &given, &p, &d);
            s.w.micro_ref = micro[0];
            assert_int_equal(cp_policy_decide(CP_POLICIES[i], &s.a, &q, &e), err);
            if (!err) {
                assert_int_equal(p.cluster[0].micro_batches, micro[0]);
                assert_memory_equal(p.cluster, q.cluster, (size_t)p.n_clusters * sizeof *p.cluster);
                assert_string_equal(d.binding, e.binding);
                made++;
                fallbacks += strstr(d.binding, "does not fit") != NULL;
                cp_plan_fini(&p);
                cp_plan_fini(&q);
            }
            free_situation(&s);
        }
    }
    assert_true(made > 60 && fallbacks > 5);
}

/* Each cluster has its own M; one that cannot be is refused before anything is computed with it. */
static void a_given_m_belongs_to_its_cluster(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_plan p, again;
    struct cp_decision d;
    toy_world(&w, 2, 3, 4, 6);
    int cuts[2][CP_DEVICES_MAX] = {{2, 2}, {4}}, micro[2];
    struct cp_policy_args a = {.world = &w,
                               .order = CP_ORDER_1F1B,
                               .micro = micro,
                               .n_cuts = 2,
                               .cuts = (const int(*)[CP_DEVICES_MAX])cuts};
    for (int i = 0; CP_POLICIES[i]; i++) {
        micro[0] = micro[1] = w.micro_ref;
        assert_int_equal(cp_policy_decide(CP_POLICIES[i], &a, &p, &d), CP_OK);
        a.incumbent = &p; /* of another M it is no plan for this round */
        micro[0] = 3;
        micro[1] = 11;
        assert_int_equal(cp_policy_decide(CP_POLICIES[i], &a, &again, &d), CP_OK);
        assert_int_equal(again.cluster[0].micro_batches, 3);
        assert_int_equal(again.cluster[1].micro_batches, 11);
        a.incumbent = NULL;
        cp_plan_fini(&again);
        cp_plan_fini(&p);
        micro[1] = 0;
        refusal(&a, CP_POLICIES[i]->name, CP_E_PLAN, "c2: 0 micro-batches are asked for; 1 to 16");
        micro[1] = w.micro_max + 1;
        refusal(&a, CP_POLICIES[i]->name, CP_E_PLAN, "c2: 17 micro-batches are asked for");
    }
    cp_world_fini(&w);
}

/* Every allocation of a decision fails once: E_NOMEM, nothing written, nothing left behind. */
static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct cp_world w;
    toy_world(&w, 2, 3, 4, 6);
    int cuts[2][CP_DEVICES_MAX] = {{2, 1, 1}, {4}};
    for (int i = 0; CP_POLICIES[i]; i++) {
        struct cp_policy_args a = {.world = &w,
                                   .order = CP_ORDER_1F1B,
                                   .n_cuts = 2,
                                   .cuts = (const int(*)[CP_DEVICES_MAX])cuts};
        for (int k = 0; k < 6; k++) {
            w.cluster[k / 3].device[k % 3].mem_bytes = (size_t)4 << 30;
        }
        uint64_t n = 1;
        for (;; n += 1 + n / 40) { /* of the long searches not each one */
            struct cp_plan p = {.gen = 7};
            struct cp_decision d;
            cp_mem_fail_at(n);
            cp_err err = cp_policy_decide(CP_POLICIES[i], &a, &p, &d);
            cp_mem_fail_at(0);
            if (err == CP_OK) {
                cp_plan_fini(&p);
                break;
            }
            assert_int_equal(err, CP_E_NOMEM);
            assert_int_equal(p.gen, 7);
            assert_true(n < 10000);
        }
        assert_true(n > 2);
    }
    cp_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_or_named_and_deterministic),
        cmocka_unit_test(permuting_labels_permutes_the_plan),
        cmocka_unit_test(memory_forces_the_order),
        cmocka_unit_test(surplus_devices_stand_by),
        cmocka_unit_test(random_draws_anew),
        cmocka_unit_test(refusals_say_why),
        cmocka_unit_test(queues_are_checked),
        cmocka_unit_test(static_cuts),
        cmocka_unit_test(static_chooses_its_order),
        cmocka_unit_test(a_given_m_is_what_is_decided_for),
        cmocka_unit_test(a_given_m_belongs_to_its_cluster),
        cmocka_unit_test(what_binds_is_cut_between_characters),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
