/* A line on the terminal that is written again and again, and taken away at the end. */
#include "cli/progress.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "cove/text.h"

enum { BAR_WIDTH = 30 };

#define LINE_BEGIN "\r\033[K" /* goes to the first column and clears the line */

bool progress_is_seen(void)
{
    return isatty(STDERR_FILENO);
}

void progress_show(const char *what, uint64_t done, uint64_t total)
{
    static const char full[BAR_WIDTH + 1] = "##############################";
    char amount[32];
    int share = total && done < total ? (int)(done * BAR_WIDTH / total) : BAR_WIDTH;

    if (!progress_is_seen())
        return;
    text_format_bytes(done, amount);
    if (total)
        fprintf(stderr, LINE_BEGIN "[%-*.*s] %3d %%  %s", BAR_WIDTH, share, full,
                done < total ? (int)(done * 100 / total) : 100, what);
    else
        fprintf(stderr, LINE_BEGIN "%s, %s", what, amount);
}

void progress_clear(void)
{
    if (progress_is_seen())
        fputs(LINE_BEGIN, stderr);
}

/* ------------------------------------------------------------------ seconds */

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stop;
    const char *what; /* NULL = it does not run */
} ticker = { .lock = PTHREAD_MUTEX_INITIALIZER, .stop = PTHREAD_COND_INITIALIZER };

static void *count_seconds(void *arg)
{
    struct timespec next;
    unsigned seconds = 0;

    (void)arg;
    clock_gettime(CLOCK_REALTIME, &next);
    pthread_mutex_lock(&ticker.lock);
    while (ticker.what) {
        next.tv_sec++;
        if (pthread_cond_timedwait(&ticker.stop, &ticker.lock, &next) != 0 && ticker.what)
            fprintf(stderr, LINE_BEGIN "%s, %u s", ticker.what, ++seconds);
    }
    pthread_mutex_unlock(&ticker.lock);
    return NULL;
}

void progress_clock_start(const char *what)
{
    if (!progress_is_seen())
        return;
    ticker.what = what;
    if (pthread_create(&ticker.thread, NULL, count_seconds, NULL) != 0)
        ticker.what = NULL;
}

void progress_clock_stop(void)
{
    if (!ticker.what)
        return;
    pthread_mutex_lock(&ticker.lock);
    ticker.what = NULL;
    pthread_cond_signal(&ticker.stop);
    pthread_mutex_unlock(&ticker.lock);
    pthread_join(ticker.thread, NULL);
    progress_clear();
}
