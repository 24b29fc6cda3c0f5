/* args: one table of options feeds getopt_long, --help and the names in messages. */
#include "app.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { FLAG, TEXT, TEXTS, WORD, NUMBER };

struct option_spec {
    const char *name;
    char letter; /* 0: none */
    bool common; /* every command has it */
    enum kind kind;
    const char *arg;          /* what it takes, for help */
    size_t offset;            /* in struct args */
    const char *const *words; /* WORD: NULL-terminated, the value is the index */
    long max;                 /* NUMBER: 1 to this */
    const char *help;
};

static const char *const FORMATS[] = {"text", "json", NULL};
static const char *const COLORS[] = {"auto", "always", "never", NULL};
static const char *const PROGRESSES[] = {"auto", "plain", "off", NULL};
static const char *const LEVELS[] = {"error", "warning", "info", "debug", NULL};

#define AT(field) .offset = offsetof(struct args, field)

static const struct option_spec OPTIONS[] = {
    {.name = "template",
     .kind = TEXT,
     .arg = "NAME",
     AT(template_name),
     .help = "what to start from (default classify)"},
    {.name = "list", .kind = FLAG, AT(list), .help = "name the templates and end"},
    {.name = "resume",
     .kind = TEXT,
     .arg = "RUN",
     AT(resume),
     .help = "go on from the newest checkpoint of this run folder"},
    {.name = "policy",
     .kind = TEXT,
     .arg = "NAME",
     AT(policy),
     .help = "who decides, instead of plan.policy"},
    {.name = "explain",
     .kind = FLAG,
     AT(explain),
     .help = "also why, the next best plan, and what would change it"},
    {.name = "dry-run", .kind = FLAG, AT(dry_run), .help = "check everything, start nothing"},
    {.name = "print-config",
     .kind = FLAG,
     AT(print_config),
     .help = "print every value with its origin and end"},
    {.name = "text", .kind = TEXTS, .arg = "TEXT", AT(text), .help = "a text; may be repeated"},
    {.name = "file",
     .kind = TEXT,
     .arg = "FILE",
     AT(file),
     .help = "texts, one a line, or a labelled .tsv .csv .jsonl; - is standard input"},
    {.name = "data",
     .kind = TEXT,
     .arg = "FILE",
     AT(data),
     .help = "labelled texts: .tsv, .csv or .jsonl"},
    {.name = "top",
     .kind = NUMBER,
     .arg = "N",
     AT(top),
     .max = 1000,
     .help = "the N most likely classes"},
    {.name = "rounds",
     .kind = NUMBER,
     .arg = "N",
     AT(rounds),
     .max = 1000000,
     .help = "rounds of each seed (default fed.rounds)"},
    {.name = "seeds",
     .kind = NUMBER,
     .arg = "K",
     AT(seeds),
     .max = 10000,
     .help = "worlds: seed, seed+1, ... (default 10)"},
    {.name = "threads",
     .kind = NUMBER,
     .arg = "T",
     AT(threads),
     .max = 256,
     .help = "figures do not depend on it (default: one per processor)"},
    {.name = "clusters",
     .kind = NUMBER,
     .arg = "C",
     AT(clusters),
     .max = 16384,
     .help = "of the worlds that are decided in (default 4)"},
    {.name = "devices",
     .kind = NUMBER,
     .arg = "K",
     AT(devices),
     .max = 16,
     .help = "of each cluster (default 4)"},
    {.name = "layers",
     .kind = NUMBER,
     .arg = "L",
     AT(layers),
     .max = 1024,
     .help = "encoder layers of BERT-base (default 12)"},
    {.name = "worlds",
     .kind = NUMBER,
     .arg = "N",
     AT(worlds),
     .max = 1000,
     .help = "different worlds (default 20)"},
    {.name = "out",
     .kind = TEXT,
     .arg = "FILE",
     AT(out),
     .help = "every round as it is done: NAME.csv or NAME.jsonl"},
    {.name = "dir",
     .kind = TEXT,
     .arg = "DIR",
     AT(dir),
     .help = "folder with runs.sqlite (default: run.dir of ./config.yaml, else ./runs)"},

    {.name = "format",
     .kind = WORD,
     .common = true,
     .arg = "FORMAT",
     AT(json),
     .words = FORMATS,
     .help = "text or json: one JSON document on standard output (default text)"},
    {.name = "quiet",
     .letter = 'q',
     .kind = FLAG,
     .common = true,
     AT(quiet),
     .help = "results and errors only"},
    {.name = "progress",
     .kind = WORD,
     .common = true,
     .arg = "HOW",
     AT(progress),
     .words = PROGRESSES,
     .help = "auto, plain or off: a live line, or a line now and then (default auto)"},
    {.name = "color",
     .kind = WORD,
     .common = true,
     .arg = "WHEN",
     AT(color),
     .words = COLORS,
     .help = "auto, always or never; auto heeds NO_COLOR (default auto)"},
    {.name = "log-level",
     .kind = WORD,
     .common = true,
     .arg = "LEVEL",
     AT(log_level),
     .words = LEVELS,
     .help = "error, warning, info or debug (default warning)"},
    {.name = "help", .letter = 'h', .kind = FLAG, .common = true, AT(help), .help = "this text"},
};

