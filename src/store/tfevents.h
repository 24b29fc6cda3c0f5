/*
 * tfevents: scalars in a TensorBoard event file.
 *
 * The file is a sequence of records: length (u64), masked CRC-32C of the length, an Event in
 * protobuf encoding, masked CRC-32C of it; all little-endian. A record is written whole or not at
 * all, so TensorBoard can read along and a full disk spoils nothing that was written before. Times
 * are seconds since 1970 and come from the caller.
 */
#ifndef CP_STORE_TFEVENTS_H
#define CP_STORE_TFEVENTS_H

#include "base/err.h"

#include <stdint.h>

struct cp_tfevents;

/* Starts a new file events.out.tfevents.<seconds>.collapipe.<n> in the folder dir, which must
 * exist; n is the first number that is free, so a resumed run adds a file and destroys none. */
CP_NODISCARD cp_err cp_tfevents_open(const char *dir, double wall_s, struct cp_tfevents **out);

/* The whole path of the file. */
const char *cp_tfevents_path(const struct cp_tfevents *t);

/* tag: "train/loss". A value that is not finite is written as such: TensorBoard shows it. */
CP_NODISCARD cp_err cp_tfevents_scalar(struct cp_tfevents *t, double wall_s, const char *tag,
                                       int64_t step, double value);

/* NULL is allowed. The records are in the file already; E_IO or E_NOSPACE if the disk says no now.
 */
CP_NODISCARD cp_err cp_tfevents_close(struct cp_tfevents *t);

#endif
