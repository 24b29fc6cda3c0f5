/*
 * collapipe.h: the whole public API of libcollapipe, to be read from top to bottom.
 *
 * Conventions. Functions return an enum collapipe_status; anything but COLLAPIPE_OK leaves a
 * sentence for people in collapipe_error() (per thread) and leaves outputs untouched. Results are
 * JSON documents in memory that the caller frees with collapipe_free(): one mechanism for the
 * command line, for bindings and for files. A number that is not finite is null in JSON, beside a
 * member "<name>_nonfinite": true. The library never prints to stdout and never exits.
 */
#ifndef COLLAPIPE_H
#define COLLAPIPE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Also the exit codes of the command line. */
enum collapipe_status {
    COLLAPIPE_OK = 0,
    COLLAPIPE_FAILED = 1,  /* data, files, memory, a value that is not finite, no valid plan */
    COLLAPIPE_CONFIG = 2,  /* wrong use, or a configuration that is not valid */
    COLLAPIPE_NETWORK = 3, /* a peer or the network */
    COLLAPIPE_INTERRUPTED = 130
};

const char *collapipe_version(void);

/* The sentence of the last failure on this thread, and the name of its kind ("E_DATA"). */
const char *collapipe_error(void);
const char *collapipe_error_name(void);

void collapipe_free(void *text); /* NULL is allowed */

/* Log lines for people; level 0 error, 1 warning, 2 info, 3 debug. Without a sink they go to
 * stderr, up to level max (1 at start). */
void collapipe_log(int max, void (*sink)(void *arg, int level, const char *line), void *arg);

/* --- configuration ------------------------------------------------------------------------------
 *
 * Precedence: defaults < file < COLLAPIPE_* environment < assignments "group.key=value". Relative
 * paths in it start at the folder of the file. */

typedef struct collapipe_config collapipe_config;

/* path: a YAML file, a folder with config.yaml, or NULL for defaults only. */
int collapipe_config_open(const char *path, const char *const *assignments, size_t n,
                          collapipe_config **out);
void collapipe_config_close(collapipe_config *c);
int collapipe_config_print(const collapipe_config *c, char **yaml); /* values with their origin */
int collapipe_config_help(char **text); /* every option with unit, range and default */
int collapipe_policies(char **json);    /* {"policies":[{"name","help"}]} */

/* --- a folder to start from ------------------------------------------------------------------ */

int collapipe_templates(char **json); /* {"templates":[{"name","help"}]} */

/* Makes dir (which must not exist, or be empty) with a commented config.yaml and its data.
 * {"dir","template","samples","heldout","classes":[...],"vocab","files":[...]} */
int collapipe_new(const char *dir, const char *template_name, char **json);

/* --- training -------------------------------------------------------------------------------- */

struct collapipe_run_options {
    const char *resume; /* run folder or its name under run.dir: go on from its newest checkpoint */
    int dry_run;        /* check everything, start nothing */

    /* Called on the calling thread with one JSON document per event, valid during the call:
     * {"event":"start","run_id","dir","policy","rounds","first_round","local_steps","clusters":
     *    [{"name","samples"}],"samples","heldout","classes","params","cut_rows","seed"}
     * {"event":"step","round","cluster","step","steps","loss","samples"}
     * {"event":"round", + the members of one element of "rounds_log" below}
     * {"event":"saved","path","round"}
     * round counts from 1. */
    void (*on_event)(void *arg, const char *json);
    void *arg;
};

/*
 * Trains with all roles in this process. The document:
 * {"run_id","dir","policy","rounds","steps","train_loss":[per round],"eval":{"accuracy","loss",
 *  "samples"},"model_time_s","model_energy_j","wall_s","bubble_pct","clusters":[{"name","samples",
 *  "nodes":[{"name","role","blocks":[first,last] or null,"slots","mem_peak_bytes",
 *  "mem_model_bytes","msg_peak_bytes","sent_bytes","busy_s"}]}],"params_sha256","checkpoint",
 *  "interrupted","baselines":[{"policy","rounds","latency_s","energy_j",
 *  "mem_peak_bytes","feasible","why"}] (null: no plan even without a limit of memory),
 *  "latency_s" (mean per round),"energy_j","plan_changes","files":{...},
 *  "rounds_log":[{"round","train_loss","samples","eval":{"accuracy","loss","samples","full"},
 *     "latency_s","energy_j","bubble_pct","wall_s","gen","changes":[text],"moves":[{"cluster",
 *     "layer","from","to"}],"kept","note","binding","queue_convergence",
 *     "queue_energy_max","baselines":[...],
 *     "clusters":[{"name","order","micro_batches","devices":[names],"segments":[layers],
 *     "step_s","round_s","standby":[names]}]}]}
 * INTERRUPTED after collapipe_run_stop(); the document is given then too.
 */
