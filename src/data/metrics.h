/* metrics: how good predictions are, from a table of counts. No function here returns NaN. */
#ifndef CP_DATA_METRICS_H
#define CP_DATA_METRICS_H

#include "base/err.h"

#include <stdint.h>

struct cp_confusion {
    int32_t n_classes; /* C */
    int64_t *count;    /* [C * (C + 1)]: row = true class, column = predicted; column C: none */
    int64_t total;     /* samples counted; with 0 of them every metric below is 0 */
};

CP_NODISCARD cp_err cp_confusion_init(struct cp_confusion *c, int32_t n_classes);
void cp_confusion_fini(struct cp_confusion *c);

/* Counts one sample. truth CP_LABEL_IGNORE does not count at all; a prediction that is no class (as
 * cp_argmax gives for scores that are not finite) counts as wrong. */
void cp_confusion_add(struct cp_confusion *c, int32_t truth, int32_t predicted);

/* Adds the counts of b, of equally many classes, to c. */
void cp_confusion_merge(struct cp_confusion *c, const struct cp_confusion *b);

static inline int64_t cp_confusion_count(const struct cp_confusion *c, int32_t truth,
                                         int32_t predicted)
{
    return c->count[(int64_t)truth * (c->n_classes + 1) + predicted];
}

/* Share of right predictions. */
double cp_confusion_accuracy(const struct cp_confusion *c);

/* 2 TP / (2 TP + FP + FN) of a class; 0 where that is 0/0. */
double cp_confusion_f1(const struct cp_confusion *c, int32_t class);

/* Mean F1 over the classes that occur as truth or as prediction (as scikit-learn's f1_score with
 * average="macro"). */
double cp_confusion_macro_f1(const struct cp_confusion *c);

/* Index of the largest of n >= 1 scores, the first of equals; -1 if any is NaN or infinite. */
int32_t cp_argmax(const float *score, int32_t n);

#endif
