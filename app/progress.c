#include "progress.h"

#include "json.h"
#include "ui.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CLEAR_LINE "\r\033[K"

enum { BAR_MAX = 24, BAR_MIN = 8 };

static const double DRAW_S = 0.1, PLAIN_S = 10, RATE_S = 1, RATE_BLEND = 0.3, LOSS_BLEND = 0.1;

static struct {
    enum { OFF, PLAIN, LIVE } mode;
    bool can_stop, round_is_told; /* the round's own block is printed beside these lines */
    bool evaluating;
    int log_level;
    int rounds, first, round, clusters, local_steps;
    long done, total, round_done; /* local steps over all clusters */
    double loss, loss_weight;     /* smoothed, with the weight of what is not the start value */
    double start_s, drawn_s;
    int rounds_done;             /* in this process */
    double tail_from_s, tails_s; /* from the last step of a round to its end; the sum of them */
    double rate, rate_from_s,
        rate_samples; /* samples per second; the window that is being filled */
} now;

static pthread_mutex_t screen = PTHREAD_MUTEX_INITIALIZER;

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- signals --------------------------------------------------------------------------------- */

static volatile sig_atomic_t line_is_shown, signals, signal_round, signal_stop, saved_round;
static char saved_hint[1200]; /* written before saved_round is */

struct line {
    char s[1600];
    size_t n;
};

static void append(struct line *l, const char *text)
{
    while (*text && l->n < sizeof l->s) {
        l->s[l->n++] = *text++;
    }
}

static void append_round(struct line *l, int round)
{
    char digit[16];
    int n = 0;
    append(l, "round ");
    do {
        digit[n++] = (char)('0' + round % 10);
        round /= 10;
    } while (round > 0 && n < (int)sizeof digit);
    while (n > 0 && l->n < sizeof l->s) {
        l->s[l->n++] = digit[--n];
    }
}

/* Only what a signal handler may do: write() and _exit(). */
static void on_signal(int number)
{
    (void)number;
    struct line l = {.n = 0};
    int round = signal_round;
    bool leave = ++signals > 1 || signal_stop == PROGRESS_ENDS;
    append(&l, line_is_shown ? CLEAR_LINE : "");
    if (leave) {
        append(&l, "collapipe: left at once");
        if (saved_round > 0) {
            append(&l, "; ");
            append_round(&l, (int)saved_round);
            append(&l, " is saved, go on with: collapipe run --resume ");
            append(&l, saved_hint);
        }
    } else if (signal_stop == PROGRESS_REPORTS) {
        append(&l, "stopping, to report what is finished; press Ctrl-C again to leave now");
    } else if (round > 0) {
        append(&l, "finishing ");
        append_round(&l, round);
        append(&l, ", then saving; press Ctrl-C again to leave now (");
        append_round(&l, round);
        append(&l, " would be lost)");
    } else {
        append(&l, "stopping as soon as a round is saved; press Ctrl-C again to leave now");
    }
    append(&l, "\n");
    ssize_t ignored = write(STDERR_FILENO, l.s, l.n);
    (void)ignored;
    if (leave) {
        _exit(COLLAPIPE_INTERRUPTED);
    }
    collapipe_run_stop();
}

static void catch_signals(void)
{
    struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&sa.sa_mask);
    sigaddset(&sa.sa_mask, SIGINT);
    sigaddset(&sa.sa_mask, SIGTERM);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    /* a reader of stdout that goes away must not end hours of training */
    signal(SIGPIPE, SIG_IGN);
}

bool progress_stopped(void)
{
    return signals > 0;
}

/* --- the line -------------------------------------------------------------------------------- */

/* Seconds to the end of the run, or of the round if the run is to stop; NaN until known. Steps go
 * on as they went so far, and so does what follows the last step of a round: averaging and
 * evaluating. */
static double eta_s(double t)
{
    double tail_s = now.evaluating ? t - now.tail_from_s : 0; /* so far */
    double step_s = (t - now.start_s - now.tails_s - tail_s) / (double)(now.done ? now.done : 1);
    long steps = now.total - now.done, rounds = now.rounds - now.first + 1 - now.rounds_done;
    if (signals) {
        steps = (long)now.local_steps * now.clusters - now.round_done;
        rounds = 1;
    }
    double eta = step_s * (double)(steps > 0 ? steps : 0);
    if (now.rounds_done > 0) {
        eta += now.tails_s / now.rounds_done * (double)rounds - tail_s;
    }
    bool unknown = now.done == 0 || (now.evaluating && eta <= 0);
    return unknown ? (double)NAN : fmax(0, eta);
}

