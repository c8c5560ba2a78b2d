/* fcgi/kept.c: connections to inits between two requests. The test plays the inits. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/core.h"
#include "fcgi/kept.h"

static const struct core_box box = { .id = "aaaaaaaaaaaaaaaaaaaa", .index = 3, .generation = 7 };

static struct kept_conns kept;

static int start(void **state)
{
    (void)state;
    memset(&kept, 0, sizeof(kept));
    return pthread_mutex_init(&kept.lock, NULL);
}

static int stop(void **state)
{
    (void)state;
    kept_done(&kept);
    return 0;
}

/* A connection on which requests up to this tag were sent and answered. Returns init's end. */
static int settled(uint32_t tag, struct box_conn *ret)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    *ret = (struct box_conn){ .sock = ends[0], .tag = tag, .settled = tag };
    return ends[1];
}

static bool is_closed(int inits_end)
{
    char byte;
    ssize_t n = recv(inits_end, &byte, 1, MSG_DONTWAIT);

    return n == 0 || (n < 0 && errno == ECONNRESET); /* reset: with something unread */
}

static void the_same_sandbox_gets_it_again(void **state)
{
    struct box_conn c, again;
    int init = settled(41, &c), sock = c.sock;

    (void)state;
    kept_put(&kept, &box, &c);
    assert_int_equal(c.sock, -1);
    assert_true(kept_take(&kept, &box, &again));
    assert_int_equal(again.sock, sock);
    assert_int_equal(again.tag,
                     41); /* an answer to an old request is never taken for a new one's */
    assert_true(box_is_settled(&again));
    assert_false(kept_take(&kept, &box, &c)); /* nobody else gets it meanwhile */
    box_close(&again);
    close(init);
}

static void no_other_sandbox_gets_it(void **state)
{
    struct core_box others[] = { box, box, box };
    struct box_conn c, got;
    int init = settled(1, &c);

    (void)state;
    others[0].id[0] = 'b';
    others[1].generation++; /* the same name after it was saved and woken: another init */
    others[2].index++;
    kept_put(&kept, &box, &c);
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        assert_false(kept_take(&kept, &others[i], &got));
    assert_true(kept_take(&kept, &box, &got));
    box_close(&got);
    close(init);
}

static void one_whose_init_has_ended_is_closed(void **state)
{
    struct box_conn c, got;
    int init = settled(1, &c);

    (void)state;
    kept_put(&kept, &box, &c);
    close(init);
    assert_false(kept_take(&kept, &box, &got));
    assert_int_equal(kept.count, 0);
}

static void one_on_which_init_has_spoken_is_closed(void **state)
{
    struct box_conn c, got;
    int init = settled(1, &c);

    (void)state;
    kept_put(&kept, &box, &c);
    assert_int_equal(send(init, "x", 1, 0), 1);
    assert_false(kept_take(&kept, &box, &got));
    assert_true(is_closed(init));
    close(init);
}

static void one_that_is_owed_an_answer_is_not_kept(void **state)
{
    struct box_conn c;
    int init = settled(5, &c);

    (void)state;
    c.tag++;
    kept_put(&kept, &box, &c);
    assert_true(c.sock >= 0);
    c.settled = c.tag;
    c.unanswered = true;
    kept_put(&kept, &box, &c);
    assert_true(c.sock >= 0);
    assert_int_equal(kept.count, 0);
    box_close(&c);
    close(init);
}

static void one_sandbox_has_a_few_and_all_have_more(void **state)
{
    int inits[KEPT_MAX + KEPT_OF_ONE_BOX];
    struct core_box of = box;
    struct box_conn c;
    size_t count = 0;

    (void)state;
    for (int i = 0; i < KEPT_OF_ONE_BOX + 1; i++) {
        inits[count++] = settled(1, &c);
        kept_put(&kept, &of, &c);
        assert_int_equal(c.sock < 0, i < KEPT_OF_ONE_BOX);
        box_close(&c);
    }
    while (count < ARRAY_SIZE(inits)) {
        of.generation++;
        inits[count++] = settled(1, &c);
        kept_put(&kept, &of, &c);
        box_close(&c);
    }
    assert_int_equal(kept.count, KEPT_MAX);
    kept_expire(&kept, UINT64_MAX);
    while (count > 0) {
        assert_true(is_closed(inits[--count]));
        close(inits[count]);
    }
}

/* So that a tenant with many sandboxes does not keep a worker's room from all others. */
static void the_oldest_makes_room_for_a_new_one(void **state)
{
    int inits[KEPT_MAX + 1];
    struct core_box of = box;
    struct box_conn c;

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(inits); i++) {
        of.generation++;
        inits[i] = settled(1, &c);
        kept_put(&kept, &of, &c);
        assert_int_equal(c.sock, -1);
    }
    assert_true(is_closed(inits[0]));
    assert_false(is_closed(inits[1]));
    assert_true(kept_take(&kept, &of, &c));
    box_close(&c);
    for (size_t i = 0; i < ARRAY_SIZE(inits); i++)
        close(inits[i]);
}

static void a_worker_that_drains_keeps_none(void **state)
{
    struct box_conn c;
    int before = settled(1, &c), after;

    (void)state;
    kept_put(&kept, &box, &c);
    kept_close(&kept);
    assert_true(is_closed(before));
    after = settled(1, &c);
    kept_put(&kept, &box, &c);
    assert_true(c.sock >= 0);
    box_close(&c);
    close(before);
    close(after);
}

static void an_idle_one_is_closed_after_a_while(void **state)
{
    struct box_conn c;
    int init = settled(1, &c);

    (void)state;
    kept_put(&kept, &box, &c);
    kept_expire(&kept, clock_boot_ms());
    assert_int_equal(kept.count, 1);
    kept_expire(&kept, clock_boot_ms() + KEPT_MS);
    assert_int_equal(kept.count, 0);
    assert_true(is_closed(init));
    close(init);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_same_sandbox_gets_it_again),         TEST(no_other_sandbox_gets_it),
        TEST(one_whose_init_has_ended_is_closed),     TEST(one_on_which_init_has_spoken_is_closed),
        TEST(one_that_is_owed_an_answer_is_not_kept), TEST(one_sandbox_has_a_few_and_all_have_more),
        TEST(the_oldest_makes_room_for_a_new_one),    TEST(a_worker_that_drains_keeps_none),
        TEST(an_idle_one_is_closed_after_a_while),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
