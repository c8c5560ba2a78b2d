/*
 * One event loop for every process of ours that waits for more than one thing.
 *
 * A `struct watch` is one descriptor in the loop and is embedded in the object that owns it; the
 * callback finds that object with container_of(). A `struct timer` is embedded likewise. The loop
 * itself is embedded in the process's own structure: container_of(w->loop, struct gate, loop).
 *
 * A callback may close and free any watch, its own and others: no event that was fetched earlier is told to a watch
 * that has been closed since, or that no longer wants it.
 *
 * As a rule the loop takes one event at a time from the kernel, so what a callback is told is true at that moment. A
 * busy process spares system calls by setting `at_once`: several events are then fetched together and told one after the
 * other. A callback may then be told of bytes that an earlier callback has read meanwhile, so it must never wait in a call.
 */
#ifndef COVE_LOOP_H
#define COVE_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/queue.h>

#include "cove/err.h"

struct timer;
TAILQ_HEAD(timer_list, timer);

enum { LOOP_AT_ONCE_MAX = 16 };

struct loop {
    int epoll;
    struct timer_list timers; /* the next one first */
    bool stopped;
    unsigned at_once; /* how many events may be fetched together, up to LOOP_AT_ONCE_MAX; 0: one */
    struct epoll_event fetched[LOOP_AT_ONCE_MAX];
    unsigned fetched_count, told_count; /* of the fetched events, the first told_count are done */
};

int loop_init(struct loop *l, struct cove_err *e);
void loop_done(struct loop *l); /* watches and timers stay their owners' */
/* Waits for one event or timer, but no longer than most_ms (-1: without end), and calls its callback. */
void loop_turn(struct loop *l, int most_ms);
void loop_run(struct loop *l);  /* turn until somebody calls loop_stop() */
void loop_stop(struct loop *l); /* loop_run() returns when the current callback has */

/* ------------------------------------------------------------------ descriptors */

struct watch; /* all zero: watches nothing, and may be passed to every function below */
typedef void (*watch_fn)(struct watch *w, uint32_t events); /* EPOLL* */

struct watch {
    struct loop *loop; /* NULL: watches nothing */
    int fd;
    uint32_t events;
    watch_fn ready;
};

/*
 * From now on the descriptor belongs to the watch; after a failure (-1 and errno) it is still the
 * caller's. With events 0 the descriptor is only kept, until watch_want() says otherwise.
 */
int watch_start(struct loop *l, struct watch *w, int fd, uint32_t events, watch_fn ready);
int watch_want(struct watch *w, uint32_t events);
int watch_take(struct watch *w);   /* stop watching; the descriptor is the caller's, -1 if none */
void watch_close(struct watch *w); /* stop watching and close */

static inline bool watch_is_on(const struct watch *w)
{
    return w->loop != NULL;
}

/* ------------------------------------------------------------------ timers */

typedef void (*timer_fn)(struct timer *t);

struct timer {         /* all zero: not set */
    struct loop *loop; /* stays when the timer has fired, so that the callback can set it again */
    bool set;
    uint64_t at_ms; /* clock_boot_ms() */
    timer_fn fire;
    TAILQ_ENTRY(timer) link;
};

/* Call back once, after_ms from now; a timer that was set already is moved. */
void timer_start(struct loop *l, struct timer *t, uint64_t after_ms, timer_fn fire);
void timer_stop(struct timer *t);

#endif
