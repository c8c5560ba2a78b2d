/* base/loop.c: who is called, when, and what a callback may do. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/loop.h"
#include "cove/mem.h"
#include "cove/text.h"

struct end { /* one side of a socket pair, and what happened on it */
    struct watch watch;
    int other;
    unsigned called;
    uint32_t events;
    struct end *victim; /* freed by the callback */
};

static void count(struct watch *w, uint32_t events)
{
    struct end *end = container_of(w, struct end, watch);

    end->called++;
    end->events = events;
}

static struct end *end_new(struct loop *l, watch_fn ready)
{
    struct end *end = calloc(1, sizeof(*end));
    int pair[2];

    assert_non_null(end);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(watch_start(l, &end->watch, pair[0], EPOLLIN, ready), 0);
    end->other = pair[1];
    return end;
}

static void end_free(struct end *end)
{
    watch_close(&end->watch);
    cove_close(end->other);
    free(end);
}

static void a_ready_descriptor_is_told_to_its_owner(void **state)
{
    struct loop l;
    struct end *a, *b;

    (void)state;
    assert_int_equal(loop_init(&l, NULL), 0);
    a = end_new(&l, count);
    b = end_new(&l, count);
    assert_int_equal(write(b->other, "x", 1), 1);
    loop_turn(&l, 1000);
    assert_int_equal(a->called, 0);
    assert_int_equal(b->called, 1);
    assert_true(b->events & EPOLLIN);
    end_free(a);
    end_free(b);
    loop_done(&l);
}

static void two_ready_descriptors_take_turns(void **state)
{
    struct loop l;
    struct end *a, *b;

    (void)state;
    assert_int_equal(loop_init(&l, NULL), 0);
    a = end_new(&l, count);
    b = end_new(&l, count);
    assert_int_equal(write(a->other, "x", 1), 1); /* never read: ready for ever */
    assert_int_equal(write(b->other, "x", 1), 1);
    for (int i = 0; i < 10; i++)
        loop_turn(&l, 1000);
    assert_int_equal(a->called, 5);
    assert_int_equal(b->called, 5);
    end_free(a);
    end_free(b);
    loop_done(&l);
}

static void free_victim(struct watch *w, uint32_t events)
{
    struct end *end = container_of(w, struct end, watch);

    count(w, events);
    if (end->victim) {
        end->victim->victim = NULL;
        end_free(end->victim);
    }
    end->victim = NULL;
}

/* Both are ready. Whichever is called first frees the other: under ASan a late event would show. */
static void a_callback_may_free_what_is_ready_too(void **state)
{
    struct loop l;
    struct end *a, *b;
    struct end *left;

    (void)state;
    assert_int_equal(loop_init(&l, NULL), 0);
    a = end_new(&l, free_victim);
    b = end_new(&l, free_victim);
    a->victim = b;
    b->victim = a;
    assert_int_equal(write(a->other, "x", 1), 1);
    assert_int_equal(write(b->other, "x", 1), 1);
    left = a; /* epoll reports in the order in which they became ready */
    loop_turn(&l, 1000);
    loop_turn(&l, 1000);
    assert_int_equal(left->called, 2);
    end_free(left);
    loop_done(&l);
}

/* The same where both events are fetched together. */
static void an_event_that_was_fetched_is_not_told_to_a_watch_that_is_gone(void **state)
{
    struct loop l;
    struct end *a, *b;

    (void)state;
    assert_int_equal(loop_init(&l, NULL), 0);
    l.at_once = LOOP_AT_ONCE_MAX;
    a = end_new(&l, free_victim);
    b = end_new(&l, free_victim);
    a->victim = b;
    assert_int_equal(write(a->other, "x", 1), 1);
    assert_int_equal(write(b->other, "x", 1), 1);
    loop_turn(&l, 1000);
    assert_int_equal(l.fetched_count, 2);
    loop_turn(&l, 1000); /* b's event, which is passed over */
    assert_int_equal(a->called, 1);
    loop_turn(&l, 1000);
    assert_int_equal(a->called, 2);
    end_free(a);
    loop_done(&l);
}

