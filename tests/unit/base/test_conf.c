/* conf: every way a configuration is given, and every way it can be wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/conf.h"
#include "base/mem.h"
#include "base/num.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct device {
    const char *name;
    double gflops, energy;
    int64_t mem_mib;
};

struct cluster {
    const char *name;
    double cu_gflops;
    struct cp_conf_list devices;
};

struct values {
    int64_t seed;
    bool deterministic;
    double lr;
    int64_t micro_batch, warmup;
    double dropout;
    int optimizer, net;
    const char *path, *dir;
    struct cp_conf_cuts cuts;
    struct cp_conf_list clusters;
    const char *clusters_short;
};

static const char *const OPTIMIZERS[] = {"sgd", "adamw", NULL};
static const char *const NETS[] = {"inproc", "zmq", "mpi", NULL};

static const struct cp_opt DEVICE[] = {
    {.key = "name",
     .type = CP_OPT_STRING,
     .offset = offsetof(struct device, name),
     .required = true},
    {.key = "gflops",
     .type = CP_OPT_REAL,
     .offset = offsetof(struct device, gflops),
     .def = "10",
     .min = 0,
     .max = INFINITY,
     .above_min = true},
    {.key = "energy", .type = CP_OPT_REAL, .offset = offsetof(struct device, energy)},
    {.key = "mem_mib", .type = CP_OPT_INT, .offset = offsetof(struct device, mem_mib), .def = "64"},
    {0}};

static const struct cp_opt CLUSTER[] = {
    {.key = "name", .type = CP_OPT_STRING, .offset = offsetof(struct cluster, name), .def = "c"},
    {.key = "cu.gflops",
     .type = CP_OPT_REAL,
     .offset = offsetof(struct cluster, cu_gflops),
     .def = "1"},
    {.key = "devices",
     .type = CP_OPT_LIST,
     .offset = offsetof(struct cluster, devices),
     .item = DEVICE,
     .item_size = sizeof(struct device),
     .item_min = 1,
     .item_max = 3,
     .required = true},
    {0}};

#define FIELD(f) .offset = offsetof(struct values, f)
static const struct cp_opt TABLE[] = {
    {.key = "seed", .type = CP_OPT_INT, FIELD(seed), .def = "1", .help = "seed of everything"},
    {.key = "train.lr",
     .type = CP_OPT_REAL,
     FIELD(lr),
     .def = "2e-5",
     .max = 1,
     .above_min = true,
     .unit = "1/step",
     .help = "learning rate",
     .symbol = "eta"},
    {.key = "deterministic", .type = CP_OPT_BOOL, FIELD(deterministic), .def = "false"},
    {.key = "train.micro_batch",
     .type = CP_OPT_INT,
     FIELD(micro_batch),
     .def = "8",
     .min = 1,
     .max = 4096},
    {.key = "train.warmup_steps", .type = CP_OPT_INT, FIELD(warmup)},
    {.key = "train.dropout",
     .type = CP_OPT_REAL,
     FIELD(dropout),
     .def = "0.1",
     .max = 1,
     .below_max = true},
    {.key = "train.optimizer",
     .type = CP_OPT_CHOICE,
     FIELD(optimizer),
     .def = "adamw",
     .choices = OPTIMIZERS},
    {.key = "train.learning_rate_decay", .type = CP_OPT_STRING, FIELD(dir), .def = "runs"},
    {.key = "data.path", .type = CP_OPT_STRING, FIELD(path)},
    {.key = "net.kind",
     .type = CP_OPT_CHOICE,
     FIELD(net),
     .def = "inproc",
     .choices = NETS,
     .group_value = true},
    {.key = "plan.cuts",
     .type = CP_OPT_CUTS,
     FIELD(cuts),
     .def = "[]",
     .min = 1,
     .max = 100,
     .item_max = 4},
    {.key = "clusters",
     .type = CP_OPT_LIST,
     FIELD(clusters),
     .def = "2x3",
     .item = CLUSTER,
     .item_size = sizeof(struct cluster),
     .item_max = 4,
     .short_form = true,
     .short_offset = offsetof(struct values, clusters_short),
     .help = "control units and devices"},
    {0}};

static struct cp_conf *conf;
static const struct values *v;

static int setup(void **state)
{
    (void)state;
    if (cp_conf_new(TABLE, sizeof(struct values), &conf) != CP_OK) {
        return -1;
    }
    v = cp_conf_values(conf);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cp_conf_free(conf);
    return 0;
}

static cp_err load(const char *text)
{
    return cp_conf_load_text(conf, "run.yaml", text, strlen(text));
}

static void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("'%s' does not contain '%s'", text, part);
    }
}

static void test_defaults(void **state)
{
    (void)state;
    assert_int_equal(v->seed, 1);
    assert_true(v->lr == 2e-5);
    assert_false(v->deterministic);
    assert_true(v->warmup == CP_CONF_INT_UNSET);
    assert_int_equal(v->optimizer, 1);
    assert_null(v->path);
    assert_int_equal(v->cuts.n, 0);
    assert_int_equal(v->clusters.n, 0);
    assert_string_equal(v->clusters_short, "2x3");
    assert_string_equal(cp_conf_origin(conf, "train.lr"), "default");
    assert_null(cp_conf_origin(conf, "train.lx"));
}

static const char FULL[] = "# a comment\n"
                           "seed: 42\n"
                           "train: {lr: .00002, micro_batch: 16}\n"
                           "train.dropout: 0\n"
                           "data:\n"
                           "  path: \"a b: #c\\t\\\"ä\\\"\"\n"
                           "net: zmq\n"
                           "plan: {cuts: [[2, 1, 1], [1, 3], []]}\n"
                           "clusters:\n"
                           "  - &first\n"
                           "    name: west\n"
                           "    cu: {gflops: 2.5}\n"
                           "    devices:\n"
                           "      - {name: d1, gflops: 3}\n"
                           "      - name: 'null'\n"
                           "        energy: 7\n"
                           "  - <<: *first\n"
                           "    name: east\n";

static void check_full(const struct values *x)
{
    assert_int_equal(x->seed, 42);
    assert_true(x->lr == 2e-5 && x->dropout == 0);
    assert_int_equal(x->micro_batch, 16);
    assert_string_equal(x->path, "a b: #c\t\"ä\"");
    assert_int_equal(x->net, 1);
    assert_int_equal(x->cuts.n, 3);
    assert_int_equal(x->cuts.row[0].n, 3);
    assert_int_equal(x->cuts.row[0].v[0], 2);
    assert_int_equal(x->cuts.row[1].v[1], 3);
    assert_int_equal(x->cuts.row[2].n, 0);
    assert_null(x->clusters_short);
    assert_int_equal(x->clusters.n, 2);
    const struct cluster *c = x->clusters.items;
    assert_string_equal(c[0].name, "west");
    assert_string_equal(c[1].name, "east");
    assert_true(c[0].cu_gflops == 2.5 && c[1].cu_gflops == 2.5);
    for (int i = 0; i < 2; i++) {
        const struct device *d = c[i].devices.items;
        assert_int_equal(c[i].devices.n, 2);
        assert_string_equal(d[0].name, "d1");
        assert_true(d[0].gflops == 3 && isnan(d[0].energy));
        assert_string_equal(d[1].name, "null");
        assert_true(d[1].gflops == 10 && d[1].energy == 7);
        assert_int_equal(d[1].mem_mib, 64);
    }
}

static void test_file(void **state)
{
    (void)state;
    assert_int_equal(load(FULL), CP_OK);
    check_full(v);
    assert_string_equal(cp_conf_origin(conf, "seed"), "run.yaml:2");
    assert_string_equal(cp_conf_origin(conf, "train.lr"), "run.yaml:3");
    assert_string_equal(cp_conf_origin(conf, "train.micro_batch"), "run.yaml:3");
    assert_string_equal(cp_conf_origin(conf, "train.dropout"), "run.yaml:4");
    assert_string_equal(cp_conf_origin(conf, "net.kind"), "run.yaml:7");
    assert_string_equal(cp_conf_origin(conf, "clusters.0.devices.1.energy"), "run.yaml:16");
    assert_string_equal(cp_conf_origin(conf, "clusters.0.devices.1.gflops"), "default");
    assert_string_equal(cp_conf_origin(conf, "clusters.1.name"), "run.yaml:18");
    assert_null(cp_conf_origin(conf, "clusters.2.name"));
}

/* Printed text loads back to the same values, and printing is then a fixed point. */
static void test_print_loads_back(void **state)
{
    (void)state;
    static const char *const INPUTS[] = {"",
                                         FULL,
                                         "clusters: []",
                                         "clusters: \"2x3\\\\ \"",
                                         "train: {warmup_steps: -3}",
                                         "data: {path: \"-5\"}",
                                         "data: {path: \"\"}",
                                         "data: {path: null}"};
    for (size_t i = 0; i < sizeof INPUTS / sizeof *INPUTS; i++) {
        struct cp_str printed = {0}, plain = {0}, again = {0};
        struct cp_conf *other;
        assert_int_equal(load(INPUTS[i]), CP_OK);
        assert_int_equal(cp_conf_print(conf, &printed), CP_OK);
        assert_int_equal(cp_conf_yaml(conf, &plain), CP_OK);
        assert_int_equal(cp_conf_new(TABLE, sizeof(struct values), &other), CP_OK);
        if (cp_conf_load_text(other, "printed", printed.p, printed.len) != CP_OK) {
            fail_msg("%s\n%s", cp_err_text(), printed.p);
        }
        assert_int_equal(cp_conf_yaml(other, &again), CP_OK);
        assert_string_equal(plain.p, again.p);
        assert_null(strstr(plain.p, "  # "));
        if (INPUTS[i] == FULL) {
            check_full(cp_conf_values(other));
            assert_contains(printed.p, "  lr: 2e-05  # run.yaml:3 | learning rate [1/step]\n");
            assert_contains(printed.p, "deterministic: false  # default\n");
            assert_contains(printed.p, "      - name: d1  # run.yaml:14\n");
        }
        cp_conf_free(other);
        cp_str_fini(&printed);
        cp_str_fini(&plain);
        cp_str_fini(&again);
    }
}

