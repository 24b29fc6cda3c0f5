/*
 * share_impl: one cluster of plan/share.h as functions of w = 1 / y. Private to src/plan.
 *
 * T_c is concave in w between its kinks, where t^F or t^B passes its bottleneck; E_c is smooth, and
 * E_c' w^2 goes as w^1.8 to w^2, where ' is d / dw.
 */
#ifndef CP_PLAN_SHARE_IMPL_H
#define CP_PLAN_SHARE_IMPL_H

#include "plan/share.h"

/* Newton's error after a step is about the square of it. */
#define CP_SHARE_STEP_LAST 1e-6
enum { CP_SHARE_ROOT_STEPS = 60 }; /* 2 to 5 are usual */

/* T_c in two parts: what is there at any w, infinite where a link is dead; and else what w adds. */
double cp_share_const_s(const struct cp_share_cluster *c);
double cp_share_added_s(const struct cp_share_cluster *c, double w);

/* Whether E_c depends on w. */
bool cp_share_priced(const struct cp_share_cluster *c);

/* From base_s: the kinks between w = 1 and most_w (without one: time -infinity or infinity), and
 * the time at most_w. */
void cp_share_set_kinks(const struct cp_share_cluster *c, struct cp_share_work *k, double most_w);

/* cap_*: slopes at w, where T(w) = theta; at a kink those on the side of longer times, or not. */
void cp_share_set_cap(const struct cp_share_cluster *c, struct cp_share_work *k, double w,
                      double theta_s, bool longer);

/* cap_* at the w of at most most_w with T(w) = theta, given that T(1) <= theta. cap_time is 0, or
 * cap_* are from an earlier theta. */
void cp_share_reach(const struct cp_share_cluster *c, struct cp_share_work *k, double most_w,
                    double theta_s);

/* free_*: E' w^2 at w of a priced cluster; and at the w in [1, most_w] where it is a given one. */
void cp_share_set_free(const struct cp_share_cluster *c, struct cp_share_work *k, double w);
void cp_share_set_price(const struct cp_share_cluster *c, struct cp_share_work *k, double most_w,
                        double log_lambda);

#endif
