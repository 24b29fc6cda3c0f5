/*
 * study: policies x seeds x rounds on the simulator, paired.
 *
 * Every policy meets the same worlds of a seed, since worlds are keyed by (seed, round). In each
 * round the policy decides, the round runs through the op lists, the queues advance with the energy
 * that the simulation counted (docs/theory.md section 10), and the figures of section 14 are taken
 * in one pass: memory does not grow with rounds. A (policy, seed) is one task; tasks share nothing,
 * so that figures are the same bit for bit whatever the number of threads.
 *
 * A round for which the policy finds no plan is counted and named. It runs with the last plan where
 * that still holds, else not at all; means are over the rounds that ran.
 *
 * A planner may know less than the truth. It then decides in the world that it believes in, and the
 * round runs in the true one. A plan that does not hold there (a device is gone) is not begun: who
 * is missing is known by then, and the policy decides once more, as it does for a device that is
 * known to be away.
 */
#ifndef CP_SIM_STUDY_H
#define CP_SIM_STUDY_H

#include "plan/policy.h"
#include "sim/sim.h"
#include "sim/stats.h"

enum { CP_STUDY_WHY = 256, CP_STUDY_POLICIES_MAX = 64, CP_STUDY_SEEDS_MAX = 10000 };

struct cp_study_round;

/* A round that is over. */
struct cp_study_done {
    const struct cp_world *world;
    const struct cp_plan *plan;      /* NULL: the round was idle, and what follows is not set */
    const struct cp_world *believed; /* that the plan was made in; NULL: the true one */
    const struct cp_sim_round *sim;
    const struct cp_forecast *cost; /* of it only latency_s, gamma and energy_j */
};

/* What one task meets: the worlds of a seed. Opened and closed once per task, used by one thread.
 */
struct cp_study_case {
    void *arg;
    struct cp_policy_args args; /* all but world, mean, queues and incumbent */
    bool keep_moments;          /* moments move with layers that change owner (section 6.3) */
    /* The world of a round; mean: on mean channels. w is zeroed, or the world of the round before,
     * which may be refreshed in place. */
    cp_err (*world)(void *arg, int round, bool mean, struct cp_world *w);
    cp_err (*queues)(void *arg, const struct cp_world *mean, struct cp_queues *q);
    /* What the planner takes the round's world for, in place of out (zeroed, or the last one).
     * sure: it knows who is there. NULL: it sees the truth. */
    cp_err (*believe)(void *arg, const struct cp_world *truth, bool sure, struct cp_world *out);
    /* After every round: advances the queues if it ran, and whatever later worlds depend on, and
     * sets figures of r that only it knows. */
    cp_err (*after)(void *arg, const struct cp_study_done *d, struct cp_queues *q,
                    struct cp_study_round *r);
    void (*close)(void *arg);
};

enum cp_study_outcome {
    CP_STUDY_PLANNED,
    CP_STUDY_KEPT, /* no plan was found, the last one still holds */
    CP_STUDY_IDLE, /* nor does the last one: the round does not run */
};
const char *cp_study_outcome_name(enum cp_study_outcome outcome);

/* One round as it ran; of an idle one only the first four, the queue and the backlog are set.
 * Figures that are not known are NaN. */
struct cp_study_round {
    int policy, seed, round; /* indices, from 0 */
    enum cp_study_outcome outcome;
    double queue; /* sum Z + Y that the decision saw */
    double latency_s, energy_j;
    double energy_ratio; /* largest E / E-bar of a node; 0 where no node has a budget */
    double gamma;
    double efficiency; /* useful FLOPs / FLOPs that the used devices could have done in the steps */
    double bubble;
    size_t mem_peak_bytes;          /* of any used device */
    int in_flight_peak;             /* of any stage */
    int moves;                      /* blocks that changed owner and took their moments along */
    double backlog;                 /* samples that waited when the decision was made */
    double trained, age_s;          /* of them trained in the round, and their mean age then */
    double stage_error, link_error; /* mean |predicted / observed time - 1| */
    bool redecided; /* a plan in the believed world did not hold, or there was none */
};

struct cp_study {
    const struct cp_policy *const *policy;
    int n_policies, n_seeds, n_rounds;
    int n_threads; /* >= 1 */
    cp_err (*open)(void *arg, int seed, struct cp_study_case *out);
    /* Every round as it is done, from any thread but one at a time; the rounds of a task in order.
     * An error ends the study. NULL: nobody wants it. */
    cp_err (*on_round)(void *arg, const struct cp_study_round *r);
    bool (*stop)(void *arg); /* asked between rounds, from any thread; may be NULL */
    void *arg;
};

/* One policy on one seed. */
struct cp_study_run {
    bool done;              /* all of its rounds */
    int rounds, kept, idle; /* that ran; of these with the last plan; that did not run */
    char why[CP_STUDY_WHY]; /* of the first round without a plan */
    struct cp_mean latency_s, energy_j, gamma, bubble, queue; /* over rounds */
    double efficiency;             /* work of all rounds / capacity of all rounds */
    double energy_ratio_max;       /* of the mean E / E-bar of a node over the rounds */
    char energy_node[CP_SIM_NAME]; /* that has it, "" where no node has a budget */
    size_t mem_peak_bytes, mem_full_bytes, mem_full_batch_bytes;
    int in_flight_peak, moves, redecided;
    struct cp_mean backlog, stage_error, link_error; /* over rounds */
    double trained, age_s; /* samples that had waited, and their mean age when trained: freshness */
    double cpu_s;          /* of the thread; differs between runs */
};

struct cp_study_result {
    int n_policies, n_seeds;
    struct cp_study_run *run; /* [policy * n_seeds + seed]; owned */
};

/* Runs everything. Stopped: E_STOPPED, and out holds what was done (see done). Any other error
 * leaves out untouched; where several tasks fail it is the first one's in the order of seeds, then
 * policies. */
CP_NODISCARD cp_err cp_study_run(const struct cp_study *s, struct cp_study_result *out);
void cp_study_result_fini(struct cp_study_result *r);

/* Latency seed by seed, over seeds that both results have of all policies: of one minus, and
 * divided by, that of the other. */
struct cp_study_pair {
    struct cp_mean latency_diff_s, latency_ratio;
};
void cp_study_compare(const struct cp_study_result *r, int policy,
                      const struct cp_study_result *other, int other_policy,
                      struct cp_study_pair *out);

/* One policy over the seeds that all policies have finished. */
struct cp_study_summary {
    int seeds;              /* finished by all */
    int rounds, kept, idle; /* sums */
    const char *why;        /* borrowed from the result; "" if every round had a plan */
    struct cp_mean latency_s, energy_j, gamma, bubble, queue, efficiency,
        energy_ratio;        /* of seeds */
    double energy_ratio_max; /* of all seeds; NaN where no node has a budget or nothing ran */
    const char *energy_node; /* borrowed */
    size_t mem_peak_bytes, mem_full_bytes, mem_full_batch_bytes;
    int in_flight_peak, moves, redecided;
    struct cp_mean backlog, age_s, stage_error, link_error; /* of seeds; empty: not known */
    double rounds_per_s;                                    /* of one thread's CPU time */
    struct cp_study_pair against_first;
};
void cp_study_sum_up(const struct cp_study_result *r, int policy, struct cp_study_summary *out);

#endif
