/* cmd_plan: one decision as tables. */
#include "app.h"
#include "json.h"
#include "ui.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line that is broken where it is too long. column: where the cursor is. */
static void say(int column, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(int column, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ui_wrap(stdout, column, 4, text);
}

static void heading(const json_t *doc)
{
    char *binding = doc_join(doc, "binding", ", ");
    printf("%splan of %s%s: %s and %s per round (modelled)\n", ui_on(stdout, UI_BOLD),
           doc_text(doc, "policy"), ui_off(stdout), ui_time(doc_number(doc, "latency_s")).s,
           ui_energy(doc_number(doc, "round_energy_j")).s);
    printf("  objective %s", ui_number(doc_number(doc, "objective")).s);
    if (isfinite(doc_number(doc, "gap_bound"))) {
        printf(", at most %s above the best", ui_percent(100 * doc_number(doc, "gap_bound")).s);
    }
    printf("; solved in %s\n", ui_time(1e-3 * doc_number(doc, "solve_ms")).s);
    fputs("  binds: ", stdout);
    ui_wrap(stdout, 9, 9, binding[0] ? binding : "-");
    free(binding);
}

/* "emb", "3", "1-2", "head" of a stage 0..S+1. first: that of the segment. */
static void layers_text(const json_t *c, size_t stage, size_t n, char *out, size_t size)
{
    int first = 1;
    for (size_t s = 0; s + 1 < stage; s++) {
        first += doc_int_at(c, "segments", s, 1);
    }
    if (stage == 0 || stage == n + 1) {
        snprintf(out, size, "%s", stage == 0 ? "emb" : "head");
        return;
    }
    int count = doc_int_at(c, "segments", stage - 1, 1);
    if (count > 1) {
        snprintf(out, size, "%d-%d", first, first + count - 1);
    } else {
        snprintf(out, size, "%d", first);
    }
}

static const char *stage_name(const json_t *c, size_t stage, size_t n)
{
    return stage == 0 ? "cu" : stage == n + 1 ? "edge" : doc_text_at(c, "device_names", stage - 1);
}

/* Devices of a mode without a pipeline: each has the whole model. */
static void apart_devices(const json_t *c, size_t n)
{
    static const char *const HEADS[] = {"device",        ">memory", ">of limit",
                                        ">energy/round", ">power",  NULL};
    struct ui_table *t = ui_table_new(HEADS);
    for (size_t s = 0; s < n; s++) {
        double mem = doc_number_at(c, "mem_bytes", s), of = doc_number_at(c, "mem_limit_bytes", s);
        ui_table_add(t, "%s", doc_text_at(c, "device_names", s));
        ui_table_add(t, "%s", ui_bytes(mem).s);
        ui_table_add(t, "%s", ui_bytes(of).s);
        ui_table_add(t, "%s", ui_energy(doc_number_at(c, "energy_j", s + 1)).s);
        ui_table_add(t, "%s", ui_power(doc_number_at(c, "power_fwd_w", s + 1)).s);
    }
    ui_table_print(t, stdout, 2);
}

static void stages(const json_t *c, size_t n)
{
    static const char *const HEADS[] = {"node",      ">layers",       ">slots",
                                        ">memory",   ">of limit",     ">forward",
                                        ">backward", ">energy/round", NULL};
    struct ui_table *t = ui_table_new(HEADS);
    for (size_t j = 0; j < n + 2; j++) {
        bool device = j > 0 && j <= n;
        char layers[32];
        layers_text(c, j, n, layers, sizeof layers);
        ui_table_add(t, "%s", stage_name(c, j, n));
        ui_table_add(t, "%s", layers);
        ui_table_add(t, "%s", ui_count(doc_number_at(c, "slots", j)).s);
        ui_table_add(t, "%s", ui_bytes(device ? doc_number_at(c, "mem_bytes", j - 1) : NAN).s);
        ui_table_add(t, "%s",
                     ui_bytes(device ? doc_number_at(c, "mem_limit_bytes", j - 1) : NAN).s);
        ui_table_add(t, "%s", ui_time(doc_number_at(c, "fwd_s", j)).s);
        ui_table_add(t, "%s", ui_time(doc_number_at(c, "bwd_s", j)).s);
        ui_table_add(t, "%s", ui_energy(j <= n ? doc_number_at(c, "energy_j", j) : NAN).s);
    }
    ui_table_print(t, stdout, 2);
}

static void links(const json_t *c, size_t n)
{
    static const char *const HEADS[] = {"link",       ">share out",  ">share back",
                                        ">power out", ">power back", ">rate out",
                                        ">out",       ">back",       NULL};
    struct ui_table *t = ui_table_new(HEADS);
    for (size_t j = 0; j <= n; j++) {
        bool d2d = j < n; /* the last one leads to the edge server: its band is the uplink's */
        double out = d2d ? doc_number_at(c, "band_share_fwd", j) : doc_number(c, "uplink_share");
        double back = d2d ? doc_number_at(c, "band_share_bwd", j) : NAN;
        ui_table_add(t, "%s - %s", stage_name(c, j, n), stage_name(c, j + 1, n));
        ui_table_add(t, "%s", ui_percent(100 * out).s);
        ui_table_add(t, "%s", ui_percent(100 * back).s);
        ui_table_add(t, "%s", ui_power(doc_number_at(c, "power_fwd_w", j)).s);
        ui_table_add(t, "%s", ui_power(d2d ? doc_number_at(c, "power_bwd_w", j) : NAN).s);
        ui_table_add(t, "%s", ui_rate(doc_number_at(c, "link_rate_bps", j)).s);
        ui_table_add(t, "%s", ui_time(doc_number_at(c, "link_fwd_s", j)).s);
        ui_table_add(t, "%s", ui_time(doc_number_at(c, "link_bwd_s", j)).s);
    }
    ui_table_print(t, stdout, 2);
    printf("  model upload: cu - edge, share %s, power %s, %s\n",
           ui_percent(100 * doc_number(c, "uplink_share")).s,
           ui_power(doc_number(c, "power_up_w")).s, ui_time(doc_number(c, "upload_s")).s);
}

/* --- one step ----------------------------------------------------------------------------------
 */

/* The style of a drawn cell; a number has that of the arrows behind it. */
static enum ui_style cell_style(const char *cell)
{
    while (*cell >= '0' && *cell <= '9') {
        cell++;
    }
    return *cell == '>'   ? UI_GOOD
           : *cell == '<' ? UI_WARN
           : *cell == 'x' ? UI_BOLD
           : *cell == '.' ? UI_DIM
                          : UI_NORMAL;
}

/* The drawing of the library, coloured behind the name of each row. */
static void drawing(const json_t *c)
{
    const char *text = json_string_value(json_object_get(c, "grid"));
    puts("\n  one step: 3>> forward, 3<< backward of micro-batch 3");
    for (const char *p = text; p && *p; p++) {
        size_t head = strcspn(p, "|:\n"), n = strcspn(p, "\n");
        enum ui_style style = UI_NORMAL;
        printf("%.*s", (int)head, p);
        for (size_t i = head; i < n; i++) {
            enum ui_style next = cell_style(p + i);
            if (next != style) {
                fputs(ui_off(stdout), stdout);
                fputs(ui_on(stdout, next), stdout);
                style = next;
            }
            putchar(p[i]);
        }
        puts(style == UI_NORMAL ? "" : ui_off(stdout));
        p += n;
    }
}

/* Mean over the stages, as a share of the step. */
static double bubble_pct(const json_t *c, const char *part)
{
    const json_t *b = json_object_get(c, "bubble");
    size_t n = json_array_size(doc_array(b, part));
    double sum = 0;
    for (size_t j = 0; j < n; j++) {
        sum += doc_number_at(b, part, j);
    }
    return 100 * sum / ((double)n * doc_number(c, "step_s"));
}

static void time_lines(const json_t *c, const char *slowest)
{
    const json_t *round = json_object_get(c, "round_parts");
    bool slow = strcmp(slowest, doc_text(c, "name")) == 0;
    if (!json_is_null(json_object_get(c, "bubble"))) {
        printf("  bubble %s of a step: fill and drain %s, unequal stages %s, links %s\n",
               ui_percent(doc_number(c, "bubble_pct")).s, ui_percent(bubble_pct(c, "fill_s")).s,
               ui_percent(bubble_pct(c, "imbalance_s")).s,
               ui_percent(bubble_pct(c, "transfer_s")).s);
    }
    fputs("  ", stdout);
    say(2, "round: broadcast %s, steps %s, exchange %s%s%s %s",
        ui_time(doc_number(round, "broadcast_s")).s, ui_time(doc_number(round, "steps_s")).s,
        ui_time(doc_number(round, "exchange_s")).s, slow ? "" : ", waiting for ",
        slow ? "" : slowest, slow ? "" : ui_time(doc_number(round, "straggler_s")).s);
}

static void step_table(const json_t *c, size_t n)
{
    static const char *const HEADS[] = {"node",   ">busy", ">%", ">fill, drain", ">unequal stages",
                                        ">links", NULL};
    const json_t *b = json_object_get(c, "bubble");
    double step_s = doc_number(c, "step_s");
    struct ui_table *t = ui_table_new(HEADS);
    printf("\n  where the %s of a step go\n", ui_time(step_s).s);
    for (size_t j = 0; j < n + 2; j++) {
        double busy_s = doc_number_at(b, "busy_s", j);
        ui_table_add(t, "%s", stage_name(c, j, n));
        ui_table_add(t, "%s", ui_time(busy_s).s);
        ui_table_add(t, "%s", ui_percent(100 * busy_s / step_s).s);
        ui_table_add(t, "%s", ui_time(doc_number_at(b, "fill_s", j)).s);
        ui_table_add(t, "%s", ui_time(doc_number_at(b, "imbalance_s", j)).s);
        ui_table_add(t, "%s", ui_time(doc_number_at(b, "transfer_s", j)).s);
    }
    ui_table_print(t, stdout, 2);
}

/* --- why -----------------------------------------------------------------------------------------
 */

/* "+3.2 %" */
static const char *change_text(double percent, char out[32])
{
    bool small = percent > -0.0005 && percent < 0.0005;
    snprintf(out, 32, percent < 10 && percent > -10 ? "%+.3g %%" : "%+.0f %%", small ? 0 : percent);
    return out;
}

/* What one layer more or less on a device would cost. */
static void add_layer_change(struct ui_table *t, const json_t *device, const char *key,
                             const char *other)
{
    const json_t *x = json_object_get(device, key);
    double more = doc_number(device, "more_bytes"), limit = doc_number(device, "mem_limit_bytes");
    char percent[32];
    if (json_is_object(x)) {
        double seconds = doc_number(x, "latency_change_s");
        ui_table_add(t, "%s, %s%s, %s %s",
                     change_text(doc_number(x, "objective_change_pct"), percent),
                     seconds < 0 ? "" : "+", ui_time(seconds).s, other, doc_text(x, "other"));
    } else if (strcmp(key, "more") == 0 && more > limit) {
        ui_table_add(t, "memory: needs %s of %s", ui_bytes(more).s, ui_bytes(limit).s);
    } else {
        ui_table_add(t, "-");
    }
}

static void why_devices(const json_t *why)
{
    static const char *const HEADS[] = {"device",         ">layers",        ">time per layer",
                                        "one layer more", "one layer less", NULL};
    const json_t *devices = doc_array(why, "devices");
    struct ui_table *t = ui_table_new(HEADS);
    puts("\n  why these layers: change of the objective and of the round, by the best partner");
    for (size_t i = 0; i < json_array_size(devices); i++) {
        const json_t *d = json_array_get(devices, i);
        bool present = doc_bool(d, "present");
        ui_table_add(t, "%s", doc_text(d, "name"));
        ui_table_add(t, "%s", present ? ui_count(doc_int(d, "layers", 0)).s : "absent");
        ui_table_add(t, "%s", present ? ui_time(doc_number(d, "layer_s")).s : "-");
        add_layer_change(t, d, "more", "from");
        add_layer_change(t, d, "less", "to");
    }
    ui_table_print(t, stdout, 2);
}

static void bind_line(const json_t *b, double objective)
{
    const char *what = doc_text(b, "what"), *cluster = doc_text(b, "cluster");
    const char *node = doc_text(b, "node");
    struct ui_text share = ui_percent(100 * doc_number(b, "cost") / objective);
    fputs("  ", stdout);
    if (strcmp(what, "slowest cluster") == 0) {
        say(2, "%s is the slowest cluster, by %s", cluster, ui_time(doc_number(b, "ahead_s")).s);
    } else if (strcmp(what, "stage") == 0 || strcmp(what, "link") == 0) {
        say(2, "%s %s.%s: a tenth less time there makes the steps of %s %s shorter",
            strcmp(what, "stage") == 0 ? "compute of" : "link", cluster, node, cluster,
            ui_percent(doc_number(b, "tenth_pct")).s);
    } else if (strcmp(what, "memory") == 0) {
        say(2, "memory of %s.%s: %s of %s used, one layer more needs %s", cluster, node,
            ui_bytes(doc_number(b, "used_bytes")).s, ui_bytes(doc_number(b, "limit_bytes")).s,
            ui_bytes(doc_number(b, "more_bytes")).s);
    } else if (strcmp(what, "energy queue") == 0) {
        say(2, "energy queue of %s.%s: %s of a budget of %s, %s of the objective", cluster, node,
            ui_energy(doc_number(b, "used_j")).s, ui_energy(doc_number(b, "budget_j")).s, share.s);
    } else {
        say(2, "%s: gamma %s (1 or less in the long run), %s of the objective", what,
            ui_number(doc_number(b, "gamma")).s, share.s);
    }
}

static void why_binds(const json_t *why, double objective)
{
    enum { MOST = 12 };
    const json_t *binds = doc_array(why, "binds"), *parts = json_object_get(why, "objective");
    size_t n = json_array_size(binds);
    printf("\n%swhat binds%s\n", ui_on(stdout, UI_BOLD), ui_off(stdout));
    printf("  objective %s = latency %s + energy %s + convergence %s\n", ui_number(objective).s,
           ui_number(doc_number(parts, "latency")).s, ui_number(doc_number(parts, "energy")).s,
           ui_number(doc_number(parts, "convergence")).s);
    for (size_t i = 0; i < n && i < MOST; i++) {
        bind_line(json_array_get(binds, i), objective);
    }
    if (n > MOST) {
        printf("  and %zu more; --format json tells all\n", n - MOST);
    }
}

static void why_next(const json_t *why)
{
    const json_t *next = json_object_get(why, "next");
    char percent[32];
    if (!json_is_object(next)) {
        return;
    }
    double change = doc_number(next, "objective_change_pct");
    printf("\n%s%s%s\n", ui_on(stdout, UI_BOLD),
           change < 0 ? "a better plan is next to this one" : "next best plan", ui_off(stdout));
    fputs("  ", stdout);
    say(2, "%s: %s: objective %s (%s), %s per round", doc_text(next, "cluster"),
        doc_text(next, "change"), ui_number(doc_number(next, "objective")).s,
        change_text(change, percent), ui_time(doc_number(next, "latency_s")).s);
    fputs("  ", stdout);
    ui_wrap(stdout, 2, 4, doc_text(next, "cut"));
}

static void why_what_if(const json_t *why)
{
    static const char *const HEADS[] = {"if there were", ">times",   ">objective",
                                        ">per round",    "~the cut", NULL};
    const json_t *list = doc_array(why, "what_if");
    if (json_array_size(list) == 0) {
        return;
    }
    struct ui_table *t = ui_table_new(HEADS);
    printf("\n%swhat would change the cut%s (all else as it is)\n", ui_on(stdout, UI_BOLD),
           ui_off(stdout));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *x = json_array_get(list, i);
        double factor = doc_number(x, "factor");
        char *cut = doc_join(x, "cut", "; ");
        ui_table_add(t, "%s", doc_text(x, "what"));
        ui_table_add(t, isfinite(factor) ? "%.2f" : "-", factor);
        ui_table_add(t, "%s", ui_number(doc_number(x, "objective")).s);
        ui_table_add(t, "%s", ui_time(doc_number(x, "latency_s")).s);
        if (isfinite(factor)) {
            ui_table_add(t, "%s", cut);
        } else {
            ui_table_add(t, "no change up to %d times", doc_int(x, "up_to", 0));
        }
        free(cut);
    }
    ui_table_print(t, stdout, 2);
}

