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
 */
#ifndef CP_SIM_STUDY_H
#define CP_SIM_STUDY_H

#include "plan/policy.h"
#include "sim/sim.h"
#include "sim/stats.h"

enum { CP_STUDY_WHY = 256, CP_STUDY_POLICIES_MAX = 64, CP_STUDY_SEEDS_MAX = 10000 };

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
    /* After a round that ran: advances the queues, and whatever later worlds depend on. Of f only
     * latency_s, gamma and energy_j are set. */
    void (*after)(void *arg, const struct cp_plan *plan, const struct cp_world *w,
                  const struct cp_forecast *f, struct cp_queues *q);
    void (*close)(void *arg);
};

enum cp_study_outcome {
    CP_STUDY_PLANNED,
    CP_STUDY_KEPT, /* no plan was found, the last one still holds */
    CP_STUDY_IDLE, /* nor does the last one: the round does not run */
};
const char *cp_study_outcome_name(enum cp_study_outcome outcome);

/* One round as it ran; of an idle one only the first four and the queue are set. */
struct cp_study_round {
    int policy, seed, round; /* indices, from 0 */
    enum cp_study_outcome outcome;
    double queue; /* sum Z + Y that the decision saw */
    double latency_s, energy_j;
    double energy_ratio; /* largest E / E-bar of a node; 0 where no node has a budget */
    double gamma;
    double efficiency; /* useful FLOPs / FLOPs that the used devices could have done in the steps */
    double bubble;
    size_t mem_peak_bytes; /* of any used device */
    int in_flight_peak;    /* of any stage */
    int moves;             /* blocks that changed owner and took their moments along */
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
    int in_flight_peak, moves;
    double cpu_s; /* of the thread; differs between runs */
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
    int in_flight_peak, moves;
    double rounds_per_s; /* of one thread's CPU time */
    /* Seed by seed against the first policy: its latency minus, and divided by, the first one's. */
    struct cp_mean latency_diff_s, latency_ratio;
};
void cp_study_sum_up(const struct cp_study_result *r, int policy, struct cp_study_summary *out);

#endif
