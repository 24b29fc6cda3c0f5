/* folder: plan */
/* JSON of a plan: whatever is read must be written again to the same text. */
#include "plan/plan.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    if (!text) {
        return 0;
    }
    memcpy(text, data, size);
    text[size] = 0;
    struct cp_plan p, q;
    if (cp_plan_from_json(text, &p) == CP_OK) {
        struct cp_str first = {0}, second = {0};
        bool same = cp_plan_to_json(&p, NULL, &first) == CP_OK &&
                    cp_plan_from_json(first.p, &q) == CP_OK &&
                    cp_plan_to_json(&q, NULL, &second) == CP_OK && strcmp(first.p, second.p) == 0;
        if (!same) {
            abort();
        }
        cp_plan_fini(&p);
        cp_plan_fini(&q);
        cp_str_fini(&first);
        cp_str_fini(&second);
    }
    free(text);
    return 0;
}
