/*
 * battery: the charge of devices over rounds (docs/theory.md section 4), as plain arrays that the
 * owner of a run keeps and saves: charge_j[k] of device k of one cluster. A device without a
 * battery (battery_j 0) is on mains. Control units are on mains always: without one a cluster
 * cannot train.
 */
#ifndef CP_WORLD_BATTERY_H
#define CP_WORLD_BATTERY_H

#include "world/world.h"

/* A full battery each; 0 without one. */
void cp_battery_fill(const struct cp_cluster *cl, double charge_j[CP_DEVICES_MAX]);

/* Takes devices under their reserve out of the round's world: present false, absence says why.
 * Returns how many. */
int cp_battery_apply(struct cp_cluster *cl, const double charge_j[CP_DEVICES_MAX]);

/* B <- max(min(B^cap, B - E + harvest x time), 0) after a round that took time_s, with the joules
 * of its nodes: [0] control unit, [k + 1] device k. Both finite, not negative. Absent devices
 * charge too, and come back once they have their reserve. */
void cp_battery_advance(const struct cp_cluster *cl, const double energy_j[CP_DEVICES_MAX + 1],
                        double time_s, double charge_j[CP_DEVICES_MAX]);

#endif
