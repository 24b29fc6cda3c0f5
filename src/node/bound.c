#include "node/bound.h"

#include "base/mem.h"

/* Every replica counts as a cluster of the theorem: its share of the cluster's samples, with the
 * cluster's noise. */
struct terms {
    double *variance, *rho; /* [n_replicas] */
    int *micro_batches;     /* [n_replicas] */
};

static cp_err check_training(const struct cp_edge *e)
{
    const struct cp_config *c = e->job->config;
    if (c->train.estimate_every == 0) {
        return cp_fail(CP_E_CONFIG, "train.estimate_every is 0: nothing is estimated");
    }
    if (e->job->optim.kind != CP_OPTIM_SGD) {
        return cp_fail(CP_E_CONFIG, "the bound is for train.optimizer=sgd");
    }
    for (int i = 0; i < e->plan.n_clusters; i++) {
        const struct cp_cluster_plan *p = &e->plan.cluster[i];
        bool exact = p->upload_format == CP_FORMAT_FP32;
        for (int j = 0; j <= p->segments; j++) {
            exact &= p->link_format[j] == CP_FORMAT_FP32;
        }
        if (!exact) {
            return cp_fail(CP_E_CONFIG,
                           "numbers are rounded on the links of cluster %s, and what "
                           "that does to gradients is not estimated",
                           e->world.cluster[i].name);
        }
    }
    return CP_OK;
}

static cp_err check_known(const struct cp_edge *e)
{
    const struct cp_constants *k = &e->constants;
    for (int c = 0; c < k->n_clusters; c++) {
        if (k->variance[c].rounds == 0) {
            return cp_fail(CP_E_CONFIG,
                           "the gradient variance of cluster %s is not known: it needs a measured "
                           "step of two micro-batches or more",
                           e->world.cluster[c].name);
        }
    }
    if (k->dissimilarity2.rounds == 0) {
        return cp_fail(CP_E_CONFIG, "the dissimilarity of the clusters is not known: every cluster "
                                    "must look at the first step of a round");
    }
    if (k->n_ratios == 0) {
        return cp_fail(CP_E_CONFIG, "the smoothness is not known: the weights have not moved in a "
                                    "round whose first micro-batch has labels");
    }
    return CP_OK;
}

static void fill(const struct cp_edge *e, const struct terms *t)
{
    for (int r = 0; r < e->n_replicas; r++) {
        const struct cp_replica *x = &e->replica[r];
        int m = e->plan.cluster[x->cluster].micro_batches;
        t->variance[r] = cp_constants_variance(&e->constants, x->cluster);
        t->rho[r] = e->world.cluster[x->cluster].weight.rho / x->of;
        t->micro_batches[r] = (m + x->of - 1) / x->of;
    }
}

cp_err cp_edge_bound(const struct cp_edge *e, int rounds, struct cp_bound *out)
{
    size_t n = (size_t)e->n_replicas;
    struct terms t = {0};
    cp_err err;
    CP_TRY(check_training(e));
    CP_TRY(check_known(e));
    CP_TRY(cp_mem_array(NULL, 2 * n, sizeof *t.variance, &t.variance));
    t.rho = t.variance + n;
    CP_TRY_GOTO(err, cp_mem_array(NULL, n, sizeof *t.micro_batches, &t.micro_batches), done);
    fill(e, &t);
    struct cp_converge k = {.beta = cp_constants_beta(&e->constants),
                            .step = e->job->config->train.lr,
                            .local_steps = e->world.local_steps,
                            .micro_samples = e->world.micro_samples,
                            .gap = e->start_loss,
                            .dissimilarity2 = cp_constants_dissimilarity2(&e->constants),
                            .n_clusters = e->n_replicas,
                            .variance = t.variance,
                            .rho = t.rho};
    struct cp_noise noise = cp_converge_noise(&k, t.micro_batches);
    err = cp_converge_bound(&k, &noise, rounds, out);
done:
    cp_mem_free(t.variance);
    cp_mem_free(t.micro_batches);
    return err;
}