int collapipe_run(const collapipe_config *c, const struct collapipe_run_options *opt, char **json);

/* Asks the run to end after the round under way, with a checkpoint, or the simulation to end. May
 * be called in a signal handler. */
void collapipe_run_stop(void);

/* Trains a finished run again in one process and compares the parameters bit for bit.
 * {"dir","checkpoint","rounds","params_sha256","replay_sha256","equal"}; after every round an event
 * {"event":"replay","round","rounds"} */
int collapipe_replay(const char *run_dir, void (*on_event)(void *arg, const char *json), void *arg,
                     char **json);

/* --- planning -------------------------------------------------------------------------------- */

struct collapipe_plan_options {
    const char *policy; /* NULL: that of the configuration */
    int explain;        /* add "next_best" and "explain", and draw links, too */
    int columns;        /* of the drawings' lines, 40 to 400; 0: 80 */
};

/*
 * One decision. The document has the fields of the command line's contract, with "bound", which no
 * plan's objective is below, "gap_bound", (objective - bound) / bound, both null where nothing is
 * known, and "bound_ms", which solve_ms does not hold; and per cluster
 *   "grid" (the step drawn as text, time to the right), "bubble" {"busy_s":[S+2],"fill_s":[S+2],
 *   "imbalance_s":[S+2],"transfer_s":[S+2]} (their sum is step_s on every stage; null without a
 *   pipeline), "round_parts" {"steps_s","exchange_s","straggler_s","broadcast_s"} (their sum is
 *   latency_s).
 * With explain: "next_best", the plans of the other policies with their objective, and
 * "explain":{"objective":{"latency","energy","convergence"},
 *   "binds":[{"what":"memory","cluster","node","used_bytes","limit_bytes","more_bytes"} |
 *     {"what":"energy queue","cluster","node","used_j","budget_j","cost"} |
 *     {"what":"convergence queue","gamma","cost"} |
 *     {"what":"slowest cluster","cluster","ahead_s"} |
 *     {"what":"stage" or "link","cluster","node","tenth_pct"}],
 *   "clusters":[{"name","stage_tenth_pct":[S+2],"link_tenth_pct":[S+1],"devices":[{"name","present",
 *     "layers","layer_s","mem_bytes","mem_limit_bytes","more_bytes","more","less"}]}],
 *   "next":{"cluster","change","cut","objective","objective_change_pct","latency_s"} or null,
 *   "what_if":[{"what","factor" or null,"up_to","cut":[text],"objective","latency_s","decisions"}]}
 * where tenth_pct is by how much a step is shorter if that stage or link takes a tenth less time,
 * more and less are the best way to hold one layer more or less, {"other","objective_change_pct",
 * "latency_change_s"}, or null, next is the best plan that differs in one thing, and what_if tells
 * the least factor of a resource that changes the cut (empty in worlds of more than 64 clusters).
 */
int collapipe_plan(const collapipe_config *c, const struct collapipe_plan_options *opt,
                   char **json);

/* --- simulating ------------------------------------------------------------------------------ */

/* As collapipe_config_open, for a simulation without a configuration: BERT-base on clusters=4x4 and
 * the rest of the set-up of docs/theory.md section 15. */
int collapipe_simulate_config(const char *const *assignments, size_t n, collapipe_config **out);

struct collapipe_simulate_options {
    const char *const *policies; /* each once; the first is what the others are compared with */
    size_t n_policies;           /* 0: the policy of the configuration */
    int rounds;                  /* 0: fed.rounds */
    int seeds;                   /* the configuration's seed and those after it; 0: 10 */
    int threads;                 /* 0: one per processor. Figures do not depend on it */
    /* Every round as it is done, NAME.csv or NAME.jsonl; NULL: none. With several threads the lines
     * of different seeds and policies mix; both are columns, and so is the round. */
    const char *out;
    /* {"event":"simulated","round","rounds"}: how many of all rounds are done, now and then. Called
     * from any thread, one at a time. */
    void (*on_event)(void *arg, const char *json);
    void *arg;
};

