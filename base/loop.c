#include "cove/loop.h"

#include <assert.h>
#include <limits.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"

/* ------------------------------------------------------------------ descriptors */

int watch_start(struct loop *l, struct watch *w, int fd, uint32_t events, watch_fn ready)
{
    assert(!w->loop && fd >= 0 && ready);
    *w = (struct watch){ .loop = l, .fd = fd, .ready = ready };
    if (watch_want(w, events) == 0)
        return 0;
    *w = (struct watch){ .fd = -1 };
    return -1;
}

/* A fetched event whose watch is NULL is passed over. */
static void forget_fetched(struct loop *l, const struct watch *w)
{
    for (unsigned i = l->told_count; i < l->fetched_count; i++)
        if (l->fetched[i].data.ptr == w)
            l->fetched[i].data.ptr = NULL;
}

/* A watch that wants nothing is taken out of epoll, which would otherwise go on reporting errors and
 * hang-ups: those cannot be masked. */
int watch_want(struct watch *w, uint32_t events)
{
    struct epoll_event ev = { .events = events, .data.ptr = w };
    int change = !events ? EPOLL_CTL_DEL : w->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

    if (!w->loop || w->events == events)
        return 0;
    if (epoll_ctl(w->loop->epoll, change, w->fd, &ev) < 0)
        return -1;
    w->events = events;
    if (!events)
        forget_fetched(w->loop, w);
    return 0;
}

int watch_take(struct watch *w)
{
    int fd = w->loop ? w->fd : -1;

    watch_want(w, 0);
    *w = (struct watch){ .fd = -1 };
    return fd;
}

void watch_close(struct watch *w)
{
    cove_close(watch_take(w));
}

/* ------------------------------------------------------------------ timers */

/* The list is searched from its end: most timers of a process run equally long, so a new one
 * belongs there. */
void timer_start(struct loop *l, struct timer *t, uint64_t after_ms, timer_fn fire)
{
    struct timer *before;

    assert(fire);
    timer_stop(t);
    t->loop = l;
    t->set = true;
    t->fire = fire;
    /* a timer never fires in the turn that has set it */
    t->at_ms = clock_boot_ms() + (after_ms ? after_ms : 1);
    before = TAILQ_LAST(&l->timers, timer_list);
    while (before && before->at_ms > t->at_ms)
        before = TAILQ_PREV(before, timer_list, link);
    if (before)
        TAILQ_INSERT_AFTER(&l->timers, before, t, link);
    else
        TAILQ_INSERT_HEAD(&l->timers, t, link);
}

void timer_stop(struct timer *t)
{
    if (t->set)
        TAILQ_REMOVE(&t->loop->timers, t, link);
    t->set = false;
}

/* The list is looked at anew after each callback, which may have stopped or freed any of them. */
static void fire_timers(struct loop *l)
{
    uint64_t now = TAILQ_EMPTY(&l->timers) ? 0 : clock_boot_ms();
    struct timer *t;

    while (!l->stopped && (t = TAILQ_FIRST(&l->timers)) && t->at_ms <= now) {
        timer_stop(t);
        t->fire(t);
    }
}

static int time_left(const struct loop *l, int most_ms)
{
    const struct timer *t = TAILQ_FIRST(&l->timers);
    uint64_t now, left;

    if (!t)
        return most_ms;
    now = clock_boot_ms();
    left = t->at_ms > now ? t->at_ms - now : 0;
    if (left > INT_MAX)
        left = INT_MAX;
    return most_ms >= 0 && (uint64_t)most_ms < left ? most_ms : (int)left;
}

/* ------------------------------------------------------------------ the loop */

int loop_init(struct loop *l, struct cove_err *e)
{
    *l = (struct loop){ .epoll = epoll_create1(EPOLL_CLOEXEC) };
    TAILQ_INIT(&l->timers);
    return l->epoll < 0 ? cove_fail_errno(e, COVE_INTERNAL, "event loop") : 0;
}

void loop_done(struct loop *l)
{
    l->epoll = cove_close(l->epoll);
}

static void fetch_events(struct loop *l, int most_ms)
{
    int most = l->at_once ? (int)l->at_once : 1, n;

    assert(most <= LOOP_AT_ONCE_MAX);
    n = epoll_wait(l->epoll, l->fetched, most, time_left(l, most_ms));
    l->fetched_count = n > 0 ? (unsigned)n : 0;
    l->told_count = 0;
}

/* The watch may have changed what it wants since the event was fetched. */
static void tell_next(struct loop *l)
{
    struct epoll_event ev = l->fetched[l->told_count++];
    struct watch *w = ev.data.ptr;
    uint32_t events = w ? ev.events & (w->events | EPOLLERR | EPOLLHUP) : 0;

    if (events)
        w->ready(w, events);
}

/* Descriptors that are always ready do not starve others: epoll puts one that it has reported at the
 * end of its queue. Nor do they starve timers, which are looked at in every turn. */
void loop_turn(struct loop *l, int most_ms)
{
    if (l->told_count == l->fetched_count)
        fetch_events(l, most_ms);
    if (l->told_count < l->fetched_count)
        tell_next(l);
    fire_timers(l);
}

void loop_run(struct loop *l)
{
    while (!l->stopped)
        loop_turn(l, -1);
}

void loop_stop(struct loop *l)
{
    l->stopped = true;
}
