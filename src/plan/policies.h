/* policies: the rows of CP_POLICIES. Private to src/plan. */
#ifndef CP_PLAN_POLICIES_H
#define CP_PLAN_POLICIES_H

#include "plan/policy.h"

extern const struct cp_policy CP_POLICY_DSSDA;
extern const struct cp_policy CP_POLICY_STATIC;
extern const struct cp_policy CP_POLICY_GPIPE_UNIFORM;
extern const struct cp_policy CP_POLICY_GREEDY;
extern const struct cp_policy CP_POLICY_RANDOM;
extern const struct cp_policy CP_POLICY_FEDAVG;

#endif