enum { N_OPTIONS = sizeof OPTIONS / sizeof *OPTIONS, LONG_BASE = 256 };

static bool has_option(const struct command *command, const struct option_spec *o)
{
    size_t n = strlen(o->name);
    if (o->common) {
        return true;
    }
    for (const char *p = command->options; (p = strstr(p, o->name)); p += n) {
        if ((p == command->options || p[-1] == ' ') && (p[n] == ' ' || p[n] == 0)) {
            return true;
        }
    }
    return false;
}

/* The first mistake is kept and told when all is read: --format may still follow. */
struct mistake {
    char text[512];
};

#define MISTAKE(m, ...)                                                                            \
    do {                                                                                           \
        if (!(m)->text[0]) {                                                                       \
            snprintf((m)->text, sizeof(m)->text, __VA_ARGS__);                                     \
        }                                                                                          \
    } while (0)

static void take_word(const struct option_spec *o, const char *value, int *out, struct mistake *m)
{
    size_t n = 0;
    for (; o->words[n]; n++) {
        if (strcmp(value, o->words[n]) == 0) {
            *out = (int)n;
            return;
        }
    }
    const char *near = args_nearest(value, o->words, n);
    char all[128] = "";
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(all);
        snprintf(all + len, sizeof all - len, "%s%s",
                 i == 0      ? ""
                 : i + 1 < n ? ", "
                             : " or ",
                 o->words[i]);
    }
    if (near) {
        MISTAKE(m, "--%s %.60s: it must be %s; did you mean %s?", o->name, value, all, near);
    } else {
        MISTAKE(m, "--%s %.60s: it must be %s", o->name, value, all);
    }
}

static void take(struct args *a, const struct option_spec *o, const char *value, struct mistake *m)
{
    void *field = (char *)a + o->offset;
    char *end = NULL;
    switch (o->kind) {
    case FLAG:
        *(bool *)field = true;
        break;
    case TEXT:
        *(const char **)field = value;
        break;
    case TEXTS:
        a->text[a->n_texts++] = value;
        break;
    case WORD:
        take_word(o, value, field, m);
        break;
    case NUMBER:
        *(long *)field = strtol(value, &end, 10);
        if (!*value || *end || *(long *)field < 1 || *(long *)field > o->max) {
            MISTAKE(m, "--%s %.60s: it must be a whole number from 1 to %ld", o->name, value,
                    o->max);
        }
        break;
    }
}

