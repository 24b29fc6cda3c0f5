/* log: lines for people, on stderr (or a second file). Machines get events (base/event.h). */
#ifndef CP_BASE_LOG_H
#define CP_BASE_LOG_H

#include "base/err.h"

#include <stdio.h>

enum cp_log_level { CP_LOG_ERROR, CP_LOG_WARN, CP_LOG_INFO, CP_LOG_DEBUG };

/* Most talkative level that is still printed to stderr; CP_LOG_WARN at start. */
void cp_log_level(enum cp_log_level level);

/* A file that gets every line with time and level (the run folder's log.txt); NULL for none. */
void cp_log_file(FILE *f);

/* Called instead of writing to stderr, so that a progress line can be cleared first; NULL: stderr.
 */
void cp_log_sink(void (*sink)(enum cp_log_level level, const char *line, void *arg), void *arg);

void cp_log(enum cp_log_level level, const char *fmt, ...) CP_PRINTF(2, 3);

#endif