/*
 * Policies in the same modelled worlds: the ops of a run on a virtual clock, without tensors. No
 * texts are read; clusters have equal numbers of samples. Figures are means over rounds, then over
 * seeds, with 95 % intervals over seeds (null of one seed).
 * {"rounds","seeds","seeds_done","first_seed","threads","interrupted","wall_s","out",
 *  "policies":[{"name","seeds","rounds" (that ran),"rounds_kept" (with the last plan, as the policy
 *   found none),"rounds_idle" (that could not run),"infeasible_share","why" (the first time),
 *   "latency_s":{"mean","ci95"},"energy_j":{"mean","ci95"},"energy_ratio" (of the node that uses
 *   most of its budget),"energy_ratio_ci95","energy_ratio_max" (of all seeds),"energy_ratio_node",
 *   "gamma_mean","gamma_mean_ci95","compute_efficiency","compute_efficiency_ci95","queue_mean",
 *   "queue_mean_ci95","bubble_mean","bubble_mean_ci95","mem_peak_bytes","mem_full_bytes" (of the
 *   whole model with one micro-batch),"mem_full_batch_bytes","in_flight_peak","moves",
 *   "rounds_per_s" (of one thread's CPU time),"backlog":{"waiting":{"mean","ci95"},
 *   "freshness_s":{"mean","ci95"} (age of a sample when it is trained)} (null where no samples
 *   arrive),"against_first":{"policy","latency_diff_s":{"mean","ci95"},"latency_ratio":{"mean",
 *   "ci95"}} (seed by seed; null of the first),"measured":{"stage_error":{"mean","ci95"},
 *   "link_error":{"mean","ci95"} (mean |predicted / observed time - 1|),"redecided" (rounds whose
 *   first plan did not hold),"against_truth" (the policy that sees the truth, in the same worlds;
 *   like against_first)} (null without plan.measured)}]}
 * INTERRUPTED after collapipe_run_stop(); the document is given then too, of the seeds that all
 * policies had finished.
 */
int collapipe_simulate(const collapipe_config *c, const struct collapipe_simulate_options *opt,
                       char **json);

/* --- speed ----------------------------------------------------------------------------------- */

/* The worlds that "plan" decides in; all sizes 0: its standard set. */
struct collapipe_bench_options {
    int clusters, devices, layers;
    int worlds; /* 0: 20 */
};

/*
 * Measures a part of the program on this machine, beside its own limit in the same run: "plan" or
 * "sim"; opt may be NULL, and "sim" takes none. {"bench","cases":[{...}]}, the cases
 * of "plan" {"what" (cold; warm: with the last round's plan; program: the exact search for the cut
 *  of one cluster),"policy","clusters","layers","threads","decisions","cpu_ms" (median),"p95_ms",
 *  "wall_ms" (median),"plan_us" (to evaluate one plan),"gap_pct" (median, above a lower bound)};
 * of "sim", which has "threads" beside the cases, {"clusters","order","devices","ops" (of a round),
 *  "device_rounds_per_s","ops_per_s" and, in device-rounds, "with_new_worlds_per_s" (drawn before
 *  every round) and "forecast_per_s" (the closed form, which runs no ops)}
 */
int collapipe_bench(const char *name, const struct collapipe_bench_options *opt, char **json);

/* --- using a model --------------------------------------------------------------------------- */

typedef struct collapipe_model collapipe_model;

/* A Hugging Face folder (a checkpoint of a run, or a run folder: its newest checkpoint). */
int collapipe_model_open(const char *dir, collapipe_model **out);
void collapipe_model_close(collapipe_model *m);

/* {"predictions":[{"text","label","score","scores":{label:score}}]} */
int collapipe_predict(collapipe_model *m, const char *const *texts, size_t n, char **json);

/* Texts of a file, one a line, or a labelled file by its suffix.
 * {"metrics":{"accuracy","macro_f1","loss"},"samples","classes":[...]} */
int collapipe_predict_file(collapipe_model *m, const char *path, char **json);
int collapipe_eval(collapipe_model *m, const char *path, char **json);

/* --- checkpoints and runs -------------------------------------------------------------------- */

/* {"params_sha256","params","tensors":[{"name","shape","dtype"}],"config":{...}} */
int collapipe_ckpt_inspect(const char *dir, char **json);
/* {"ok":true,"files":n,"params_sha256"} or a failure that names the file. */
int collapipe_ckpt_verify(const char *dir, char **json);

/* dir: the folder with runs.sqlite. {"runs":[{"run_id","started_utc","ended_utc","status","policy",
 * "params_sha256","rounds","accuracy"}]}; one run whole. */
int collapipe_runs_list(const char *dir, char **json);
int collapipe_runs_show(const char *dir, const char *run, char **json);
int collapipe_runs_rm(const char *dir, const char *run, char **json);

#ifdef __cplusplus
}
#endif

#endif
