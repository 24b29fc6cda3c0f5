/* Recorded worlds: what a trace says, until when, and what it may not say. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "world/radio.h"
#include "world/trace.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define HEAD "round,cluster,node,quantity,value\n"

/* Two clusters, c1 and c2, of d1, d2, d3. */
static void make(struct cp_world *w)
{
    const struct cp_channel ch = {.fading = CP_FADING_STATIC, .clamp = 0.1};
    assert_int_equal(cp_world_draw_default(2, 3, 5, w), CP_OK);
    cp_channel_draw(w, &ch, 5, true);
}

static struct cp_world_trace *parse(const struct cp_world *w, const char *text)
{
    struct cp_world_trace *t = NULL;
    if (cp_world_trace_parse("t.csv", text, strlen(text), w, &t) != CP_OK) {
        fail_msg("%s", cp_err_text());
    }
    return t;
}

/* The world of a round, counted from 1 as in the file. */
static void at(const struct cp_world_trace *t, enum cp_world_trace_end end,
               const struct cp_world *base, int32_t round, struct cp_world *w)
{
    assert_int_equal(cp_world_copy(w, base), CP_OK);
    w->round = round - 1;
    assert_int_equal(cp_world_trace_apply(t, end, base, w), CP_OK);
}

static void every_quantity(void **state)
{
    (void)state;
    struct cp_world base, w = {0};
    make(&base);
    struct cp_world_trace *t = parse(&base, "\xef\xbb\xbf# recorded at home\r\n"
                                            "round,cluster,node,quantity,value\r\n"
                                            "\r\n"
                                            "1,c1,d2/cu,gain_d2d,2.5e-9\r\n"
                                            " 1 ,c1, d3/d1 ,gain_d2d,\t3e-8\r\n"
                                            "1,c2,cu,gain_d2e,1e-10\n"
                                            "1,c2,d3,gain_d2e,2e-10\n"
                                            "1,c1,d1,rate_flops,5e9\n"
                                            "1,c1,cu,rate_factor,0.5\n"
                                            "# the phone leaves\n"
                                            "1,c2,d2,present,0\n"
                                            "1,c2,d1,harvest_w,3.5\n"
                                            "1,c2,,arrivals,120");
    assert_int_equal(cp_world_trace_rounds(t), 1);
    at(t, CP_WORLD_TRACE_HOLD, &base, 1, &w);
    const struct cp_cluster *a = &w.cluster[0], *b = &w.cluster[1];
    assert_true(a->gain_d2d[0][2] == 2.5e-9 && a->gain_d2d[2][0] == 2.5e-9);
    assert_true(a->gain_d2d[1][3] == 3e-8 && a->gain_d2d[3][1] == 3e-8);
    assert_true(b->gain_d2e[0] == 1e-10 && b->gain_d2e[3] == 2e-10);
    assert_true(a->device[0].rate_flops == 5e9);
    assert_true(a->cu.rate_flops == base.cluster[0].cu.rate_flops * 0.5);
    assert_true(!b->device[1].present && b->device[1].absence == CP_ABSENCE_LEFT);
    assert_true(b->device[0].harvest_w == 3.5 && b->arrivals == 120);
    /* Taken back, what is left is the model's world, bit for bit. */
    struct cp_cluster *x = &w.cluster[0], *y = &w.cluster[1];
    const struct cp_cluster *p = &base.cluster[0], *q = &base.cluster[1];
    x->gain_d2d[0][2] = x->gain_d2d[2][0] = p->gain_d2d[0][2];
    x->gain_d2d[1][3] = x->gain_d2d[3][1] = p->gain_d2d[1][3];
    x->device[0].rate_flops = p->device[0].rate_flops;
    x->cu.rate_flops = p->cu.rate_flops;
    y->gain_d2e[0] = q->gain_d2e[0];
    y->gain_d2e[3] = q->gain_d2e[3];
    y->device[1].present = true;
    y->device[0].harvest_w = y->arrivals = 0;
    assert_memory_equal(w.cluster, base.cluster, 2 * sizeof *w.cluster);
    cp_world_trace_free(t);
    cp_world_fini(&w);
    cp_world_fini(&base);
}