/* What getopt_long refused: the word that it stopped at is argv[optind - 1] for a long option. */
static void refuse(const struct command *command, char **argv, int code, struct mistake *m)
{
    const char *names[N_OPTIONS];
    size_t n = 0;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (has_option(command, &OPTIONS[i])) {
            names[n++] = OPTIONS[i].name;
        }
    }
    if (optopt >= LONG_BASE) { /* known, but its argument is missing or too much */
        const struct option_spec *o = &OPTIONS[optopt - LONG_BASE];
        if (code == ':') {
            MISTAKE(m, "--%s needs %s: %s", o->name, o->arg, o->help);
        } else {
            MISTAKE(m, "--%s takes no value", o->name);
        }
        return;
    }
    if (optopt) {
        MISTAKE(m, "unknown option '-%c'; see collapipe %s --help", optopt, command->name);
        return;
    }
    char word[64];
    snprintf(word, sizeof word, "%s", argv[optind - 1] + 2);
    word[strcspn(word, "=")] = 0;
    const char *near = args_nearest(word, names, n);
    if (near) {
        MISTAKE(m, "unknown option '--%s'; did you mean '--%s'?", word, near);
    } else {
        MISTAKE(m, "unknown option '--%s'; see collapipe %s --help", word, command->name);
    }
}

static void parse_options(struct args *a, int argc, char **argv, struct mistake *m)
{
    struct option longs[N_OPTIONS + 1] = {0};
    int n = 0, code;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (has_option(a->command, &OPTIONS[i])) {
            longs[n++] =
                (struct option){.name = OPTIONS[i].name,
                                .has_arg = OPTIONS[i].arg ? required_argument : no_argument,
                                .val = LONG_BASE + i};
        }
    }
    opterr = 0;
    optind = 1;
    while ((code = getopt_long(argc, argv, ":hq", longs, NULL)) != -1) {
        if (code == '?' || code == ':') {
            refuse(a->command, argv, code, m);
            continue;
        }
        for (int i = 0; i < N_OPTIONS; i++) {
            if (code == LONG_BASE + i || (OPTIONS[i].letter && code == OPTIONS[i].letter)) {
                take(a, &OPTIONS[i], optarg, m);
                break;
            }
        }
    }
    while (optind < argc) {
        a->word[a->n_words++] = argv[optind++];
    }
}

int args_parse(struct args *a, const struct command *command, int argc, char **argv)
{
    struct mistake m = {{0}};
    *a = (struct args){.command = command, .log_level = ARGS_LOG_UNSET};
    a->text = app_alloc((size_t)argc, sizeof *a->text);
    a->word = app_alloc((size_t)argc, sizeof *a->word);
    parse_options(a, argc, argv, &m);
    if (!m.text[0] && !a->help) {
        if (a->n_words < command->words_min) {
            MISTAKE(&m, "something is missing; usage: collapipe %s %s", command->name,
                    command->synopsis);
        } else if (a->n_words > command->words_max) {
            MISTAKE(&m, "'%.60s' is too much; usage: collapipe %s %s", a->word[command->words_max],
                    command->name, command->synopsis);
        }
    }
    return m.text[0] ? app_fail(a, COLLAPIPE_CONFIG, "%s", m.text) : COLLAPIPE_OK;
}

void args_free(struct args *a)
{
    free(a->text);
    free(a->word);
    *a = (struct args){0};
}

void args_print_options(const struct command *command)
{
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct option_spec *o = &OPTIONS[i];
        char left[64], letter[8] = "    ";
        if (!has_option(command, o)) {
            continue;
        }
        if (o->letter) {
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        }
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->arg ? " " : "",
                 o->arg ? o->arg : "");
        printf("  %-22s %s\n", left, o->help);
    }
}

/* Levenshtein distance; words are short. */
static int distance(const char *a, const char *b)
{
    enum { MAX = 40 };
    size_t n = strlen(a), m = strlen(b);
    int row[MAX + 1];
    if (n > MAX || m > MAX) {
        return MAX;
    }
    for (size_t j = 0; j <= m; j++) {
        row[j] = (int)j;
    }
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            best = best < row[j] + 1 ? best : row[j] + 1;
            row[j] = best < row[j - 1] + 1 ? best : row[j - 1] + 1;
        }
    }
    return row[m];
}

const char *args_nearest(const char *word, const char *const *candidates, size_t n)
{
    int best = 2 + (int)strlen(word) / 3;
    const char *nearest = NULL;
    for (size_t i = 0; i < n; i++) {
        int d = distance(word, candidates[i]);
        if (d < best && d < (int)strlen(candidates[i])) {
            best = d;
            nearest = candidates[i];
        }
    }
    return nearest;
}
