#include "model/optim.h"

#include "math/vec.h"

#include <assert.h>
#include <math.h>

int cp_optim_words(enum cp_optim_kind kind)
{
    return kind == CP_OPTIM_ADAMW ? 2 : 0;
}

CP_CLONES static void sgd(int64_t n, cp_real rate, cp_real shrink, const cp_real *g,
                          cp_real *restrict w)
{
    for (int64_t i = 0; i < n; i++) {
        w[i] = w[i] * shrink - rate * g[i];
    }
}

/* The constants of one AdamW step. */
struct adam {
    cp_real scale;        /* of the gradient */
    cp_real b1, c1;       /* beta1, 1 - beta1 */
    cp_real b2, c2;       /* beta2, 1 - beta2 */
    cp_real inv_root_bc2; /* 1 / sqrt(1 - beta2^t) */
    cp_real eps, rate;    /* rate: lr / (1 - beta1^t) */
    cp_real shrink;       /* 1 - lr * decay */
};

CP_CLONES static void adamw(int64_t n, const struct adam *a, const cp_real *g, cp_real *restrict w,
                            cp_real *restrict m, cp_real *restrict v)
{
    const struct adam k = *a;
    for (int64_t i = 0; i < n; i++) {
        cp_real d = g[i] * k.scale;
        cp_real mi = k.b1 * m[i] + k.c1 * d;
        cp_real vi = k.b2 * v[i] + k.c2 * d * d;
#ifdef CP_REAL_DOUBLE
        cp_real root = sqrt(vi);
#else
        cp_real root = sqrtf(vi);
#endif
        m[i] = mi;
        v[i] = vi;
        w[i] = w[i] * k.shrink - k.rate * mi / (root * k.inv_root_bc2 + k.eps);
    }
}

void cp_optim_step(const struct cp_optim *o, int64_t n, double lr, double grad_scale, bool decay,
                   int64_t t, cp_real *w, const cp_real *g, cp_real *m, cp_real *v)
{
    double shrink = decay ? 1 - lr * o->weight_decay : 1;
    if (o->kind == CP_OPTIM_SGD) {
        sgd(n, (cp_real)(lr * grad_scale), (cp_real)shrink, g, w);
        return;
    }
    assert(t >= 1 && m && v);
    struct adam a = {.scale = (cp_real)grad_scale,
                     .b1 = (cp_real)o->beta1,
                     .c1 = (cp_real)(1 - o->beta1),
                     .b2 = (cp_real)o->beta2,
                     .c2 = (cp_real)(1 - o->beta2),
                     .inv_root_bc2 = (cp_real)(1 / sqrt(1 - pow(o->beta2, (double)t))),
                     .eps = (cp_real)o->eps,
                     .rate = (cp_real)(lr / (1 - pow(o->beta1, (double)t))),
                     .shrink = (cp_real)shrink};
    adamw(n, &a, g, w, m, v);
}

double cp_optim_lr(double base, int64_t step, int64_t warmup, int64_t total, enum cp_lr_decay decay)
{
    if (step < warmup) {
        return base * (double)step / (double)warmup;
    }
    if (decay == CP_LR_CONSTANT) {
        return base;
    }
    if (step >= total) {
        return 0;
    }
    return base * (double)(total - step) / (double)(total - warmup);
}

double cp_optim_clip_scale(double norm2, double clip)
{
    if (!isfinite(norm2)) {
        return NAN;
    }
    if (clip == 0) {
        return 1;
    }
    double scale = clip / (sqrt(norm2) + 1e-6);
    return scale < 1 ? scale : 1;
}
