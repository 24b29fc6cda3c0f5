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

/* Takes over the log lines of the library and SIGINT and SIGTERM. The first signal calls
 * collapipe_run_stop() if can_stop, the second (or the first if not) ends the process with 130. */
void progress_open(const struct args *a, bool can_stop);
void progress_close(void);

/* The events of a run: start, step, round, saved. */
void progress_event(const json_t *event);

/* Clears the live line and keeps other threads from stderr; draws it again. */
void progress_pause(void);
void progress_resume(void);

/* Whether a signal asked the run to stop. */
bool progress_stopped(void);

#endif
