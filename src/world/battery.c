#include "world/battery.h"

#include <assert.h>
#include <math.h>

void cp_battery_fill(const struct cp_cluster *cl, double charge_j[CP_DEVICES_MAX])
{
    for (int k = 0; k < CP_DEVICES_MAX; k++) {
        charge_j[k] = k < cl->n_devices ? cl->device[k].battery_j : 0;
    }
}

int cp_battery_apply(struct cp_cluster *cl, const double charge_j[CP_DEVICES_MAX])
{
    int empty = 0;
    for (int k = 0; k < cl->n_devices; k++) {
        struct cp_device *d = &cl->device[k];
        if (d->present && d->battery_j > 0 && charge_j[k] < d->battery_reserve_j) {
            d->present = false;
            d->absence = CP_ABSENCE_BATTERY;
            empty++;
        }
    }
    return empty;
}

void cp_battery_advance(const struct cp_cluster *cl, const double energy_j[CP_DEVICES_MAX + 1],
                        double time_s, double charge_j[CP_DEVICES_MAX])
{
    assert(isfinite(time_s) && time_s >= 0);
    for (int k = 0; k < cl->n_devices; k++) {
        const struct cp_device *d = &cl->device[k];
        double spent = energy_j[k + 1];
        assert(isfinite(spent) && spent >= 0);
        double left = charge_j[k] - spent + d->harvest_w * time_s;
        charge_j[k] = fmax(fmin(d->battery_j, left), 0);
    }
}
