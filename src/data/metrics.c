#include "data/metrics.h"

#include "base/mem.h"
#include "data/dataset.h"

#include <assert.h>
#include <math.h>

cp_err cp_confusion_init(struct cp_confusion *c, int32_t n_classes)
{
    assert(n_classes >= 1 && n_classes <= CP_MAX_CLASSES);
    struct cp_confusion fresh = {.n_classes = n_classes};
    size_t n = (size_t)n_classes;
    CP_TRY(cp_mem_array(NULL, n * (n + 1), sizeof *fresh.count, &fresh.count));
    *c = fresh;
    return CP_OK;
}

void cp_confusion_fini(struct cp_confusion *c)
{
    cp_mem_free(c->count);
    *c = (struct cp_confusion){0};
}

void cp_confusion_add(struct cp_confusion *c, int32_t truth, int32_t predicted)
{
    if (truth == CP_LABEL_IGNORE) {
        return;
    }
    assert(truth >= 0 && truth < c->n_classes);
    if (predicted < 0 || predicted >= c->n_classes) {
        predicted = c->n_classes;
    }
    c->count[(int64_t)truth * (c->n_classes + 1) + predicted]++;
    c->total++;
}

void cp_confusion_merge(struct cp_confusion *c, const struct cp_confusion *b)
{
    assert(c->n_classes == b->n_classes);
    int64_t cells = (int64_t)c->n_classes * (c->n_classes + 1);
    for (int64_t i = 0; i < cells; i++) {
        c->count[i] += b->count[i];
    }
    c->total += b->total;
}

double cp_confusion_accuracy(const struct cp_confusion *c)
{
    int64_t right = 0;
    for (int32_t k = 0; k < c->n_classes; k++) {
        right += cp_confusion_count(c, k, k);
    }
    return c->total ? (double)right / (double)c->total : 0;
}

/* How often a class is the truth plus how often it is predicted: 2 TP + FP + FN. */
static int64_t occurrences(const struct cp_confusion *c, int32_t class)
{
    int64_t sum = 0;
    for (int32_t k = 0; k < c->n_classes; k++) {
        sum += cp_confusion_count(c, class, k) + cp_confusion_count(c, k, class);
    }
    return sum + cp_confusion_count(c, class, c->n_classes);
}

double cp_confusion_f1(const struct cp_confusion *c, int32_t class)
{
    int64_t both = occurrences(c, class);
    return both ? 2 * (double)cp_confusion_count(c, class, class) / (double)both : 0;
}

double cp_confusion_macro_f1(const struct cp_confusion *c)
{
    double sum = 0;
    int32_t present = 0;
    for (int32_t k = 0; k < c->n_classes; k++) {
        if (occurrences(c, k) > 0) {
            sum += cp_confusion_f1(c, k);
            present++;
        }
    }
    return present ? sum / present : 0;
}

int32_t cp_argmax(const float *score, int32_t n)
{
    int32_t best = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!isfinite(score[i])) {
            return -1;
        }
        best = score[i] > score[best] ? i : best;
    }
    return best;
}