static void test_precedence(void **state)
{
    (void)state;
    char *env[] = {(char *)"HOME=/",
                   (char *)"COLLAPIPE_TRAIN_MICRO_BATCH=4",
                   (char *)"COLLAPIPE_NET=mpi",
                   (char *)"COLLAPIPE_SEED=7",
                   (char *)"COLLAPIPE_PLAN_CUTS=[[4]]",
                   NULL};
    assert_int_equal(load("seed: 2\ntrain:\n  micro_batch: 2\n  lr: 1e-3\n"), CP_OK);
    assert_int_equal(cp_conf_load_env(conf, "COLLAPIPE_", env), CP_OK);
    assert_int_equal(cp_conf_override(conf, "seed=9"), CP_OK);
    assert_int_equal(v->seed, 9);
    assert_int_equal(v->micro_batch, 4);
    assert_int_equal(v->net, 2);
    assert_int_equal(v->cuts.row[0].v[0], 4);
    assert_true(v->lr == 1e-3);
    assert_string_equal(cp_conf_origin(conf, "seed"), "command line");
    assert_string_equal(cp_conf_origin(conf, "train.micro_batch"),
                        "environment COLLAPIPE_TRAIN_MICRO_BATCH");
    assert_string_equal(cp_conf_origin(conf, "train.lr"), "run.yaml:4");
    assert_string_equal(cp_conf_origin(conf, "train.dropout"), "default");
}