/* What a cluster does that is no pipeline; NULL if it is one. */
static const char *mode_text(const char *mode)
{
    return strcmp(mode, "full") == 0    ? "the whole model on every device"
           : strcmp(mode, "split") == 0 ? "the first layers on every device, the others on the edge"
                                        : NULL;
}

static void print_cluster(const json_t *c, const json_t *why, const char *slowest)
{
    size_t n = json_array_size(doc_array(c, "segments"));
    const char *apart = mode_text(doc_text(c, "mode"));
    const char *name = doc_text(c, "name");
    printf("\n%scluster %s%s  ", ui_on(stdout, UI_BOLD), name, ui_off(stdout));
    say(10 + ui_columns(name), "%s, M %d, step %s, round %s", apart ? apart : doc_text(c, "order"),
        doc_int(c, "micro_batches", 0), ui_time(doc_number(c, "step_s")).s,
        ui_time(doc_number(c, "round_s")).s);
    time_lines(c, slowest);
    if (apart) {
        apart_devices(c, n);
        return;
    }
    putchar('\n');
    stages(c, n);
    putchar('\n');
    links(c, n);
    drawing(c);
    if (why) {
        step_table(c, n);
        why_devices(why);
    }
}

static void next_best(const json_t *doc)
{
    static const char *const HEADS[] = {"policy", ">objective", ">latency", ">ratio", "~", NULL};
    const json_t *list = doc_array(doc, "next_best");
    double latency_s = doc_number(doc, "latency_s");
    if (json_array_size(list) == 0) {
        return;
    }
    printf("\n%sother policies%s\n", ui_on(stdout, UI_BOLD), ui_off(stdout));
    struct ui_table *t = ui_table_new(HEADS);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *p = json_array_get(list, i);
        double other_s = doc_number(p, "latency_s");
        const char *why = doc_text(p, "why");
        ui_table_add(t, "%s", doc_text(p, "policy"));
        ui_table_add(t, "%s", ui_number(doc_number(p, "objective")).s);
        ui_table_add(t, "%s", ui_time(other_s).s);
        ui_table_add(t, isfinite(other_s) ? "%.2f x" : "-", other_s / latency_s);
        ui_table_add(t, "%s", strcmp(why, "-") == 0 ? "" : why);
    }
    ui_table_print(t, stdout, 2);
}

