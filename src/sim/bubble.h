/*
 * bubble: where the idle time of a step comes from (docs/theory.md section 14).
 *
 * Three runs of the same op lists on the virtual clock tell: as it is (T), with free links (T_1),
 * and with free links and every stage at the mean times of all (T_2). On stage j, whose ops take
 * C_j: transfer  = T - T_1: what ends with free links; fill      = min(T_1 - C_j, T_2 - mean C): of
 * the rest, no more than every stage of a perfectly balanced pipeline idles while it fills and
 * drains under this order; imbalance = T_1 - C_j - fill: what is left, since stages are not equal.
 * No part is negative, and busy + fill + imbalance + transfer = T on every stage.
 */
#ifndef CP_SIM_BUBBLE_H
#define CP_SIM_BUBBLE_H

#include "sim/sim.h"

struct cp_bubble_parts {
    double busy_s, fill_s, imbalance_s, transfer_s;
};

struct cp_bubble {
    int n_stages;
    double step_s;
    struct cp_bubble_parts stage[CP_STAGES_MAX];
    struct cp_bubble_parts mean; /* over the stages; busy_s = (1 - bubble) x step_s */
};

/* The lists are those of cp_sim_run, with the times of their ops; a deadlock is E_PLAN. */
CP_NODISCARD cp_err cp_bubble_make(const struct cp_ops *lists, int n_stages,
                                   const struct cp_times *t, struct cp_bubble *out);

/* Parts of a round in one cluster; they add up to its latency. */
struct cp_round_parts {
    double steps_s;     /* H steps */
    double exchange_s;  /* scatter, gather, upload and moves around them */
    double straggler_s; /* max T_c - T_c: waiting for the slowest cluster */
    double broadcast_s; /* T_bc */
};
void cp_round_parts_make(const struct cp_forecast *f, int cluster, int local_steps,
                         struct cp_round_parts *out);

#endif
