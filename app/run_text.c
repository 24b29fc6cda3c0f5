#include "run_text.h"

#include "app.h"
#include "json.h"
#include "ui.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char HELDOUT[] = "data/heldout.tsv"; /* where a template has it */

enum { FEW_CLUSTERS = 4, MANY_NODES = 24, LINE = 1024 };

/* "1.234", or that it is not a number any more. */
static struct ui_text loss_of(const json_t *o, const char *key)
{
    struct ui_text t = {"-"};
    char flag[64];
    snprintf(flag, sizeof flag, "%s_nonfinite", key);
    double x = doc_number(o, key);
    if (isfinite(x)) {
        snprintf(t.s, sizeof t.s, "%.3f", x);
    } else if (doc_bool(o, flag)) {
        snprintf(t.s, sizeof t.s, "not finite");
    }
    return t;
}

/* --- start ----------------------------------------------------------------------------------- */

static void label(FILE *f, const char *text)
{
    fprintf(f, "  %s%-10s%s", ui_on(f, UI_DIM), text, ui_off(f));
}

static void start_data(FILE *f, const json_t *e)
{
    const json_t *clusters = doc_array(e, "clusters");
    char line[LINE];
    int n = snprintf(line, sizeof line, "%s samples", ui_count(doc_number(e, "samples")).s);
    for (size_t i = 0; i < json_array_size(clusters) && n < LINE - 200; i++) {
        const json_t *c = json_array_get(clusters, i);
        n += snprintf(line + n, sizeof line - (size_t)n, "%s %.40s %s", i ? "," : ":",
                      doc_text(c, "name"), ui_count(doc_number(c, "samples")).s);
    }
    snprintf(line + n, sizeof line - (size_t)n, "; %s held out; %s classes",
             ui_count(doc_number(e, "heldout")).s, ui_count(doc_number(e, "classes")).s);
    label(f, "data");
    ui_wrap(f, 12, 12, line);
}

void run_text_start(FILE *f, const json_t *e)
{
    char line[LINE];
    int first = doc_int(e, "first_round", 1), rounds = doc_int(e, "rounds", 0);
    const char *id = doc_text(e, "run_id");
    fprintf(f, "%s%s%s%s\n", ui_on(f, UI_BOLD), id[0] ? "run " : "dry run", id, ui_off(f));
    start_data(f, e);
    label(f, "model");
    fprintf(f, "%s parameters", ui_count(doc_number(e, "params")).s);
    if (doc_number(e, "cut_rows") > 0) {
        fprintf(f, "; %s samples are longer than model.max_len and were cut",
                ui_count(doc_number(e, "cut_rows")).s);
    }
    fputc('\n', f);
    label(f, "training");
    snprintf(line, sizeof line, "%d rounds of %d local steps%s; policy %s; seed %s", rounds,
             doc_int(e, "local_steps", 0), first > 1 ? "" : " in each cluster",
             doc_text(e, "policy"), ui_count(doc_number(e, "seed")).s);
    if (first > 1) {
        size_t n = strlen(line);
        snprintf(line + n, sizeof line - n, "; goes on with round %d", first);
    }
    ui_wrap(f, 12, 12, line);
    if (doc_text(e, "dir")[0]) {
        char *dir = ui_path(doc_text(e, "dir"));
        label(f, "files");
        fprintf(f, "%s\n", dir);
        free(dir);
    }
    label(f, "note");
    ui_wrap(f, 12, 12,
            "the training is real, here on this machine; latency and energy are modelled for the "
            "devices and radio of the configuration");
    fputc('\n', f);
}

/* --- a round --------------------------------------------------------------------------------- */