static const char *slowest_cluster(const json_t *clusters)
{
    double most_s = -1;
    const char *name = "-";
    for (size_t i = 0; i < json_array_size(clusters); i++) {
        const json_t *c = json_array_get(clusters, i);
        if (doc_number(c, "round_s") > most_s) {
            most_s = doc_number(c, "round_s");
            name = doc_text(c, "name");
        }
    }
    return name;
}

static void print(const json_t *doc)
{
    const json_t *clusters = doc_array(doc, "clusters"), *why = json_object_get(doc, "explain");
    const char *slowest = slowest_cluster(clusters);
    heading(doc);
    for (size_t i = 0; i < json_array_size(clusters); i++) {
        print_cluster(json_array_get(clusters, i),
                      why ? json_array_get(doc_array(why, "clusters"), i) : NULL, slowest);
    }
    if (why) {
        why_binds(why, doc_number(doc, "objective"));
        why_next(why);
        why_what_if(why);
        next_best(doc);
    }
}

static int plan(const struct args *a, const collapipe_config *c)
{
    struct collapipe_plan_options opt = {
        .policy = a->policy, .explain = a->explain, .columns = a->json ? 0 : ui_screen(stdout)};
    char *json = NULL;
    int status = collapipe_plan(c, &opt, &json);
    if (status) {
        return app_fail_library(a, status);
    }
    if (a->json) {
        app_print_json(json);
    } else {
        json_t *doc = doc_parse(json);
        print(doc);
        json_decref(doc);
    }
    collapipe_free(json);
    return COLLAPIPE_OK;
}

int cmd_plan(const struct args *a)
{
    collapipe_config *c = NULL;
    int status = app_config_open(a, &c);
    if (!status && a->print_config) {
        status = app_config_print(a, c);
    } else if (!status && a->dry_run) {
        puts(a->json ? "{\"ok\": true}" : "The configuration is good; nothing was planned.");
    } else if (!status) {
        status = plan(a, c);
    }
    collapipe_config_close(c);
    return status;
}
