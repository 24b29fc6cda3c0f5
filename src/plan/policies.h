/* policies: the rows of CP_POLICIES. Private to src/plan. */
#ifndef CP_PLAN_POLICIES_H
#define CP_PLAN_POLICIES_H

#include "plan/policy.h"

extern const struct cp_policy CP_POLICY_DSSDA;
extern const struct cp_policy CP_POLICY_DSSDA_X;
extern const struct cp_policy CP_POLICY_STATIC;
extern const struct cp_policy CP_POLICY_GPIPE_UNIFORM;
extern const struct cp_policy CP_POLICY_PIPEEDGE;
extern const struct cp_policy CP_POLICY_GREEDY;
extern const struct cp_policy CP_POLICY_RANDOM;
extern const struct cp_policy CP_POLICY_FEDAVG;
extern const struct cp_policy CP_POLICY_BEST_SINGLE;
extern const struct cp_policy CP_POLICY_SPLITFED;
extern const struct cp_policy CP_POLICY_MYOPIC;
extern const struct cp_policy CP_POLICY_LATENCY_ONLY;
extern const struct cp_policy CP_POLICY_EXHAUSTIVE;
extern const struct cp_policy CP_POLICY_DSSDA_UNIFORM;
extern const struct cp_policy CP_POLICY_DSSDA_ORDER;
extern const struct cp_policy CP_POLICY_DSSDA_MICRO;
extern const struct cp_policy CP_POLICY_DSSDA_BAND;
extern const struct cp_policy CP_POLICY_DSSDA_SHARE;
extern const struct cp_policy CP_POLICY_DSSDA_POWER;

#endif
