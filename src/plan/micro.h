/* micro: how many micro-batches (docs/theory.md section 11.3). */
#ifndef CP_PLAN_MICRO_H
#define CP_PLAN_MICRO_H

/* argmin over M in 1..m_max of slope M + price / M; exact. slope, price >= 0; m_max >= 1.
 * With slope 0 and a price, m_max; with price 0, 1. */
int cp_micro_best(double slope, double price, int m_max);

#endif