static void test_overrides(void **state)
{
    (void)state;
    assert_int_equal(cp_conf_override(conf, "clusters=[{devices: [{name: a}, {name: b}]}]"), CP_OK);
    assert_null(v->clusters_short);
    assert_int_equal(cp_conf_override(conf, "clusters.0.devices.1.gflops=3.5"), CP_OK);
    const struct cluster *c = v->clusters.items;
    assert_true(((struct device *)c[0].devices.items)[1].gflops == 3.5);
    assert_string_equal(cp_conf_origin(conf, "clusters.0.devices.1.gflops"), "command line");
    assert_int_equal(cp_conf_override(conf, "clusters=4x5"), CP_OK);
    assert_string_equal(v->clusters_short, "4x5");
    assert_int_equal(v->clusters.n, 0);
    assert_int_equal(cp_conf_override(conf, "net=zmq"), CP_OK);
    assert_int_equal(v->net, 1);
    assert_int_equal(cp_conf_override(conf, "data.path=a=b: c"), CP_OK);
    assert_string_equal(v->path, "a=b: c");
    assert_int_equal(cp_conf_override(conf, "data.path="), CP_OK);
    assert_null(v->path);
    assert_int_equal(cp_conf_override(conf, "train.learning_rate_decay="), CP_OK);
    assert_string_equal(v->dir, "");
}

