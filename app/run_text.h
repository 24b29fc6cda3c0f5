/* run_text: what a run says to people: at its start, per round, at its end. */
#ifndef APP_RUN_TEXT_H
#define APP_RUN_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* The event "start". */
void run_text_start(FILE *f, const json_t *event);

/* One element of rounds_log. rounds: of the whole run. last: the lines printed for each cluster so
 * far, so that many clusters are told only when they change; n_last entries, NULL at first. */
void run_text_round(FILE *f, const json_t *round, int rounds, char **last, size_t n_last);

/* The rounds of a run as a table. */
void run_text_rounds(FILE *f, const json_t *rounds);

/* The document of a run. hints: also what one would type next. */
void run_text_summary(FILE *f, const json_t *doc, bool hints);

#endif