static void silence_victim(struct watch *w, uint32_t events)
{
    struct end *end = container_of(w, struct end, watch);

    count(w, events);
    if (end->victim)
        watch_want(&end->victim->watch, EPOLLOUT);
}

static void an_event_that_is_no_longer_wanted_is_not_told(void **state)
{
    struct loop l;
    struct end *a, *b;

    (void)state;
    assert_int_equal(loop_init(&l, NULL), 0);
    l.at_once = LOOP_AT_ONCE_MAX;
    a = end_new(&l, silence_victim);
    b = end_new(&l, count);
    a->victim = b;
    assert_int_equal(write(a->other, "x", 1), 1);
    assert_int_equal(write(b->other, "x", 1), 1);
    loop_turn(&l, 1000);
    loop_turn(&l, 1000);
    assert_int_equal(a->called, 1);
    assert_int_equal(b->called, 0);
    end_free(a);
    end_free(b);
    loop_done(&l);
}

static void free_self(struct watch *w, uint32_t events)
{
    (void)events;
    end_free(container_of(w, struct end, watch));
}

static void a_callback_may_free_itself(void **state)
{
    struct loop l;
    struct end *a;

    (void)state;
    assert_int_equal(loop_init(&l, NULL), 0);
    a = end_new(&l, free_self);
    assert_int_equal(write(a->other, "x", 1), 1);
    loop_turn(&l, 1000);
    loop_turn(&l, 0);
    loop_done(&l);
}

static void a_watch_that_wants_nothing_hears_of_no_hang_up(void **state)
{
    struct loop l;
    struct end *a;

    (void)state;
    assert_int_equal(loop_init(&l, NULL), 0);
    a = end_new(&l, count);
    watch_want(&a->watch, 0);
    a->other = cove_close(a->other);
    loop_turn(&l, 0);
    assert_int_equal(a->called, 0);
    watch_want(&a->watch, EPOLLIN);
    loop_turn(&l, 1000);
    assert_int_equal(a->called, 1);
    assert_true(a->events & EPOLLHUP);
    end_free(a);
    loop_done(&l);
}

static void a_descriptor_that_is_taken_stays_open(void **state)
{
    struct loop l;
    struct end *a;
    int fd;

    (void)state;
    assert_int_equal(loop_init(&l, NULL), 0);
    a = end_new(&l, count);
    assert_int_equal(write(a->other, "x", 1), 1);
    fd = watch_take(&a->watch);
    assert_false(watch_is_on(&a->watch));
    loop_turn(&l, 0);
    assert_int_equal(a->called, 0);
    assert_int_equal(close(fd), 0);
    assert_int_equal(watch_take(&a->watch), -1); /* twice is fine */
    end_free(a);
    loop_done(&l);
}

static void an_empty_watch_and_timer_may_be_ended(void **state)
{
    struct watch w = { 0 };
    struct timer t = { 0 };

    (void)state;
    watch_close(&w);
    assert_int_equal(watch_want(&w, EPOLLIN), 0);
    timer_stop(&t);
}

static void a_file_cannot_be_watched_and_stays_the_callers(void **state)
{
    FILE *f = tmpfile();
    struct watch w = { 0 };
    struct loop l;

    (void)state;
    assert_non_null(f);
    assert_int_equal(loop_init(&l, NULL), 0);
    assert_int_equal(watch_start(&l, &w, fileno(f), EPOLLIN, count), -1);
    assert_int_equal(errno, EPERM);
    assert_false(watch_is_on(&w));
    assert_int_equal(fclose(f), 0);
    loop_done(&l);
}

/* ------------------------------------------------------------------ timers */

struct alarm {
    struct timer timer;
    char name;
    struct alarm *stops; /* the callback stops this one */
};

static char order[16];

static void note(struct timer *t)
{
    struct alarm *a = container_of(t, struct alarm, timer);

    order[strlen(order)] = a->name;
    if (a->stops)
        timer_stop(&a->stops->timer);
}

static void turn_until(struct loop *l, const char *want)
{
    for (int i = 0; i < 100 && strlen(order) < strlen(want); i++)
        loop_turn(l, 1000);
    assert_string_equal(order, want);
}

