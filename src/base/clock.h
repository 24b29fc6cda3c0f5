/* clock: monotonic nanoseconds for every duration and deadline; UTC only to be shown. */
#ifndef CP_BASE_CLOCK_H
#define CP_BASE_CLOCK_H

#include <stdint.h>

int64_t cp_now_ns(void); /* CLOCK_MONOTONIC */

/* CPU time of the calling thread: what a node was busy, whatever else the machine did. */
int64_t cp_thread_cpu_ns(void);

static inline int64_t cp_deadline_ns(double seconds_from_now)
{
    return cp_now_ns() + (int64_t)(seconds_from_now * 1e9);
}

double cp_utc_s(void); /* seconds since 1970, for files that must carry a date */

enum { CP_UTC_SIZE = 24 };
void cp_utc_text(char out[CP_UTC_SIZE]);    /* 2026-11-30T18:04:05Z */
void cp_utc_compact(char out[CP_UTC_SIZE]); /* 20261130T180405Z: for names of folders */

#endif
