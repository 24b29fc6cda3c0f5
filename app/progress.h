/*
 * progress: where a run is, on stderr: a live line on a terminal, else a line every ten seconds.
 *
 * There is one per process, since there is one terminal and one signal handler. Log lines of the
 * library may come from any thread; everything printed during a run goes between
 * progress_pause() and progress_resume().
 */
#ifndef APP_PROGRESS_H
#define APP_PROGRESS_H

#include "app.h"

#include <jansson.h>

/* What the first SIGINT or SIGTERM leads to: the process ends with 130, or collapipe_run_stop() is
 * called and the round under way is saved, or what is finished is reported. The second one ends the
 * process. */
enum progress_stop { PROGRESS_ENDS, PROGRESS_SAVES, PROGRESS_REPORTS };

/* Takes over the log lines of the library and both signals. */
void progress_open(const struct args *a, enum progress_stop stop);
void progress_close(void);

/* The events of a run: start, step, round, saved; and those that count rounds only: replay,
 * simulated. */
void progress_event(const json_t *event);

/* Clears the live line and keeps other threads from stderr; draws it again. */
void progress_pause(void);
void progress_resume(void);

/* Whether a signal asked the run to stop. */
bool progress_stopped(void);

#endif
