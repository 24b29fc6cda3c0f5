/* bound: the convergence bound of the plan in force with the constants as they are estimated. */
#ifndef CP_NODE_BOUND_H
#define CP_NODE_BOUND_H

#include "node/edge.h"

/* Theorem 1 (docs/theory.md section 8) for that many rounds like the last one. E_CONFIG says what
 * is not known yet, or why the theorem does not speak of this training. */
CP_NODISCARD cp_err cp_edge_bound(const struct cp_edge *e, int rounds, struct cp_bound *out);

#endif