/* Appends to a line; what does not fit is left out. */
static void add(char *line, size_t size, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void add(char *line, size_t size, const char *fmt, ...)
{
    va_list ap;
    size_t n = strlen(line);
    va_start(ap, fmt);
    vsnprintf(line + n, size - n, fmt, ap);
    va_end(ap);
}

/* "3-5", or "3" for one layer. */
static void range_text(int first, int last, char out[32])
{
    snprintf(out, 32, last > first ? "%d-%d" : "%d", first, last);
}

/* "cu[emb] d2[1-2] d1[3] edge[head]"; with layers on the edge server "edge[4,head]". In full
 * "d1[all] d2[all]", in split "d1[emb,1-2] d2[emb,1-2] edge[3-4,head]". */
static void pipeline_text(const json_t *cluster, char *out, size_t size)
{
    const char *mode = doc_text(cluster, "mode");
    bool full = strcmp(mode, "full") == 0, split = strcmp(mode, "split") == 0;
    int n_edge = doc_int(cluster, "edge_layers", 0), layer = 1;
    char range[32];
    snprintf(out, size, full || split ? "" : "cu[emb]");
    for (size_t s = 0; s < json_array_size(doc_array(cluster, "devices")); s++) {
        int last = layer + doc_int_at(cluster, "segments", s, 1) - 1;
        range_text(layer, last, range);
        add(out, size, "%s%.40s[%s%s]", out[0] ? " " : "", doc_text_at(cluster, "devices", s),
            split ? "emb," : "", full ? "all" : range);
        layer = full || split ? layer : last + 1;
    }
    if (split) {
        layer += doc_int_at(cluster, "segments", 0, 1);
    }
    range_text(layer, layer + n_edge - 1, range);
    if (!full) {
        add(out, size, " edge[%s%shead]", n_edge > 0 ? range : "", n_edge > 0 ? "," : "");
    }
}

/* "1f1b", or the mode where the devices train apart. */
static const char *order_text(const json_t *cluster)
{
    const char *mode = doc_text(cluster, "mode");
    bool apart = strcmp(mode, "full") == 0 || strcmp(mode, "split") == 0;
    return apart ? mode : doc_text(cluster, "order");
}

/* The plan of a cluster, without its order and micro-batches. */
static char *plan_text(const json_t *c)
{
    char line[LINE], pipeline[LINE / 2];
    pipeline_text(c, pipeline, sizeof pipeline);
    char *standby = doc_join(c, "standby", ", "), *absent = doc_join(c, "absent", ", ");
    snprintf(line, sizeof line, "%s%s%.200s%s%.200s", pipeline, standby[0] ? "  stand-by: " : "",
             standby, absent[0] ? "  away: " : "", absent);
    free(standby);
    free(absent);
    return app_copy(line);
}

static void print_cluster(FILE *f, const json_t *c, int name_width, const char *plan)
{
    char *name = ui_clean(doc_text(c, "name"), name_width);
    int column = fprintf(f, "     %*s", name_width - ui_columns(name), "") + ui_columns(name);
    column += fprintf(f, "%s  %-5s M %-2d  step %8s  ", name, order_text(c),
                      doc_int(c, "micro_batches", 0), ui_time(doc_number(c, "step_s")).s) -
              (int)strlen(name);
    ui_wrap(f, column, column, plan);
    free(name);
}

static int widest_name(const json_t *clusters)
{
    int width = 2;
    for (size_t i = 0; i < json_array_size(clusters); i++) {
        int n = ui_columns(doc_text(json_array_get(clusters, i), "name"));
        width = n > width ? n : width;
    }
    return width < 16 ? width : 16;
}

/* With many clusters only those whose plan is another than before. */
static void round_clusters(FILE *f, const json_t *round, char **last, size_t n_last)
{
    const json_t *clusters = doc_array(round, "clusters");
    size_t n = json_array_size(clusters), same = 0;
    int name_width = widest_name(clusters);
    for (size_t i = 0; i < n; i++) {
        const json_t *c = json_array_get(clusters, i);
        char *plan = plan_text(c);
        char key[LINE + 64];
        snprintf(key, sizeof key, "%s %d %s", order_text(c), doc_int(c, "micro_batches", 0), plan);
        if (i < n_last && last[i] && strcmp(last[i], key) == 0 && n > FEW_CLUSTERS) {
            same++;
        } else {
            print_cluster(f, c, name_width, plan);
        }
        if (i < n_last) {
            free(last[i]);
            last[i] = app_copy(key);
        }
        free(plan);
    }
    if (same) {
        fprintf(f, "     %zu cluster%s as before\n", same, same == 1 ? "" : "s");
    }
}

static void note_line(FILE *f, enum ui_style style, const char *name, const char *text)
{
    int column = 5 + (int)strlen(name) + 2;
    fprintf(f, "     %s%s:%s ", ui_on(f, style), name, ui_off(f));
    ui_wrap(f, column, 9, text);
}

static bool same_text(const json_t *a, const json_t *b, const char *key)
{
    return strcmp(doc_text(a, key), doc_text(b, key)) == 0;
}

/* "layers 1-3 d4 -> d2": the moves of a cluster, neighbours between the same devices as one. */
static void add_moves(char *line, size_t size, const json_t *moves, const char *cluster)
{
    size_t n = json_array_size(moves);
    for (size_t i = 0, end; i < n; i = end) {
        const json_t *m = json_array_get(moves, i);
        int layer = doc_int(m, "layer", 0), last = layer;
        for (end = i + 1; end < n; end++, last++) {
            const json_t *next = json_array_get(moves, end);
            if (!same_text(m, next, "cluster") || !same_text(m, next, "from") ||
                !same_text(m, next, "to") || doc_int(next, "layer", 0) != last + 1) {
                break;
            }
        }
        if (strcmp(doc_text(m, "cluster"), cluster) == 0) {
            add(line, size, "%slayer%s %d", line[0] ? ", " : "", last > layer ? "s" : "", layer);
            if (last > layer) {
                add(line, size, "-%d", last);
            }
            add(line, size, " %.40s -> %.40s", doc_text(m, "from"), doc_text(m, "to"));
        }
    }
}

/* Whether a sentence of "changes" is about a layer that moved: those are told by add_moves. */
static bool is_move(const char *sentence)
{
    int layer;
    return sscanf(sentence, "layer %d", &layer) == 1;
}

/* All changes of a round, cluster by cluster: "c1: layers 3-4 d1 -> d3, M 8 -> 9; c2: ...". The
 * sentences of the library start with the cluster's name. */
static void changes_text(const json_t *round, char *all, size_t size)
{
    const json_t *clusters = doc_array(round, "clusters"), *list = doc_array(round, "changes");
    all[0] = 0;
    for (size_t c = 0; c < json_array_size(clusters); c++) {
        const char *name = doc_text(json_array_get(clusters, c), "name");
        size_t n = strlen(name);
        char line[2 * LINE] = "";
        add_moves(line, sizeof line, doc_array(round, "moves"), name);
        for (size_t i = 0; i < json_array_size(list); i++) {
            const char *sentence = doc_text_at(round, "changes", i);
            if (strncmp(sentence, name, n) == 0 && strncmp(sentence + n, ": ", 2) == 0 &&
                !is_move(sentence + n + 2)) {
                add(line, sizeof line, "%s%.200s", line[0] ? ", " : "", sentence + n + 2);
            }
        }
        if (line[0]) {
            add(all, size, "%s%.60s: %s", all[0] ? "; " : "", name, line);
        }
    }
}

static void round_queues(FILE *f, const json_t *round)
{
    char *binding = doc_join(round, "binding", ", ");
    bool kept = doc_bool(round, "kept");
    const char *note = doc_text(round, "note");
    if (kept || (note[0] && strcmp(note, "-") != 0)) {
        char line[LINE];
        snprintf(line, sizeof line, "%s%s%.900s", kept ? "last round's plan is kept" : "",
                 kept && note[0] ? ": " : "", note);
        note_line(f, UI_WARN, kept ? "no new plan" : "note", line);
    }
    if (binding[0] || kept) {
        char line[LINE];
        double energy = doc_number(round, "queue_energy_max");
        int n =
            snprintf(line, sizeof line, "%.700s%squeues: convergence %s", binding,
                     binding[0] ? "; " : "", ui_number(doc_number(round, "queue_convergence")).s);
        if (energy > 0 && n < LINE) {
            snprintf(line + n, sizeof line - (size_t)n, ", energy up to %s", ui_number(energy).s);
        }
        note_line(f, UI_DIM, "binds", line);
    }
    free(binding);
}

void run_text_round(FILE *f, const json_t *round, int rounds, char **last, size_t n_last)
{
    const json_t *eval = json_object_get(round, "eval");
    char total[16], line[LINE];
    int width = snprintf(total, sizeof total, "%d", rounds);
    int column = fprintf(f, "%sround %*d/%s%s", ui_on(f, UI_BOLD), width,
                         doc_int(round, "round", 0), total, ui_off(f)) -
                 (int)strlen(ui_on(f, UI_BOLD)) - (int)strlen(ui_off(f));
    snprintf(line, sizeof line,
             "  loss %s  accuracy %6s  latency %s  energy %s  bubble %s  wall %s",
             loss_of(round, "train_loss").s, ui_percent(100 * doc_number(eval, "accuracy")).s,
             ui_time(doc_number(round, "latency_s")).s, ui_energy(doc_number(round, "energy_j")).s,
             ui_percent(doc_number(round, "bubble_pct")).s, ui_span(doc_number(round, "wall_s")).s);
    ui_wrap(f, column, 5, line);
    round_clusters(f, round, last, n_last);
    char changes[4 * LINE];
    changes_text(round, changes, sizeof changes);
    if (changes[0]) {
        note_line(f, UI_GOOD, "changed", changes);
    }
    round_queues(f, round);
}

void run_text_rounds(FILE *f, const json_t *rounds)
{
    static const char *const HEADS[] = {">round",  ">loss", ">accuracy", ">latency", ">energy",
                                        ">bubble", ">wall", "~changed",  NULL};
    struct ui_table *t = ui_table_new(HEADS);
    for (size_t i = 0; i < json_array_size(rounds); i++) {
        const json_t *r = json_array_get(rounds, i), *eval = json_object_get(r, "eval");
        char changes[4 * LINE];
        changes_text(r, changes, sizeof changes);
        ui_table_add(t, "%d", doc_int(r, "round", 0));
        ui_table_add(t, "%s", loss_of(r, "train_loss").s);
        ui_table_add(t, "%s", ui_percent(100 * doc_number(eval, "accuracy")).s);
        ui_table_add(t, "%s", ui_time(doc_number(r, "latency_s")).s);
        ui_table_add(t, "%s", ui_energy(doc_number(r, "energy_j")).s);
        ui_table_add(t, "%s", ui_percent(doc_number(r, "bubble_pct")).s);
        ui_table_add(t, "%s", ui_span(doc_number(r, "wall_s")).s);
        ui_table_add(t, "%s", changes);
    }
    ui_table_print(t, f, 2);
}

/* --- the end --------------------------------------------------------------------------------- */

static void title(FILE *f, const char *text)
{
    fprintf(f, "\n%s%s%s\n", ui_on(f, UI_BOLD), text, ui_off(f));
}

static double peak_of_devices(const json_t *doc)
{
    double peak = NAN;
    const json_t *clusters = doc_array(doc, "clusters");
    for (size_t c = 0; c < json_array_size(clusters); c++) {
        const json_t *nodes = doc_array(json_array_get(clusters, c), "nodes");
        for (size_t i = 0; i < json_array_size(nodes); i++) {
            const json_t *node = json_array_get(nodes, i);
            if (strcmp(doc_text(node, "role"), "device") == 0) {
                peak = fmax(peak, doc_number(node, "mem_peak_bytes"));
            }
        }
    }
    return peak;
}

static void baselines(FILE *f, const json_t *doc)
{
    static const char *const HEADS[] = {"policy",  ">latency", ">ratio", ">energy",
                                        ">memory", "~",        NULL};
    const json_t *list = doc_array(doc, "baselines");
    double latency_s = doc_number(doc, "latency_s");
    if (json_array_size(list) == 0 || !isfinite(latency_s)) {
        return;
    }
    title(f, "Against other ways to train (modelled; per round, memory of the fullest device)");
    struct ui_table *t = ui_table_new(HEADS);
    ui_table_add(t, "%s", doc_text(doc, "policy"));
    ui_table_add(t, "%s", ui_time(latency_s).s);
    ui_table_add(t, "1.00 x");
    ui_table_add(t, "%s", ui_energy(doc_number(doc, "energy_j")).s);
    ui_table_add(t, "%s", ui_bytes(peak_of_devices(doc)).s);
    ui_table_add(t, "this run");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *b = json_array_get(list, i);
        bool feasible = doc_bool(b, "feasible");
        double other_s = doc_number(b, "latency_s"); /* null where it has no plan at all */
        if (strcmp(doc_text(b, "policy"), doc_text(doc, "policy")) == 0) {
            continue; /* it is this run */
        }
        ui_table_add(t, "%s", doc_text(b, "policy"));
        ui_table_add(t, "%s", ui_time(other_s).s);
        ui_table_add(t, isfinite(other_s) ? "%.2f x" : "-", other_s / latency_s);
        ui_table_add(t, "%s", ui_energy(doc_number(b, "energy_j")).s);
        ui_table_add(t, "%s", ui_bytes(doc_number(b, "mem_peak_bytes")).s);
        ui_table_add(t, "%s%s",
                     feasible             ? "modelled, not trained"
                     : !isfinite(other_s) ? "not possible: "
                                          : "as if memory had no limit; in truth not possible: ",
                     feasible ? "" : doc_text(b, "why"));
    }
    ui_table_print(t, f, 2);
}