/* Measured figures: without rounds, links by their rates. */
static void figures_hold_always(void **state)
{
    (void)state;
    struct cp_world base, w = {0};
    make(&base);
    struct cp_world_trace *t = parse(&base, "cluster, node ,quantity,value\n"
                                            "c1,d1/cu,rate_d2d_bps,3e7\n"
                                            "c1,d2/d3,rate_d2d_bps,1\n"
                                            "c2,d3,rate_d2e_bps,2e6\n"
                                            "c2,cu,rate_d2e_bps,1e13\n"
                                            "c1,d2,energy_j_flop,3e-11\n"
                                            "c1,d2,mem_bytes,123456789\n"
                                            "c1,d2,rate_flops,7e9\n");
    assert_int_equal(cp_world_trace_rounds(t), 1);
    for (int32_t round = 1; round <= 9; round += 8) {
        at(t, CP_WORLD_TRACE_HOLD, &base, round, &w);
        const struct cp_cluster *a = &w.cluster[0], *b = &w.cluster[1];
        const struct cp_radio *r = &w.radio;
        double near = cp_rate_bps(1, r->band_d2d_hz, a->device[0].power_d2d_w, a->gain_d2d[1][0],
                                  r->noise_w_hz);
        double slow = cp_rate_bps(1, r->band_d2d_hz, a->device[0].power_d2d_w, a->gain_d2d[2][3],
                                  r->noise_w_hz);
        double far =
            cp_rate_bps(1, r->band_up_hz, b->device[2].power_d2e_w, b->gain_d2e[3], r->noise_w_hz);
        assert_true(fabs(near / 3e7 - 1) < 1e-12 && fabs(slow - 1) < 1e-12);
        assert_true(fabs(far / 2e6 - 1) < 1e-12 && isfinite(b->gain_d2e[0]));
        assert_true(a->gain_d2d[0][1] == a->gain_d2d[1][0]);
        assert_true(a->device[1].energy_j_flop == 3e-11 && a->device[1].mem_bytes == 123456789);
        assert_true(a->device[1].rate_flops == 7e9);
        assert_true(a->gain_d2e[1] == base.cluster[0].gain_d2e[1]);
    }
    cp_world_trace_free(t);
    t = parse(&base, HEAD "1,c1,d1,present,0\n4,c2,,arrivals,5\n5,c2,,arrivals,\n");
    assert_true(!cp_world_trace_has_arrivals(t, 0) && cp_world_trace_has_arrivals(t, 1));
    cp_world_trace_free(t);
    cp_world_fini(&w);
    cp_world_fini(&base);
}

static void values_hold_until_the_next_row(void **state)
{
    (void)state;
    static const double RATE[] = {0, 0, 5e9, 5e9, 7e9, 0, 0, 9e9}; /* 0: the model's */
    struct cp_world base, w = {0};
    make(&base);
    struct cp_world_trace *t = parse(&base, HEAD "2,c1,d1,rate_flops,5e9\n"
                                                 "3,c1,d2,present,0\n"
                                                 "4,c1,d1,rate_flops,7e9\n"
                                                 "5,c1,d1,rate_flops,\n" /* a gap */
                                                 "6,c1,d2,present,1\n"
                                                 "7,c1,d1,rate_flops,9e9\n");
    assert_int_equal(cp_world_trace_rounds(t), 7);
    for (int32_t round = 1; round <= 7; round++) {
        at(t, CP_WORLD_TRACE_STOP, &base, round, &w);
        double model = base.cluster[0].device[0].rate_flops;
        assert_true(w.cluster[0].device[0].rate_flops == (RATE[round] > 0 ? RATE[round] : model));
        assert_true(w.cluster[0].device[1].present == (round < 3 || round > 5));
    }
    cp_world_trace_free(t);
    /* Rate and factor speak of one thing: the newer row counts. */
    t = parse(&base, HEAD "1,c1,d1,rate_flops,5e9\n2,c1,d1,rate_factor,2\n3,c1,d1,rate_flops,6e9\n"
                          "4,c1,d1,rate_factor,\n");
    const double want[] = {5e9, 2 * base.cluster[0].device[0].rate_flops, 6e9,
                           base.cluster[0].device[0].rate_flops};
    for (int32_t round = 1; round <= 4; round++) {
        at(t, CP_WORLD_TRACE_HOLD, &base, round, &w);
        assert_true(w.cluster[0].device[0].rate_flops == want[round - 1]);
    }
    cp_world_trace_free(t);
    cp_world_fini(&w);
    cp_world_fini(&base);
}

