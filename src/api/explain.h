/* explain: why a decision is as it is, as JSON (the member "explain" of collapipe_plan). */
#ifndef CP_API_EXPLAIN_H
#define CP_API_EXPLAIN_H

#include "plan/policy.h"

#include <jansson.h>

/* plan: the policy's decision under the arguments. */
CP_NODISCARD cp_err cp_explain_json(const struct cp_policy *policy, const struct cp_policy_args *a,
                                    const struct cp_plan *plan, json_t **out);

#endif