struct bad {
    const char *text, *says;
};

static void test_bad_overrides(void **state)
{
    (void)state;
    static const struct bad BAD[] = {
        {"seed", "not of the form group.key=value"},
        {"=1", "not of the form"},
        {"train.optimiser=sgd", "did you mean 'train.optimizer'"},
        {"lr=1", "did you mean 'train.lr'"},
        {"clusters.0.name=x", "unknown option"},
        {"train=3", "unknown option"},
        {"plan.cuts=[[1,2]", "flow sequence"},
        {"plan.cuts=3", "must be a list in brackets"},
        {"plan.cuts=[[1,a]]", "'a' is not an integer"},
        {"train.lr=0", "out of range; allowed: in (0, 1]"},
        {"seed=", "needs a value"},
        {"data.path=a\nb", "without control characters"},
        {"data.path=\xff", "must be UTF-8"},
        {"data.path=\xc0\xaf", "must be UTF-8"},
        {"data.path=\xe0\x83\xa9", "must be UTF-8"},
        {"data.path=\xf5\x80\x80\x80", "must be UTF-8"},
        {"data.path=\xed\xa0\x80", "must be UTF-8"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        assert_int_equal(cp_conf_override(conf, BAD[i].text), CP_E_CONFIG);
        assert_contains(cp_err_text(), BAD[i].says);
        assert_contains(cp_err_text(), "command line");
    }
    char *env[] = {(char *)"COLLAPIPE_SEED=5", (char *)"COLLAPIPE_TRIAN_LR=1", NULL};
    assert_int_equal(cp_conf_load_env(conf, "COLLAPIPE_", env), CP_E_CONFIG);
    assert_contains(cp_err_text(), "COLLAPIPE_TRIAN_LR: unknown option; did you mean "
                                   "COLLAPIPE_TRAIN_LR?");
    assert_int_equal(v->seed, 1); /* as before the failing call */
    char *foreign[] = {(char *)"COLLAPIPE_INSTALL_ROOT_FOLDER=/opt", NULL};
    assert_int_equal(cp_conf_load_env(conf, "COLLAPIPE_", foreign), CP_OK);
    char *wrong[] = {(char *)"COLLAPIPE_SEED=x", NULL};
    assert_int_equal(cp_conf_load_env(conf, "COLLAPIPE_", wrong), CP_E_CONFIG);
    assert_contains(cp_err_text(), "environment COLLAPIPE_SEED: seed: 'x'");
}

static void test_bad_files(void **state)
{
    (void)state;
    static const struct bad BAD[] = {
        {"seed: 3\ntrain:\n  learing_rate_decay: x\n",
         "run.yaml:3:3: train.learing_rate_decay: unknown option; did you mean "
         "'train.learning_rate_decay'?"},
        {"lr: 1", "run.yaml:1:1: lr: unknown option; did you mean 'train.lr'?"},
        {"trian: {lr: 1}", "did you mean 'train'?"},
        {"zzzzzzzz: 1", "zzzzzzzz: unknown option"},
        {"seed: 1\nseed: 2", "run.yaml:2:1: duplicate key"},
        {"train: {lr: 1}\ntrain.lr: 1", "run.yaml:2:1: train.lr: is given twice; the first is in "
                                        "line 1"},
        {"seed: 2\ntrain:\n  lr:   2,5", "run.yaml:3:9: train.lr: '2,5' is not a finite decimal"},
        {"train: {lr: 1e400}", "not a finite decimal"},
        {"train: {lr: 1e-400}", "not a finite decimal"},
        {"train: {lr: nan}", "not a finite decimal"},
        {"train: {lr: .inf}", "not a finite decimal"},
        {"train: {lr: 0x1p3}", "not a finite decimal"},
        {"train: {lr: 1.5}", "'1.5' is out of range; allowed: in (0, 1]"},
        {"train: {dropout: 1}", "allowed: in [0, 1)"},
        {"train: {micro_batch: 0}", "allowed: in [1, 4096]"},
        {"train: {micro_batch: 2.0}", "not an integer"},
        {"seed: 9223372036854775808", "not an integer of 64 bits"},
        {"seed: \"1\\0\"", "not an integer"},
        {"seed: [1]", "takes one value, not a list"},
        {"seed: {a: 1}", "takes a value, not a mapping"},
        {"seed:", "run.yaml:1:1: seed: needs a value"},
        {"seed: ~", "needs a value"},
        {"deterministic: yes", "allowed: true or false"},
        {"deterministic: True", "allowed: true or false"},
        {"train: {optimizer: adam}", "allowed: one of sgd, adamw"},
        {"train: 3", "is a group of options"},
        {"net: tcp", "net: 'tcp' is not a choice; allowed: one of inproc, zmq, mpi"},
        {"net: zmq\nnet.kind: mpi", "is given twice"},
        {"train: {learning_rate_decay: }", "write \"\" for an empty text"},
        {"data: {path: \"a\\u0007\"}", "without control characters"},
        {"data: {path: \"a\\0b\"}", "without control characters"},
        {"plan: {cuts: [1]}", "list of lists of integers"},
        {"plan: {cuts: [[1], [2, 101]]}", "run.yaml:1:24: plan.cuts: '101' is out of range"},
        {"plan: {cuts: [[1], [1], [1], [1], [1]]}", "has 5 items; allowed: 0 to 4"},
        {"plan: {cuts: [[1, 1, 1, 1, 1]]}", "has 5 items"},
        {"clusters: [3]", "run.yaml:1:12: clusters[0]: must be a mapping (name: ...)"},
        {"clusters: [{name: a}]", "clusters[0]: the option 'devices' is missing here"},
        {"clusters:\n  - devices:\n      - gflops: 1\n",
         "clusters[0].devices[0]: the option 'name' is missing"},
        {"clusters:\n  - devices:\n      - {name: a}\n      - {name: b, gflop: 1}\n",
         "run.yaml:4:19: clusters[0].devices[1].gflop: unknown option; did you mean 'gflops'?"},
        {"clusters: [{devices: [{name: }]}]", "clusters[0].devices[0].name: needs a value"},
        {"clusters: [{devices: []}]", "has 0 items; allowed: 1 to 3"},
        {"clusters: [{devices: [{name: a, gflops: 0}]}]", "allowed: above 0"},
        {"- 1", "run.yaml:1:1: a configuration is a mapping"},
        {"hello", "a configuration is a mapping"},
        {"seed: 1\n---\nseed: 2", "a second document starts"},
        {"seed: *x", "seed: this alias has no anchor"},
        {"seed: [1", "run.yaml:"},
        {"? [a]\n: 1", "the key of an option must be a plain word"},
        {"\"se\\ned\": 1", "the key of an option must be a plain word"},
        {"seed: 1\ndata: {path: a\x01}", "run.yaml:2:15: a control character"},
        {"%is\x1c\xff\xff t.list", "run.yaml:1:4: a control character or bytes"},
        {"seed: 1 # \xe4\n", "run.yaml:1:11: a control character or bytes"},
        {"<<: 3", "takes the alias of a mapping"},
        {"data: &d\n  <<: *d\n", "is there a loop?"},
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        cp_err err = load(BAD[i].text);
        if (err != CP_E_CONFIG) {
            fail_msg("accepted or other error (%s %s): %s", cp_err_name(err), cp_err_text(),
                     BAD[i].text);
        }
        assert_contains(cp_err_text(), "run.yaml:");
        assert_contains(cp_err_text(), BAD[i].says);
        assert_int_equal(v->seed, 1); /* nothing of a refused file stays */
        assert_string_equal(cp_conf_origin(conf, "seed"), "default");
        assert_string_equal(v->clusters_short, "2x3");
    }
}

static void test_odd_but_fine(void **state)
{
    (void)state;
    static const char *const FINE[] = {"",
                                       "\n\n",
                                       "# only a comment",
                                       "---\n",
                                       "train:\n",
                                       "train: {}",
                                       "null",
                                       "\xef\xbb\xbfseed: 1",
                                       "seed: +1",
                                       "seed: \"1\"",
                                       "seed: 1\r\n",
                                       "{\"seed\": 1}"};
    for (size_t i = 0; i < sizeof FINE / sizeof *FINE; i++) {
        if (load(FINE[i]) != CP_OK) {
            fail_msg("%s: %s", FINE[i], cp_err_text());
        }
        assert_int_equal(v->seed, 1);
    }
}

/* Nine levels of nine aliases would be 400 million nodes if they were expanded. */
static void test_alias_bomb(void **state)
{
    (void)state;
    struct cp_str bomb = {0};
    cp_str_puts(&bomb, "plan.cuts: [[1]]\ndata.path: &a0 x\n");
    for (int i = 0; i < 9; i++) {
        cp_str_printf(&bomb, "x%d: &a%d [", i, i + 1);
        for (int k = 0; k < 9; k++) {
            cp_str_printf(&bomb, "%s*a%d", k ? ", " : "", i);
        }
        cp_str_puts(&bomb, "]\n");
    }
    assert_int_equal(load(bomb.p), CP_E_CONFIG);
    assert_contains(cp_err_text(), "run.yaml:3:1: x0: unknown option");
    cp_str_fini(&bomb);
}

static void test_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        double x;
    } REALS[] = {{"2e-5", true, 2e-5},
                 {"2E-5", true, 2e-5},
                 {".00002", true, 2e-5},
                 {"+3.", true, 3},
                 {"-0", true, 0},
                 {"0e999", true, 0},
                 {"1e308", true, 1e308},
                 {"1e400", false, 0},
                 {"1e-400", false, 0},
                 {"nan", false, 0},
                 {"inf", false, 0},
                 {"2,5", false, 0},
                 {"", false, 0},
                 {".", false, 0},
                 {"e5", false, 0},
                 {"1e", false, 0},
                 {"1e+", false, 0},
                 {" 1", false, 0},
                 {"1 ", false, 0},
                 {"0x10", false, 0},
                 {"1.2.3", false, 0},
                 {"--1", false, 0},
                 {"4.9e-324", true, 4.9e-324}};
    for (size_t i = 0; i < sizeof REALS / sizeof *REALS; i++) {
        double x = 77;
        assert_int_equal(cp_num_real(REALS[i].text, &x), REALS[i].ok);
        assert_true(x == (REALS[i].ok ? REALS[i].x : 77));
    }
    int64_t n = 77;
    assert_true(cp_num_int("-9223372036854775808", &n) && n == INT64_MIN);
    assert_true(cp_num_int("9223372036854775807", &n) && n == INT64_MAX);
    static const char *const NO_INTS[] = {
        "9223372036854775808", "-9223372036854775809", "", "-", "1.0", "1e3", "0x1", " 1", "1_0"};
    for (size_t i = 0; i < sizeof NO_INTS / sizeof *NO_INTS; i++) {
        assert_false(cp_num_int(NO_INTS[i], &n));
    }
    char text[CP_NUM_TEXT];
    static const double EXACT[] = {0.1,  1.0 / 3, 2e-5, 5e-324, 1.7976931348623157e308,
                                   -0.0, 123456};
    for (size_t i = 0; i < sizeof EXACT / sizeof *EXACT; i++) {
        double back;
        cp_num_text(EXACT[i], text);
        assert_true(cp_num_real(text, &back));
        assert_memory_equal(&back, &EXACT[i], sizeof back);
    }
    cp_num_text(0.1, text);
    assert_string_equal(text, "0.1");
}