static void after_the_end(void **state)
{
    (void)state;
    struct cp_world base, w = {0};
    make(&base);
    struct cp_world_trace *t = parse(&base, HEAD "1,c1,,arrivals,10\n2,c1,,arrivals,20\n"
                                                 "3,c1,,arrivals,30\n");
    static const struct {
        int32_t round;
        double hold, cycle;
    } CASES[] = {{1, 10, 10}, {3, 30, 30},    {4, 30, 10},
                 {6, 30, 30}, {3001, 30, 10}, {3002, 30, 20}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        at(t, CP_WORLD_TRACE_HOLD, &base, CASES[i].round, &w);
        assert_true(w.cluster[0].arrivals == CASES[i].hold);
        at(t, CP_WORLD_TRACE_CYCLE, &base, CASES[i].round, &w);
        assert_true(w.cluster[0].arrivals == CASES[i].cycle);
    }
    at(t, CP_WORLD_TRACE_HOLD, &base, INT32_MAX, &w);
    w.round = INT32_MAX;
    assert_int_equal(cp_world_trace_apply(t, CP_WORLD_TRACE_CYCLE, &base, &w), CP_OK);
    assert_true(w.cluster[0].arrivals == 20); /* 2^31 = 3 n + 2 */
    w.round = 3;
    w.cluster[0].arrivals = 5;
    assert_int_equal(cp_world_trace_apply(t, CP_WORLD_TRACE_STOP, &base, &w), CP_E_DATA);
    assert_non_null(strstr(cp_err_text(), "the trace ends with round 3, round 4 has no world"));
    assert_true(w.cluster[0].arrivals == 5);
    cp_world_trace_free(t);
    cp_world_fini(&w);
    cp_world_fini(&base);
}

#define STEADY "cluster,node,quantity,value\n"