static void timers_fire_in_the_order_of_their_time(void **state)
{
    struct alarm a = { .name = 'a' }, b = { .name = 'b' }, c = { .name = 'c' };
    struct loop l;

    (void)state;
    memset(order, 0, sizeof(order));
    assert_int_equal(loop_init(&l, NULL), 0);
    timer_start(&l, &c.timer, 30, note);
    timer_start(&l, &a.timer, 1, note);
    timer_start(&l, &b.timer, 15, note);
    turn_until(&l, "abc");
    assert_false(a.timer.set); /* once each */
    loop_turn(&l, 0);
    assert_string_equal(order, "abc");
    loop_done(&l);
}

static void a_timer_that_is_set_again_is_moved(void **state)
{
    struct alarm a = { .name = 'a' }, b = { .name = 'b' };
    struct loop l;

    (void)state;
    memset(order, 0, sizeof(order));
    assert_int_equal(loop_init(&l, NULL), 0);
    timer_start(&l, &a.timer, 1, note);
    timer_start(&l, &b.timer, 10, note);
    timer_start(&l, &a.timer, 20, note);
    turn_until(&l, "ba");
    loop_done(&l);
}

static void a_timer_may_stop_one_that_is_due_too(void **state)
{
    struct alarm a = { .name = 'a' }, b = { .name = 'b' }, c = { .name = 'c' };
    struct loop l;

    (void)state;
    memset(order, 0, sizeof(order));
    a.stops = &b;
    assert_int_equal(loop_init(&l, NULL), 0);
    timer_start(&l, &a.timer, 1, note);
    timer_start(&l, &b.timer, 1, note);
    timer_start(&l, &c.timer, 1, note);
    usleep(3000); /* all three are due at once */
    turn_until(&l, "ac");
    loop_done(&l);
}

static void again_at_once(struct timer *t)
{
    note(t);
    timer_start(t->loop, t, 0, again_at_once);
}

/* A timer that sets itself again at once does not keep the loop from its descriptors. */
static void a_timer_without_end_leaves_room_for_others(void **state)
{
    struct alarm a = { .name = 'a' };
    struct loop l;
    struct end *end;

    (void)state;
    memset(order, 0, sizeof(order));
    assert_int_equal(loop_init(&l, NULL), 0);
    end = end_new(&l, count);
    assert_int_equal(write(end->other, "x", 1), 1);
    timer_start(&l, &a.timer, 0, again_at_once);
    for (int i = 0; i < 3; i++)
        loop_turn(&l, 1000);
    assert_int_equal(end->called, 3);
    timer_stop(&a.timer);
    end_free(end);
    loop_done(&l);
}

static void stop_all(struct timer *t)
{
    loop_stop(t->loop);
}

static void the_loop_runs_until_it_is_stopped(void **state)
{
    struct timer t = { 0 };
    struct loop l;

    (void)state;
    assert_int_equal(loop_init(&l, NULL), 0);
    timer_start(&l, &t, 1, stop_all);
    loop_run(&l);
    assert_true(l.stopped);
    loop_done(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ready_descriptor_is_told_to_its_owner),
        cmocka_unit_test(two_ready_descriptors_take_turns),
        cmocka_unit_test(a_callback_may_free_what_is_ready_too),
        cmocka_unit_test(an_event_that_was_fetched_is_not_told_to_a_watch_that_is_gone),
        cmocka_unit_test(an_event_that_is_no_longer_wanted_is_not_told),
        cmocka_unit_test(a_callback_may_free_itself),
        cmocka_unit_test(a_watch_that_wants_nothing_hears_of_no_hang_up),
        cmocka_unit_test(a_descriptor_that_is_taken_stays_open),
        cmocka_unit_test(an_empty_watch_and_timer_may_be_ended),
        cmocka_unit_test(a_file_cannot_be_watched_and_stays_the_callers),
        cmocka_unit_test(timers_fire_in_the_order_of_their_time),
        cmocka_unit_test(a_timer_that_is_set_again_is_moved),
        cmocka_unit_test(a_timer_may_stop_one_that_is_due_too),
        cmocka_unit_test(a_timer_without_end_leaves_room_for_others),
        cmocka_unit_test(the_loop_runs_until_it_is_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
