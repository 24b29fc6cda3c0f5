#include "plan/micro.h"

#include <math.h>

int cp_micro_best(double slope, double price, int m_max)
{
    if (!(price > 0)) {
        return 1;
    }
    double root = sqrt(price / slope); /* infinite where slope is 0 */
    if (!(root < m_max)) {
        return m_max;
    }
    if (root < 1) {
        return 1;
    }
    int low = (int)root, high = low + 1 < m_max ? low + 1 : m_max;
    return slope * high + price / high < slope * low + price / low ? high : low;
}
