/* cmd_plan: one decision as tables. */
#include "app.h"
#include "json.h"
#include "ui.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void heading(const json_t *doc)
{
    char *binding = doc_join(doc, "binding", ", ");
    printf("%splan of %s%s: %s and %s per round (modelled)\n", ui_on(stdout, UI_BOLD),
           doc_text(doc, "policy"), ui_off(stdout), ui_time(doc_number(doc, "latency_s")).s,
           ui_energy(doc_number(doc, "round_energy_j")).s);
    printf("  objective %s", ui_number(doc_number(doc, "objective")).s);
    if (isfinite(doc_number(doc, "gap_bound"))) {
        printf(", at most %s above the best", ui_number(doc_number(doc, "gap_bound")).s);
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
static void full_devices(const json_t *c, size_t n)
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

/* The pipeline as the library draws it: "  name  |" and cells of four columns per row. It is cut
 * into panels that fit; only the first is shown, or all. */
static void grid(const json_t *c, bool all)
{
    enum { CELL = 4 };
    const char *text = json_string_value(json_object_get(c, "grid"));
    size_t longest = 0, head = text ? strcspn(text, "|") + 1 : 0;
    size_t panel = head < UI_WIDTH ? (UI_WIDTH - head) / CELL * CELL : 0;
    for (const char *p = text; p && *p; p += strcspn(p, "\n"), p += *p == '\n') {
        size_t n = strcspn(p, "\n");
        longest = n > longest ? n : longest;
    }
    if (longest <= head || panel == 0) {
        return;
    }
    printf("\n  one step: F forward, B backward of micro-batch 1, 2, ...%s\n",
           head + panel < longest && !all ? " (its first part; --explain draws all)" : "");
    for (size_t from = head; from < longest && (all || from == head); from += panel) {
        for (const char *p = text; *p; p += strcspn(p, "\n"), p += *p == '\n') {
            size_t n = strcspn(p, "\n"), left = n > from ? n - from : 0;
            printf("%.*s%.*s\n", (int)(head < n ? head : n), p, (int)(left < panel ? left : panel),
                   p + from * (left > 0));
        }
    }
}

static void print_cluster(const json_t *c, size_t index, bool explain)
{
    size_t n = json_array_size(doc_array(c, "segments"));
    bool full = strcmp(doc_text(c, "mode"), "full") == 0;
    char name[64];
    snprintf(name, sizeof name, "%zu", index + 1);
    if (json_is_string(json_object_get(c, "name"))) {
        snprintf(name, sizeof name, "%.60s", doc_text(c, "name"));
    }
    printf("\n%scluster %s%s  ", ui_on(stdout, UI_BOLD), name, ui_off(stdout));
    if (full) {
        printf("every device trains the whole model; M %d", doc_int(c, "micro_batches", 0));
    } else {
        printf("%s, M %d", doc_text(c, "order"), doc_int(c, "micro_batches", 0));
    }
    printf(", step %s, round %s, bubble %s\n", ui_time(doc_number(c, "step_s")).s,
           ui_time(doc_number(c, "round_s")).s, ui_percent(doc_number(c, "bubble_pct")).s);
    if (full) {
        full_devices(c, n);
        return;
    }
    stages(c, n);
    putchar('\n');
    links(c, n);
    grid(c, explain);
}

static void next_best(const json_t *doc)
{
    static const char *const HEADS[] = {"policy", ">objective", ">latency", ">ratio", "~", NULL};
    const json_t *list = doc_array(doc, "next_best");
    double latency_s = doc_number(doc, "latency_s");
    if (json_array_size(list) == 0) {
        return;
    }
    printf("\n%snext best plans%s\n", ui_on(stdout, UI_BOLD), ui_off(stdout));
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

static int plan(const struct args *a, const collapipe_config *c)
{
    char *json = NULL;
    int status = collapipe_plan(c, a->policy, a->explain, &json);
    if (status) {
        return app_fail_library(a, status);
    }
    if (a->json) {
        app_print_json(json);
    } else {
        json_t *doc = doc_parse(json);
        const json_t *clusters = doc_array(doc, "clusters");
        heading(doc);
        for (size_t i = 0; i < json_array_size(clusters); i++) {
            print_cluster(json_array_get(clusters, i), i, a->explain);
        }
        next_best(doc);
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