static const struct {
    const char *text, *says;
} BAD[] = {
    {"", "t.csv: the trace has no rows"},
    {HEAD, "t.csv: the trace has no rows"},
    {"# nothing\n\n", "the trace has no rows"},
    {"round,node,value,x,y\n", "t.csv:1: the header is 'round,node,value,x,y'; it must be"},
    {"1,c1,d1,present,0\n", "t.csv:1: the header is"},
    {HEAD "1,c1,d1,present\n", "t.csv:2: there are 4 columns instead of 5"},
    {HEAD "1,c1,d1,present,0,\n", "t.csv:2: there are more than 5 columns"},
    {HEAD "   \n", "t.csv:2: there are 1 columns"},
    {STEADY, "t.csv: the trace has no rows"},
    {STEADY "1,c1,d1,present,0\n", "t.csv:2: there are more than 4 columns; they are cluster,node"},
    {STEADY "c1,d1,present\n", "t.csv:2: there are 3 columns instead of 4; they are cluster,node"},
    {STEADY "c1,d1,present,0\nc1,d1,present,1\n", "t.csv:3: line 2 says this of round 1 already"},
    {STEADY "c1,d1,rate_flops,1e9\nround,cluster,node,quantity,value\n", "more than 4 columns"},
    {"cluster,node,quantity\n", "it must be round,cluster,node,quantity,value, or cluster,node,qu"},
    {"cluster,node,quantity,value,x\n", "t.csv:1: the header is 'cluster,node,quantity,value,x'"},
    {HEAD "1,c2,d1,energy_j_flop,1\n", "'1' is out of range; allowed: J/FLOP, 0 to 1e-3"},
    {HEAD "1,c2,d1,mem_bytes,0\n", "'0' is out of range; allowed: bytes, 1 to 9e15"},
    {HEAD "1,c2,d1/d2,rate_d2d_bps,0\n", "'0' is out of range; allowed: bit/s, 1 to 1e13"},
    {HEAD "1,c2,d1,rate_d2d_bps,5\n", "rate_d2d_bps is of two nodes"},
    {HEAD "1,c2,d1/d2,rate_d2e_bps,5\n", "rate_d2e_bps is of a device or cu"},
    {HEAD "1,c2,d1/d2,rate_d2d_bps,5\n1,c2,d2/d1,gain_d2d,1e-9\n", "t.csv:3: line 2 says this"},
    {HEAD "1,c3x,d1,present,0\n", "t.csv:2: there is no cluster 'c3x'; did you mean 'c1'?"},
    {HEAD "1,c2,dd1,present,0\n", "the cluster c2 has no node 'dd1'; did you mean 'd1'?"},
    {HEAD "1,c2,laptop,present,0\n", "has no node 'laptop'; did you mean 'd1'?"},
    {HEAD "1,c2,d1,presnt,0\n", "no quantity 'presnt', did you mean 'present'; there are gain_d2d"},
    {HEAD "1,c2,d1,speed,0\n", "no quantity 'speed'; there are gain_d2d"},
    {HEAD "1,c2,cu,present,0\n", "present is of a device; the control unit is always there"},
    {HEAD "1,c2,,present,0\n", "present is of a device, not of ''"},
    {HEAD "1,c2,d1,arrivals,5\n", "arrivals is of a cluster: leave the node empty, not of 'd1'"},
    {HEAD "1,c2,d1,gain_d2d,1e-9\n", "gain_d2d is of two nodes"},
    {HEAD "1,c2,d1/d2,gain_d2e,1e-9\n", "gain_d2e is of a device or cu, not of 'd1/d2'"},
    {HEAD "1,c2,d1/d1,gain_d2d,1e-9\n", "'d1' has no channel to itself"},
    {HEAD "1,c2,d1/d9,gain_d2d,1e-9\n", "no node 'd9'"},
    {HEAD "1,c2,d1/d2/d3,gain_d2d,1e-9\n", "no node 'd2/d3'"},
    {HEAD "1,c2,/,gain_d2d,1e-9\n", "no node ''"},
    {HEAD "1,c2,d1,gain_d2e,nan\n", "t.csv:2: gain_d2e: 'nan' is not a finite number; leave the "
                                    "value empty"},
    {HEAD "1,c2,d1,gain_d2e,inf\n", "'inf' is not a finite number"},
    {HEAD "1,c2,d1,gain_d2e,1e-9x\n", "'1e-9x' is not a finite number"},
    {HEAD "1,c2,d1,gain_d2e,1e-400\n", "'1e-400' is not a finite number"},
    {HEAD "1,c2,d1,gain_d2e,0\n", "'0' is out of range; allowed: a factor of power, 1e-30 to 1"},
    {HEAD "1,c2,d1/cu,gain_d2d,1e-300\n", "gain_d2d: '1e-300' is out of range"},
    {HEAD "1,c2,d1,gain_d2e,-97\n", "from dB: 10^(dB/10)"},
    {HEAD "1,c2,d1,gain_d2e,97\n", "from dB: 10^(dB/10)"},
    {HEAD "1,c2,d1,rate_flops,80\n", "'80' is out of range; allowed: FLOP/s, 1e6 to 1e18"},
    {HEAD "1,c2,d1,rate_factor,0\n", "stands still has present 0"},
    {HEAD "1,c2,d1,present,0.5\n", "'0.5' is out of range; allowed: 0 or 1"},
    {HEAD "1,c2,d1,present,2\n", "allowed: 0 or 1"},
    {HEAD "1,c2,d1,harvest_w,-1\n", "harvest_w: '-1' is out of range"},
    {HEAD "1,c2,,arrivals,-1\n", "arrivals: '-1' is out of range"},
    {HEAD "0,c2,d1,present,0\n", "'0' is no round; rounds are whole numbers from 1"},
    {HEAD "1.5,c2,d1,present,0\n", "'1.5' is no round"},
    {HEAD ",c2,d1,present,0\n", "'' is no round"},
    {HEAD "2147483647,c2,d1,present,0\n", "is no round"},
    {HEAD "5,c2,d1,present,0\n4,c2,d2,present,0\n", "t.csv:3: round 4 comes after round 5; sort"},
    {HEAD "1,c2,d1,present,0\n1,c1,d1,present,0\n1,c2,d1,present,0\n",
     "t.csv:4: line 2 says this of round 1 already"},
    {HEAD "1,c2,d1/d2,gain_d2d,1e-9\n1,c2,d2/d1,gain_d2d,1e-9\n", "t.csv:3: line 2 says this"},
    {HEAD "1,c2,d1,rate_factor,1\n1,c2,d1,rate_flops,\n", "t.csv:3: line 2 says this"},
    {HEAD "1,\"c2\",d1,present,0\n", "column 2 holds a quote or a control character"},
    {HEAD "1,c2,d1,present,0\x01\n", "column 5 holds a quote"},
    {HEAD "1,c2,d1,present,00000000000000000000000000000000000000000000000000000000000000000\n",
     "column 5 has 65 bytes"},
};

