/* main: finds the command and runs it. */
#include "app.h"
#include "ui.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct command NEW = {
    .name = "new",
    .synopsis = "DIR [--template NAME]",
    .help = "make a folder with a config.yaml and data to start from",
    .about = "Makes the folder DIR (which must not exist, or be empty) with a commented\n"
             "config.yaml and the data of a template. Nothing is downloaded.\n\n"
             "  collapipe new demo && cd demo && collapipe run\n",
    .options = "template list",
    .words_max = 1,
    .run = cmd_new,
};

static const struct command RUN = {
    .name = "run",
    .synopsis = "[CONFIG] [key=value ...]",
    .help = "train, with all roles on this machine",
    .about = "Trains with all roles on this machine. CONFIG is a YAML file or a folder with a\n"
             "config.yaml (default: ./config.yaml, and RUN/config.yaml with --resume RUN).\n"
             "Later wins: defaults, CONFIG, COLLAPIPE_* variables, key=value arguments.\n\n"
             "Ctrl-C ends the run after the round under way, with a checkpoint; a second one\n"
             "ends it at once.\n\n"
             "  collapipe run\n"
             "  collapipe run fed.rounds=20 plan.policy=gpipe-uniform\n"
             "  collapipe run --resume runs/run-20260101T120000Z\n",
    .options = "resume dry-run print-config",
    .words_max = 10000,
    .run = cmd_run,
    .more_help = app_config_help,
};

static const struct command PLAN = {
    .name = "plan",
    .synopsis = "[CONFIG] [key=value ...] [--policy NAME]",
    .help = "decide who gets which layers, and what that costs; trains nothing",
    .about = "One decision, printed as tables: layers, slots, memory, time and energy of each\n"
             "device, share, power and rate of each link, and one step drawn on its clock.\n"
             "--explain tells what one layer more or less on a device would cost, what binds\n"
             "and by how much, the next best plan, and what would change the decision.\n"
             "CONFIG and key=value are those of collapipe run.\n\n"
             "  collapipe plan --explain\n"
             "  collapipe plan --policy gpipe-uniform clusters=2x4\n",
    .options = "policy explain dry-run print-config",
    .words_max = 10000,
    .run = cmd_plan,
    .more_help = app_config_help,
};

static const struct command SIMULATE = {
    .name = "simulate",
    .synopsis = "[CONFIG] [key=value ...] [--policy A,B,...]",
    .help = "compare policies over many rounds on a virtual clock",
    .about =
        "The ops of a training run on a virtual clock, without tensors: every policy decides\n"
        "in the same modelled worlds, round by round, and the first one named is what the\n"
        "others are compared with. CONFIG is as for collapipe run; without one, and without a\n"
        "config.yaml here, BERT-base on clusters=4x4, a new channel in every round, and devices\n"
        "with 50 to 100 % of their speed. Ctrl-C reports the seeds that are finished; a second\n"
        "one ends it at once.\n\n"
        "  collapipe simulate --policy gpipe-uniform,greedy,dssda --rounds 100 --seeds 5\n"
        "  collapipe simulate clusters=1000x8 --policy greedy --rounds 10 --out rounds.csv\n",
    .options = "policy rounds seeds threads out dry-run print-config",
    .words_max = 10000,
    .config = collapipe_simulate_config,
    .run = cmd_simulate,
    .more_help = app_config_help,
};

static const struct command PREDICT = {
    .name = "predict",
    .synopsis = "MODEL [--text TEXT | --file FILE]",
    .help = "classify texts with a trained model",
    .about = "MODEL is a run folder (its newest checkpoint) or a Hugging Face folder.\n\n"
             "  collapipe predict runs/RUN --text 'a text' --text 'another' --top 3\n"
             "  collapipe predict runs/RUN --file - < texts.txt\n",
    .options = "text file top",
    .words_min = 1,
    .words_max = 1,
    .run = cmd_predict,
};

static const struct command EVAL = {
    .name = "eval",
    .synopsis = "MODEL --data FILE",
    .help = "measure a trained model on labelled texts",
    .about = "MODEL is a run folder (its newest checkpoint) or a Hugging Face folder.\n",
    .options = "data",
    .words_min = 1,
    .words_max = 1,
    .run = cmd_eval,
};

static const struct command CKPT = {
    .name = "ckpt",
    .synopsis = "inspect|verify MODEL",
    .help = "look into a checkpoint, or check its files",
    .about = "inspect: the hash of the parameters and every tensor with its shape.\n"
             "verify: reads every file and checks what it promises.\n",
    .options = "",
    .words_min = 2,
    .words_max = 2,
    .run = cmd_ckpt,
};

static const struct command RUNS = {
    .name = "runs",
    .synopsis = "list | show RUN | rm RUN",
    .help = "the runs so far: list them, show one, remove one",
    .about = "RUN is the name of a run, the beginning of it, or its folder. rm removes the\n"
             "run's folder too.\n",
    .options = "dir",
    .words_min = 1,
    .words_max = 2,
    .run = cmd_runs,
};

