#include "base/log.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdarg.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static enum cp_log_level max_level = CP_LOG_WARN;
static FILE *file;
static void (*sink_fn)(enum cp_log_level, const char *, void *);
static void *sink_arg;

static const char *const NAMES[] = {"error", "warning", "info", "debug"};

void cp_log_level(enum cp_log_level level)
{
    pthread_mutex_lock(&lock);
    max_level = level;
    pthread_mutex_unlock(&lock);
}

void cp_log_file(FILE *f)
{
    pthread_mutex_lock(&lock);
    file = f;
    pthread_mutex_unlock(&lock);
}

void cp_log_sink(void (*sink)(enum cp_log_level level, const char *line, void *arg), void *arg)
{
    pthread_mutex_lock(&lock);
    sink_fn = sink;
    sink_arg = arg;
    pthread_mutex_unlock(&lock);
}

void cp_log(enum cp_log_level level, const char *fmt, ...)
{
    char line[1024], stamp[CP_UTC_SIZE];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&lock);
    if (file) {
        cp_utc_text(stamp);
        fprintf(file, "%s %s %s\n", stamp, NAMES[level], line);
        fflush(file);
    }
    if (level <= max_level) {
        if (sink_fn) {
            sink_fn(level, line, sink_arg);
        } else {
            fprintf(stderr, "collapipe: %s%s%s\n", level <= CP_LOG_WARN ? NAMES[level] : "",
                    level <= CP_LOG_WARN ? ": " : "", line);
        }
    }
    pthread_mutex_unlock(&lock);
}