static void what_is_refused(void **state)
{
    (void)state;
    struct cp_world w;
    make(&w);
    struct cp_world_trace *const untouched = (void *)&w;
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        struct cp_world_trace *t = untouched;
        cp_err err = cp_world_trace_parse("t.csv", BAD[i].text, strlen(BAD[i].text), &w, &t);
        if (err != CP_E_DATA || !strstr(cp_err_text(), BAD[i].says)) {
            fail_msg("'%s': %d, '%s' does not have '%s'", BAD[i].text, err, cp_err_text(),
                     BAD[i].says);
        }
        assert_ptr_equal(t, untouched);
    }
    struct cp_world_trace *t = untouched; /* a zero byte */
    assert_int_equal(
        cp_world_trace_parse("t.csv", HEAD "1,c2\0,d1,present,0\n", sizeof HEAD + 18, &w, &t),
        CP_E_DATA);
    assert_non_null(strstr(cp_err_text(), "t.csv:2: column 2"));
    cp_world_fini(&w);
}

/* Many rows in any order of things: as a plain table that is filled round by round. */
static void equals_a_table(void **state)
{
    (void)state;
    enum { CLUSTERS = 40, ROUNDS = 60 };
    struct cp_world base, w = {0};
    struct cp_str text = {0};
    double(*table)[ROUNDS + 1];
    struct cp_rng r;
    cp_rng_init(&r, 3, CP_RNG_TEST, 0, 0);
    assert_int_equal(cp_world_draw_default(CLUSTERS, 3, 5, &base), CP_OK);
    assert_int_equal(cp_mem_array(NULL, 4 * CLUSTERS, sizeof *table, &table), CP_OK);
    cp_str_puts(&text, HEAD);
    for (int round = 1; round <= ROUNDS; round++) {
        for (int node = 0; node < 4 * CLUSTERS; node++) {
            table[node][round] = table[node][round - 1];
            if (cp_rng_unit(&r) < 0.2) {
                double x = cp_rng_unit(&r) < 0.3 ? 0 : floor(cp_rng_range(&r, 1e6, 1e9));
                table[node][round] = x; /* 0: the model's again */
                const char *name[] = {"cu", "d1", "d2", "d3"};
                cp_str_printf(&text, "%d,c%d,%s,rate_flops,", round, node / 4 + 1, name[node % 4]);
                cp_str_printf(&text, x > 0 ? "%.0f\n" : "\n", x);
            }
        }
    }
    struct cp_world_trace *t = parse(&base, text.p);
    for (int round = 1; round <= ROUNDS; round++) {
        at(t, CP_WORLD_TRACE_STOP, &base, round, &w);
        for (int node = 0; node < 4 * CLUSTERS; node++) {
            const struct cp_cluster *cl = &w.cluster[node / 4], *was = &base.cluster[node / 4];
            double is = node % 4 ? cl->device[node % 4 - 1].rate_flops : cl->cu.rate_flops;
            double model = node % 4 ? was->device[node % 4 - 1].rate_flops : was->cu.rate_flops;
            assert_true(is == (table[node][round] > 0 ? table[node][round] : model));
        }
    }
    cp_world_trace_free(t);
    cp_mem_free(table);
    cp_str_fini(&text);
    cp_world_fini(&w);
    cp_world_fini(&base);
}

static void no_memory(void **state)
{
    (void)state;
    struct cp_world w;
    struct cp_world_trace *t;
    make(&w);
    const char *text = HEAD "1,c1,d1,present,0\n";
    for (uint64_t n = 1;; n++) {
        cp_mem_fail_at(n);
        cp_err err = cp_world_trace_parse("t", text, strlen(text), &w, &t);
        cp_mem_fail_at(0);
        if (!err) {
            assert_int_equal(n, 5); /* four allocations */
            break;
        }
        assert_int_equal(err, CP_E_NOMEM);
    }
    cp_world_trace_free(t);
    cp_world_trace_free(NULL);
    cp_world_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_hold_always),
        cmocka_unit_test(every_quantity),
        cmocka_unit_test(values_hold_until_the_next_row),
        cmocka_unit_test(after_the_end),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(equals_a_table),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