/* What a node holds: "emb", "1-2", "head", "emb,1-2", "3-4,head", "all". last: the head's block. */
static void blocks_text(const json_t *node, int last_block, char *out, size_t size)
{
    double from = doc_number_at(node, "blocks", 0), to = doc_number_at(node, "blocks", 1);
    if (!isfinite(from)) {
        snprintf(out, size, "stand-by");
        return;
    }
    char range[32] = "";
    int first = (int)from, last = (int)to;
    bool emb = first == 0, head = last == last_block;
    first += emb;
    last -= head;
    if (first <= last) {
        range_text(first, last, range);
    }
    snprintf(out, size, "%s%s%s%s%s", emb ? "emb" : "", emb && range[0] ? "," : "", range,
             head && (emb || range[0]) ? "," : "", head ? "head" : "");
    if (emb && head) {
        snprintf(out, size, "all");
    }
}

/* The block of the head: the last one that anybody holds. */
static int find_head(const json_t *nodes)
{
    int head = 0;
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        double last = doc_number_at(json_array_get(nodes, i), "blocks", 1);
        head = isfinite(last) && last > head ? (int)last : head;
    }
    return head;
}

static void nodes(FILE *f, const json_t *doc)
{
    static const char *const HEADS[] = {"node",           "role",  ">layers", ">slots", ">counted",
                                        ">size function", ">busy", ">sent",   NULL};
    const json_t *clusters = doc_array(doc, "clusters");
    size_t count = 0, idle = 0;
    for (size_t c = 0; c < json_array_size(clusters); c++) {
        count += json_array_size(doc_array(json_array_get(clusters, c), "nodes"));
    }
    title(f, "Nodes (memory counted by the allocator beside what the size function said)");
    struct ui_table *t = ui_table_new(HEADS);
    for (size_t c = 0; c < json_array_size(clusters); c++) {
        const json_t *cluster = json_array_get(clusters, c), *list = doc_array(cluster, "nodes");
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *node = json_array_get(list, i);
            char blocks[48], slots[16] = "-";
            if (count > MANY_NODES && !(doc_number(node, "mem_peak_bytes") > 0)) {
                idle++;
                continue;
            }
            blocks_text(node, find_head(list), blocks, sizeof blocks);
            if (doc_int(node, "slots", 0) > 0) {
                snprintf(slots, sizeof slots, "%d", doc_int(node, "slots", 0));
            }
            ui_table_add(t, "%s", doc_text(node, "name"));
            ui_table_add(t, "%s", doc_text(node, "role"));
            ui_table_add(t, "%s", blocks);
            ui_table_add(t, "%s", slots);
            ui_table_add(t, "%s", ui_bytes(doc_number(node, "mem_peak_bytes")).s);
            ui_table_add(t, "%s", ui_bytes(doc_number(node, "mem_model_bytes")).s);
            ui_table_add(t, "%s", ui_time(doc_number(node, "busy_s")).s);
            ui_table_add(t, "%s", ui_bytes(doc_number(node, "sent_bytes")).s);
        }
    }
    ui_table_print(t, f, 2);
    if (idle) {
        fprintf(f, "  and %zu devices that stood by all the time\n", idle);
    }
}