/* B30: the same under a locale with a decimal comma. */
static void test_german_locale(void **state)
{
    char dir[] = "/tmp/cp_conf_XXXXXX", command[200];
    assert_non_null(mkdtemp(dir));
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 2>/dev/null",
             dir);
    int rc = system(command);
    setenv("LOCPATH", dir, 1);
    bool german = rc == 0 && setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
    if (german) {
        assert_string_equal(localeconv()->decimal_point, ",");
        test_numbers(state);
        assert_int_equal(load("train: {lr: 0.25}"), CP_OK);
        struct cp_str out = {0};
        assert_true(v->lr == 0.25);
        assert_int_equal(cp_conf_yaml(conf, &out), CP_OK);
        assert_contains(out.p, "lr: 0.25\n");
        assert_int_equal(load("train: {lr: \"0,25\"}"), CP_E_CONFIG);
        cp_str_fini(&out);
    }
    setlocale(LC_ALL, "C");
    unsetenv("LOCPATH");
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
    if (!german) {
        skip(); /* this system cannot make the locale */
    }
}

static void test_help(void **state)
{
    (void)state;
    struct cp_str out = {0};
    assert_int_equal(cp_conf_help(TABLE, &out), CP_OK);
    assert_contains(out.p, "  train.lr  number [1/step], in (0, 1], default 2e-5\n"
                           "      learning rate (eta)\n");
    assert_contains(out.p, "  net.kind  word, one of inproc, zmq, mpi, default inproc\n");
    assert_contains(out.p, "  clusters[].devices[].gflops  number, above 0, default 10\n");
    assert_contains(out.p, "  clusters[].devices[].name  text, required\n");
    assert_contains(out.p, "  clusters  list or text, default 2x3\n");
    assert_contains(out.p, "  data.path  text, no default\n");
    cp_str_fini(&out);
}

