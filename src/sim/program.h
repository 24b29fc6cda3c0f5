/*
 * program: the op lists of a step in one order in which no op waits.
 *
 * Which op comes before which does not depend on times: the k-th receive of a link direction gets
 * the k-th send. So the lists of all stages are walked once, as far as their messages allow, and
 * the walk is kept; running it on a clock is then one pass without questions. A program depends on
 * the number of stages, M and the slots only, and serves every round and cluster that has them.
 *
 * A program has room for the messages of one step, so one thread runs it at a time.
 */
#ifndef CP_SIM_PROGRAM_H
#define CP_SIM_PROGRAM_H

#include "sim/sim.h"

struct cp_program;

/* Lists as for cp_sim_run; they are not needed afterwards. */
CP_NODISCARD cp_err cp_program_make(const struct cp_ops *lists, int n_stages,
                                    struct cp_program **out);
void cp_program_free(struct cp_program *p);

/* As cp_sim_run. costs->node is read only where there is a sink. */
void cp_program_run(struct cp_program *p, const struct cp_sim_costs *costs,
                    const struct cp_event_sink *sink, struct cp_sim_step *out);

/* Programs of training steps that were made before; for one thread. What it holds is bounded: when
 * there is too much, all of it is forgotten. */
struct cp_programs;
CP_NODISCARD cp_err cp_programs_new(struct cp_programs **out);
void cp_programs_free(struct cp_programs *all);

/* The program of a pipeline with slots[n_stages], made where it is new; valid until the next call.
 * E_PLAN if its ops wait for each other for ever. */
CP_NODISCARD cp_err cp_programs_find(struct cp_programs *all, int n_stages, int micro_batches,
                                     const int *slots, struct cp_program **out);

/* As cp_sim_round, with what is known, and with the memory of r, which is zeroed or a round: no
 * allocation where the plan's programs were met before. After a failure r holds no figures. */
CP_NODISCARD cp_err cp_sim_round_again(struct cp_programs *known, const struct cp_plan *p,
                                       const struct cp_world *w, const struct cp_move *moves,
                                       int n_moves, struct cp_sim_round *r);

#endif