static void eta_text(char *out, size_t size, double eta)
{
    if (!isfinite(eta) || eta > 3.6e6) {
        snprintf(out, size, "--:--");
        return;
    }
    long s = lround(eta);
    if (s < 3600) {
        snprintf(out, size, "%02ld:%02ld", s / 60, s % 60);
    } else {
        snprintf(out, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    }
}

static void bar_text(char *out, int width)
{
    int full = now.total > 0 ? (int)((double)now.done / (double)now.total * width) : 0;
    for (int i = 0; i < width; i++) {
        out[i] = i < full ? '=' : i == full ? '>' : ' ';
    }
    out[width] = 0;
}

/* What the line says after the bar; parts that do not fit are left out, the least needed first. */
static int make_line(char *out, size_t size, bool bar, int columns)
{
    char head[64], loss[48] = "", rate[96] = "", eta[32], steps[64] = "", what[24] = "";
    char draw[BAR_MAX + 1] = "";
    snprintf(head, sizeof head, "round %d/%d", now.round, now.rounds);
    if (now.local_steps > 0) {
        snprintf(steps, sizeof steps, "  %ld/%ld steps", now.done, now.total);
    }
    if (now.loss_weight > 0) {
        snprintf(loss, sizeof loss, "  loss %.3f", now.loss / now.loss_weight);
    }
    if (now.rate > 0) {
        snprintf(rate, sizeof rate, "  %s samples/s", ui_number(now.rate).s);
    }
    if (signals || now.evaluating) {
        snprintf(what, sizeof what, "  %s", now.evaluating ? "evaluating" : "stopping");
    }
    eta_text(eta, sizeof eta, eta_s(clock_s()));
    int used = (int)(strlen(head) + strlen(steps) + strlen(eta) + strlen(what)) + 6;
    char *optional[] = {loss, rate};
    for (int i = 0; i < 2; i++) {
        int n = (int)strlen(optional[i]);
        if (used + n >= columns) {
            optional[i][0] = 0;
        } else {
            used += n;
        }
    }
    int width = columns - used - 4; /* and one column free: no terminal breaks the line */
    width = width > BAR_MAX ? BAR_MAX : width;
    if (bar && width >= BAR_MIN) {
        bar_text(draw, width);
    }
    return snprintf(out, size, "%s%s%s%s%s%s%s%s  ETA %s", head, draw[0] ? " [" : "", draw,
                    draw[0] ? "]" : "", steps, loss, rate, what, eta);
}

static void hide(void)
{
    if (line_is_shown) {
        fputs(CLEAR_LINE, stderr);
        fflush(stderr);
        line_is_shown = 0;
    }
}

static void draw(bool always)
{
    char line[512], bytes[600];
    double t = clock_s();
    if (now.mode == OFF || now.rounds == 0 ||
        (!always && t - now.drawn_s < (now.mode == LIVE ? DRAW_S : PLAIN_S))) {
        return;
    }
    int columns = now.mode == LIVE ? ui_screen(stderr) : UI_WIDTH;
    make_line(line, sizeof line, now.mode == LIVE, columns);
    if (now.mode == PLAIN) {
        fprintf(stderr, "%s\n", line);
    } else if ((int)strlen(line) < columns) {
        /* one write: a signal between two would clear half a line */
        snprintf(bytes, sizeof bytes, CLEAR_LINE "%s", line);
        line_is_shown = 1;
        fputs(bytes, stderr);
    }
    fflush(stderr);
    now.drawn_s = t;
}

void progress_pause(void)
{
    pthread_mutex_lock(&screen);
    hide();
}

void progress_resume(void)
{
    if (now.mode == LIVE) {
        draw(true);
    }
    pthread_mutex_unlock(&screen);
}

static void on_log(void *arg, int level, const char *line)
{
    (void)arg;
    static const char *const NAMES[] = {"error: ", "warning: ", "", ""};
    static const enum ui_style STYLES[] = {UI_BAD, UI_WARN, UI_NORMAL, UI_DIM};
    int i = level < 0 ? 0 : level > 3 ? 3 : level;
    char *clean = ui_clean(line, 0);
    progress_pause();
    fprintf(stderr, "%scollapipe: %s%s%s\n", ui_on(stderr, STYLES[i]), NAMES[i], ui_off(stderr),
            clean);
    progress_resume();
    free(clean);
}

/* --- events ---------------------------------------------------------------------------------- */

static void on_start(const json_t *e)
{
    now.rounds = doc_int(e, "rounds", 0);
    now.first = doc_int(e, "first_round", 1);
    now.round = now.first;
    now.local_steps = doc_int(e, "local_steps", 0);
    now.clusters = (int)json_array_size(doc_array(e, "clusters"));
    now.total = (long)now.local_steps * now.clusters * (now.rounds - now.first + 1);
    now.start_s = now.rate_from_s = now.drawn_s = clock_s();
    signal_round = now.round;
}

static void on_step(const json_t *e)
{
    double t = clock_s(), loss = doc_number(e, "loss"), samples = doc_number(e, "samples");
    long per_round = (long)now.local_steps * now.clusters;
    now.round = doc_int(e, "round", now.round);
    signal_round = now.round;
    now.done += now.done < now.total;
    now.round_done++;
    now.evaluating = now.round_done >= per_round;
    now.tail_from_s = t;
    if (isfinite(loss)) {
        now.loss += LOSS_BLEND * (loss - now.loss);
        now.loss_weight += LOSS_BLEND * (1 - now.loss_weight);
    }
    now.rate_samples += isfinite(samples) ? samples : 0;
    double window_s = t - now.rate_from_s;
    if (window_s >= RATE_S) {
        double rate = now.rate_samples / window_s;
        now.rate = now.rate > 0 ? now.rate + RATE_BLEND * (rate - now.rate) : rate;
        now.rate_from_s = t;
        now.rate_samples = 0;
    }
    draw(now.evaluating && now.mode == LIVE);
}

static void on_round(void)
{
    double t = clock_s();
    now.tails_s += now.evaluating ? t - now.tail_from_s : 0;
    now.rounds_done++;
    now.round_done = 0;
    now.evaluating = false;
    now.rate_from_s = t;
    now.rate_samples = 0;
    if (now.mode == PLAIN && !now.round_is_told) {
        draw(true);
    }
    now.round += now.round < now.rounds; /* signal_round only with its first step: until then a
                                            stop ends the run after the round that is told here */
}

static void on_saved(const json_t *e)
{
    char *path = ui_path(doc_text(e, "path"));
    char *slash = strrchr(path, '/'); /* the run folder holds the checkpoint */
    saved_round = 0;
    if (slash && strlen(path) < sizeof saved_hint) {
        size_t n = (size_t)(slash - path);
        memcpy(saved_hint, path, n);
        saved_hint[n] = 0;
        if (path[0] == '\'') {
            memcpy(saved_hint + n, "'", 2);
        }
        saved_round = doc_int(e, "round", 0);
    }
    free(path);
}

/* Where only rounds are told, each counts as one step. */
static void on_count(const json_t *e)
{
    if (now.rounds == 0) {
        now.rounds = doc_int(e, "rounds", 0);
        now.total = now.rounds;
    }
    now.round = doc_int(e, "round", 0);
    now.done = now.round;
    draw(now.mode == LIVE);
}

void progress_event(const json_t *event)
{
    const char *name = doc_text(event, "event");
    pthread_mutex_lock(&screen);
    if (strcmp(name, "start") == 0) {
        on_start(event);
    } else if (strcmp(name, "step") == 0) {
        on_step(event);
    } else if (strcmp(name, "round") == 0) {
        hide();
        on_round();
    } else if (strcmp(name, "saved") == 0) {
        on_saved(event);
    } else if (strcmp(name, "replay") == 0 || strcmp(name, "simulated") == 0) {
        on_count(event);
    }
    pthread_mutex_unlock(&screen);
}

/* --- open, close ----------------------------------------------------------------------------- */

static bool same_file(int fd_a, int fd_b)
{
    struct stat a, b;
    return fstat(fd_a, &a) == 0 && fstat(fd_b, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

void progress_open(const struct args *a, enum progress_stop stop)
{
    const char *term = getenv("TERM");
    bool terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    memset(&now, 0, sizeof now);
    now.mode = a->quiet || a->progress == ARGS_PROGRESS_OFF      ? OFF
               : a->progress == ARGS_PROGRESS_PLAIN || !terminal ? PLAIN
                                                                 : LIVE;
    now.round_is_told = a->json || same_file(STDOUT_FILENO, STDERR_FILENO);
    now.log_level = a->log_level;
    now.start_s = clock_s();
    signals = 0;
    signal_stop = stop;
    catch_signals();
    collapipe_log(a->log_level, on_log, NULL);
}

void progress_close(void)
{
    progress_pause();
    now.mode = OFF;
    pthread_mutex_unlock(&screen);
    collapipe_log(now.log_level, NULL, NULL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}