static void test_files_on_disk(void **state)
{
    (void)state;
    char path[] = "/tmp/cp_conf_XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "seed: 5\nsede: 6\n", 16), 16);
    assert_int_equal(cp_conf_load_file(conf, path), CP_E_CONFIG);
    assert_contains(cp_err_text(), path);
    assert_contains(cp_err_text(), ":2:1: sede: unknown option; did you mean 'seed'?");
    assert_int_equal(ftruncate(fd, 8), 0);
    assert_int_equal(cp_conf_load_file(conf, path), CP_OK);
    assert_int_equal(v->seed, 5);
    assert_int_equal(ftruncate(fd, (4 << 20) + 1), 0);
    assert_int_equal(cp_conf_load_file(conf, path), CP_E_DATA);
    close(fd);
    unlink(path);
    assert_int_equal(cp_conf_load_file(conf, path), CP_E_IO);
    assert_int_equal(cp_conf_load_file(conf, "/tmp"), CP_E_IO);
}

/* Every allocation of our own fails once: the values stay, nothing leaks (ASan looks). */
static void test_out_of_memory(void **state)
{
    (void)state;
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        struct cp_conf *c = NULL;
        cp_mem_fail_at(n);
        cp_err err = cp_conf_new(TABLE, sizeof(struct values), &c);
        cp_mem_fail_at(0);
        done = err == CP_OK;
        assert_true(done || (err == CP_E_NOMEM && !c));
        cp_conf_free(c);
    }
    done = false;
    for (uint64_t n = 1; !done; n++) {
        cp_mem_fail_at(n);
        cp_err err = load(FULL);
        cp_mem_fail_at(0);
        done = err == CP_OK;
        assert_true(done || err == CP_E_NOMEM);
        assert_int_equal(v->seed, done ? 42 : 1);
        assert_true(n < 1000);
    }
    check_full(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_defaults, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_print_loads_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_precedence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_overrides, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_overrides, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bad_files, setup, teardown),
        cmocka_unit_test_setup_teardown(test_odd_but_fine, setup, teardown),
        cmocka_unit_test_setup_teardown(test_alias_bomb, setup, teardown),
        cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_german_locale, setup, teardown),
        cmocka_unit_test_setup_teardown(test_help, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files_on_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_out_of_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