static void result(FILE *f, const json_t *doc)
{
    const json_t *eval = json_object_get(doc, "eval");
    const json_t *loss = doc_array(doc, "train_loss");
    size_t n = json_array_size(loss);
    title(f, doc_bool(doc, "interrupted") ? "Stopped before the last round" : "Result");
    label(f, "accuracy");
    fprintf(f, "%s of %s held-out samples (loss %s)\n",
            ui_percent(100 * doc_number(eval, "accuracy")).s,
            ui_count(doc_number(eval, "samples")).s, loss_of(eval, "loss").s);
    label(f, "training");
    fprintf(f, "%d rounds, %s steps", doc_int(doc, "rounds", 0),
            ui_count(doc_number(doc, "steps")).s);
    if (n) {
        double first = doc_number_at(doc, "train_loss", 0);
        double last = doc_number_at(doc, "train_loss", n - 1);
        if (isfinite(first) && isfinite(last)) {
            fprintf(f, ", loss %.3f -> %.3f", first, last);
        }
    }
    fprintf(f, ", %s on this machine\n", ui_span(doc_number(doc, "wall_s")).s);
    double time_s = doc_number(doc, "model_time_s");
    label(f, "modelled");
    fprintf(f, "%s, %s for all rounds; bubble %s\n",
            (time_s < 60 ? ui_time(time_s) : ui_span(time_s)).s,
            ui_energy(doc_number(doc, "model_energy_j")).s,
            ui_percent(doc_number(doc, "bubble_pct")).s);
    label(f, "plan");
    fprintf(f, "layers moved between devices in %s of %d rounds\n",
            ui_count(doc_number(doc, "plan_changes")).s, doc_int(doc, "rounds", 0));
    label(f, "params");
    fprintf(f, "sha256 %.16s\n", doc_text(doc, "params_sha256"));
    label(f, "files");
    char *dir = ui_path(doc_text(doc, "dir"));
    fprintf(f, "%s\n", dir);
    free(dir);
}

void run_text_summary(FILE *f, const json_t *doc, bool hints)
{
    result(f, doc);
    baselines(f, doc);
    nodes(f, doc);
    if (!hints) {
        return;
    }
    char *dir = ui_path(doc_text(doc, "dir"));
    title(f, "Next");
    if (doc_bool(doc, "interrupted")) {
        fprintf(f, "  collapipe run --resume %s\n", dir);
    } else {
        fprintf(f, "  collapipe predict %s --text 'a text'\n", dir);
        fprintf(f, "  collapipe eval %s --data %s\n", dir, app_is_file(HELDOUT) ? HELDOUT : "FILE");
        fprintf(f, "  collapipe runs show %s\n", dir);
        fprintf(f, "  collapipe replay %s\n", dir);
    }
    free(dir);
}
