/*
 * app: what the files of the command line share: a command, its arguments, how it fails.
 *
 * Results go to stdout, everything else to stderr. With --format json stdout gets exactly one
 * document, also when the command fails: {"error":{"kind","message","status"}}. The exit code is
 * the status of the library.
 */
#ifndef APP_H
#define APP_H

#include "collapipe.h"

#include <stdbool.h>
#include <stddef.h>

enum args_color { ARGS_COLOR_AUTO, ARGS_COLOR_ALWAYS, ARGS_COLOR_NEVER };
enum args_progress { ARGS_PROGRESS_AUTO, ARGS_PROGRESS_PLAIN, ARGS_PROGRESS_OFF };
enum args_log { ARGS_LOG_ERROR, ARGS_LOG_WARNING, ARGS_LOG_INFO, ARGS_LOG_DEBUG, ARGS_LOG_UNSET };

/* The values of all options of all commands; texts are borrowed from argv. */
struct args {
    const struct command *command;

    bool help, quiet;
    int json; /* 0 text, 1 json */
    int color, progress, log_level;

    bool dry_run, print_config, explain, list;
    const char *resume, *policy, *template_name, *file, *data, *dir, *out;
    long top, rounds, seeds, threads, clusters, devices, layers, worlds; /* 0: not given */
    const char **text; /* [n_texts] of --text, in order */
    const char **word; /* [n_words] arguments that are no options */
    size_t n_texts, n_words;
};

struct command {
    const char *name;
    const char *synopsis; /* arguments, as in "MODEL --data FILE" */
    const char *help;     /* one line */
    const char *about;    /* paragraphs of CMD --help, lines of at most 80 columns */
    const char *options;  /* names of its own options, separated by blanks */
    size_t words_min, words_max;
    /* The configuration where none is named and there is no ./config.yaml; NULL: that is a mistake
     */
    int (*config)(const char *const *assignments, size_t n, collapipe_config **out);
    int (*run)(const struct args *a);
    int (*more_help)(void); /* may be NULL */
};

/* NULL-terminated. */
extern const struct command *const COMMANDS[];

int cmd_new(const struct args *a);
int cmd_run(const struct args *a);
int cmd_plan(const struct args *a);
int cmd_simulate(const struct args *a);
int cmd_bench(const struct args *a);
int cmd_predict(const struct args *a);
int cmd_eval(const struct args *a);
int cmd_ckpt(const struct args *a);
int cmd_runs(const struct args *a);
int cmd_replay(const struct args *a);
int cmd_version(const struct args *a);

/* --- args.c ---------------------------------------------------------------------------------- */

/* argv[0] is the name of the command. COLLAPIPE_CONFIG, told to the user, on wrong use. */
int args_parse(struct args *a, const struct command *command, int argc, char **argv);
void args_free(struct args *a);
void args_print_options(const struct command *command);

/* The candidate that is most like word, or NULL if none is near. */
const char *args_nearest(const char *word, const char *const *candidates, size_t n);

/* --- common.c -------------------------------------------------------------------------------- */

/* Tells the user in one sentence and returns status. */
int app_fail(const struct args *a, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with the sentence of the library. */
int app_fail_library(const struct args *a, int status);

/* "unknown WHAT 'word'; did you mean 'near'?", or see if nothing is near. COLLAPIPE_CONFIG. */
int app_fail_unknown(const struct args *a, const char *what, const char *word,
                     const char *const *candidates, size_t n, const char *see);

/* The document of the library on stdout, as it is. */
void app_print_json(const char *json);

/* Opens the configuration that the words name: [CONFIG] [key=value ...]. */
int app_config_open(const struct args *a, collapipe_config **out);
int app_config_print(const struct args *a, const collapipe_config *c);

/* Policies and every option of the configuration, for run --help and plan --help. */
int app_config_help(void);

/* malloc and strdup that end the program when there is no memory. */
void *app_alloc(size_t n, size_t size);
char *app_copy(const char *text);

bool app_is_folder(const char *path);
bool app_is_file(const char *path);

#endif
