/* round_json: one round of a run as the JSON that users, logs and metrics.jsonl get. */
#ifndef CP_API_ROUND_JSON_H
#define CP_API_ROUND_JSON_H

#include "node/edge.h"

#include <jansson.h>

/* previous: the element of the round before (NULL: none), to tell what changed. */
json_t *cp_round_json(const struct cp_job *job, const struct cp_round_report *r,
                      const json_t *previous);

json_t *cp_score_json(const struct cp_score *s);

#endif
