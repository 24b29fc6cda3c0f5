#include "base/clock.h"

#include <time.h>

static int64_t read_clock(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

int64_t cp_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

int64_t cp_thread_cpu_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

double cp_utc_s(void)
{
    return (double)read_clock(CLOCK_REALTIME) * 1e-9;
}

static void utc(char out[CP_UTC_SIZE], const char *fmt)
{
    time_t t = time(NULL);
    struct tm tm;
    gmtime_r(&t, &tm);
    strftime(out, CP_UTC_SIZE, fmt, &tm);
}

void cp_utc_text(char out[CP_UTC_SIZE])
{
    utc(out, "%Y-%m-%dT%H:%M:%SZ");
}

void cp_utc_compact(char out[CP_UTC_SIZE])
{
    utc(out, "%Y%m%dT%H%M%SZ");
}