static const struct command REPLAY = {
    .name = "replay",
    .synopsis = "RUN",
    .help = "train a finished run again in one process and compare bit for bit",
    .about = "The proof that the pipeline computes what one machine would: the parameters of\n"
             "the run folder RUN and of its repetition in one process must be equal.\n",
    .options = "",
    .words_min = 1,
    .words_max = 1,
    .run = cmd_replay,
};

static const struct command BENCH = {
    .name = "bench",
    .synopsis = "NAME",
    .help = "measure the speed of a part of the program: plan, sim",
    .about = "plan: decisions without a last plan (cold) and with one (warm), the exact program\n"
             "over the cuts of one cluster, and 1,000 clusters of 8 devices; beside the time of\n"
             "evaluating one plan. With sizes: decisions and program of those sizes alone.\n"
             "sim: rounds of the simulator with a fixed plan, beside the closed form of the same\n"
             "figures, which runs no ops.\n",
    .options = "clusters devices layers worlds",
    .words_min = 1,
    .words_max = 1,
    .run = cmd_bench,
};

static const struct command VERSION = {
    .name = "version",
    .synopsis = "",
    .help = "print the version",
    .about = "",
    .options = "",
    .run = cmd_version,
};

const struct command *const COMMANDS[] = {&NEW,  &RUN,  &PLAN,   &SIMULATE, &PREDICT, &EVAL,
                                          &CKPT, &RUNS, &REPLAY, &BENCH,    &VERSION, NULL};

static void print_help(FILE *f)
{
    fprintf(f, "usage: collapipe COMMAND [arguments]\n\n"
               "Trains a Transformer as a pipeline over unequal devices, in federated rounds.\n\n");
    for (int i = 0; COMMANDS[i]; i++) {
        fprintf(f, "  %-8s %s\n", COMMANDS[i]->name, COMMANDS[i]->help);
    }
    fprintf(f, "\nTo begin:\n"
               "  collapipe new demo && cd demo && collapipe run\n\n"
               "'collapipe COMMAND --help' tells its arguments, and for run and plan\n"
               "every option of a configuration. --format json prints one JSON document.\n");
}

static int print_command_help(const struct command *c)
{
    printf("usage: collapipe %s %s\n\n%s%s%soptions:\n", c->name, c->synopsis, c->about,
           c->about[0] ? "" : c->help, c->about[0] ? "\n" : "\n\n");
    args_print_options(c);
    return c->more_help ? c->more_help() : COLLAPIPE_OK;
}

static const struct command *find(const char *name)
{
    for (int i = 0; COMMANDS[i]; i++) {
        if (strcmp(COMMANDS[i]->name, name) == 0) {
            return COMMANDS[i];
        }
    }
    return NULL;
}

static bool asks_json(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--format=json") == 0 ||
            (strcmp(argv[i], "--format") == 0 && i + 1 < argc &&
             strcmp(argv[i + 1], "json") == 0)) {
            return true;
        }
    }
    return false;
}

/* A first word that is no command. */
static int fail_command(const char *word, int argc, char **argv)
{
    const struct args a = {.json = asks_json(argc, argv)};
    const char *names[32];
    size_t n = 0;
    for (; COMMANDS[n]; n++) {
        names[n] = COMMANDS[n]->name;
    }
    if (word[0] == '-') {
        return app_fail(&a, COLLAPIPE_CONFIG,
                        "options come after the command; see collapipe --help");
    }
    return app_fail_unknown(&a, "command", word, names, n, "collapipe --help");
}

static int dispatch(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL;
    if (!word) {
        print_help(stderr);
        return COLLAPIPE_CONFIG;
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
        word = "version";
    }
    bool help = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0;
    if (help && argc == 2) {
        print_help(stdout);
        return COLLAPIPE_OK;
    }
    const struct command *c = find(help ? argv[2] : word);
    if (!c) {
        return fail_command(help ? argv[2] : word, argc, argv);
    }
    if (help) {
        return print_command_help(c);
    }
    struct args a;
    int status = args_parse(&a, c, argc - 1, argv + 1);
    if (!status) {
        ui_init(a.color);
        if (a.log_level == ARGS_LOG_UNSET) {
            a.log_level = a.quiet ? ARGS_LOG_ERROR : ARGS_LOG_WARNING;
        }
        collapipe_log(a.log_level, NULL, NULL);
        status = a.help ? print_command_help(c) : c->run(&a);
    }
    args_free(&a);
    return status;
}

int main(int argc, char **argv)
{
    ui_init(ARGS_COLOR_AUTO);
    int status = dispatch(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && !status) {
        fprintf(stderr, "collapipe: cannot write the result: %s\n", strerror(errno));
        status = COLLAPIPE_FAILED;
    }
    return status;
}
