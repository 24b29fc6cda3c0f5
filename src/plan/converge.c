#include "plan/converge.h"

#include <math.h>
#include <stdbool.h>

/* What distinguishes the two theorems. */
struct theorem {
    const char *name;
    double most;          /* eta beta H */
    double spread, drift; /* factors of eta^2 beta^2 (H - 1) psi, of ... (2H - 1) G^2 */
};

static const struct theorem EXACT = {"Theorem 1", 0.4, 4, 8.0 / 3};
static const struct theorem LOSSY = {"Theorem 1'", 0.25, 12, 8};

static const double NOISE = 4, ERROR = 4.5; /* factors of eta beta phi and of delta_S^2 */

static const struct theorem *theorem_of(const struct cp_converge *k)
{
    return k->error2 > 0 ? &LOSSY : &EXACT;
}

static cp_err check_number(double x, bool positive, const char *what)
{
    if (isfinite(x) && (positive ? x > 0 : x >= 0)) {
        return CP_OK;
    }
    return cp_fail(CP_E_CONFIG, "convergence bound: %s is %g; it must be finite and %s", what, x,
                   positive ? "above 0" : "0 or more");
}

static cp_err check_clusters(const struct cp_converge *k)
{
    double sum = 0;
    if (k->n_clusters < 1) {
        return cp_fail(CP_E_CONFIG, "convergence bound: %d clusters, at least 1 is needed",
                       k->n_clusters);
    }
    for (int c = 0; c < k->n_clusters; c++) {
        CP_TRY(check_number(k->variance[c], false, "a cluster's gradient variance"));
        CP_TRY(check_number(k->rho[c], false, "a cluster's weight"));
        sum += k->rho[c];
    }
    if (!(fabs(sum - 1) < 1e-9)) {
        return cp_fail(CP_E_CONFIG,
                       "convergence bound: the clusters' weights sum to %.10g; they are shares of "
                       "the data and must sum to 1",
                       sum);
    }
    return CP_OK;
}

cp_err cp_converge_check(const struct cp_converge *k)
{
    CP_TRY(check_number(k->beta, true, "the smoothness beta"));
    CP_TRY(check_number(k->step, true, "the step size eta"));
    CP_TRY(check_number(k->local_steps, true, "the number H of local steps"));
    CP_TRY(check_number(k->micro_samples, true, "the size b of a micro-batch"));
    CP_TRY(check_number(k->gap, false, "the initial gap of the loss"));
    CP_TRY(check_number(k->dissimilarity2, false, "the dissimilarity G^2"));
    CP_TRY(check_number(k->error2, false, "the squared error of the gradients"));
    CP_TRY(check_clusters(k));
    const struct theorem *t = theorem_of(k);
    double product = k->step * k->beta * k->local_steps;
    if (product > t->most * (1 + 1e-12)) { /* a quotient of the limit is allowed to round */
        return cp_fail(CP_E_CONFIG,
                       "convergence bound: eta beta H is %g x %g x %d = %g, %s needs at most %g; "
                       "lower the step size or the local steps",
                       k->step, k->beta, k->local_steps, product, t->name, t->most);
    }
    return CP_OK;
}

struct cp_noise cp_converge_noise(const struct cp_converge *k, const int *micro_batches)
{
    struct cp_noise sum = {0};
    for (int c = 0; c < k->n_clusters; c++) {
        double part = k->rho[c] * k->variance[c] / (micro_batches[c] * k->micro_samples);
        sum.phi += k->rho[c] * part;
        sum.psi += part;
    }
    return sum;
}

/* eta^2 beta^2 (H - 1) */
static double curvature(const struct cp_converge *k)
{
    double eta_beta = k->step * k->beta;
    return eta_beta * eta_beta * (k->local_steps - 1);
}

cp_err cp_converge_bound(const struct cp_converge *k, const struct cp_noise *mean, int32_t rounds,
                         struct cp_bound *out)
{
    CP_TRY(cp_converge_check(k));
    CP_TRY(check_number(rounds, true, "the number of rounds"));
    CP_TRY(check_number(mean->phi, false, "the mean noise phi"));
    CP_TRY(check_number(mean->psi, false, "the mean noise psi"));
    const struct theorem *t = theorem_of(k);
    struct cp_bound b = {
        .start = 4 * k->gap / (k->step * k->local_steps * rounds),
        .noise = NOISE * k->step * k->beta * mean->phi,
        .spread = t->spread * curvature(k) * mean->psi,
        .drift = t->drift * curvature(k) * (2 * k->local_steps - 1) * k->dissimilarity2,
        .lossy = ERROR * k->error2,
    };
    b.total = b.start + b.noise + b.spread + b.drift + b.lossy;
    *out = b;
    return CP_OK;
}

double cp_converge_alpha(const struct cp_converge *k, int cluster)
{
    double rho = k->rho[cluster];
    return k->variance[cluster] / k->micro_samples *
           (NOISE * k->step * k->beta * rho * rho + theorem_of(k)->spread * curvature(k) * rho);
}

cp_err cp_converge_micro_ref(const struct cp_converge *k, double target, int32_t rounds,
                             double *micro_ref)
{
    static const struct cp_noise none;
    struct cp_bound rest;
    double sum = 0;
    CP_TRY(check_number(target, true, "the target for the gradient"));
    CP_TRY(cp_converge_bound(k, &none, rounds, &rest));
    if (!(rest.total < target)) {
        return cp_fail(CP_E_CONFIG,
                       "convergence bound: no number of micro-batches reaches the target %g: "
                       "without any noise %g is left (%g of the start after %d rounds, %g of the "
                       "clusters' different data, %g of the links); train more rounds, take fewer "
                       "local steps or a smaller step size, or more exact links",
                       target, rest.total, rest.start, rounds, rest.drift, rest.lossy);
    }
    for (int c = 0; c < k->n_clusters; c++) {
        sum += cp_converge_alpha(k, c);
    }
    *micro_ref = sum / (target - rest.total);
    return CP_OK;
}
