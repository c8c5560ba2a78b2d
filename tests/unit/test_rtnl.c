/* sandbox/net/rtnl.c: a request never grows past its room, and the kernel understands what is written. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cove/buf.h"
#include "cove/mem.h"
#include "sandbox/net/net_private.h"

struct guarded { /* a request and the memory behind it */
    struct rtnl request;
    char behind[4096];
};

static void begin(struct guarded *g)
{
    struct ifinfomsg link = { 0 };

    memset(g->behind, 0x5a, sizeof(g->behind));
    rtnl_begin(&g->request, RTM_GETLINK, 0, &link, sizeof(link));
}

static void assert_nothing_written_behind(const struct guarded *g)
{
    for (size_t i = 0; i < sizeof(g->behind); i++)
        assert_int_equal(g->behind[i], 0x5a);
    assert_true(g->request.head.nlmsg_len <= sizeof(g->request.room));
}

static void assert_refused(struct guarded *g)
{
    struct cove_err e = { 0 };

    assert_nothing_written_behind(g);
    assert_int_equal(rtnl_ask(&g->request, "too much", &e), -1);
    assert_int_equal(e.errnum, EMSGSIZE);
}

static void too_many_attributes_are_refused(void **state)
{
    struct guarded g;
    char name[IFNAMSIZ] = "name";

    (void)state;
    begin(&g);
    for (int i = 0; i < 200; i++)
        rtnl_add(&g.request, IFLA_IFNAME, name, sizeof(name));
    assert_refused(&g);
}

static void one_attribute_that_is_too_long_is_refused(void **state)
{
    char bytes[sizeof(struct rtnl)] = { 0 };
    struct guarded g;

    (void)state;
    begin(&g);
    rtnl_add(&g.request, IFLA_IFNAME, bytes, sizeof(bytes));
    assert_refused(&g);
}

static void nests_without_end_are_refused(void **state)
{
    struct ifinfomsg link = { 0 };
    struct guarded g;

    (void)state;
    begin(&g);
    for (int i = 0; i < 500; i++)
        rtnl_end_nest(&g.request, rtnl_nest_with(&g.request, IFLA_LINKINFO, &link, sizeof(link)));
    assert_refused(&g);
}

static void the_kernel_answers_about_the_loopback_interface(void **state)
{
    struct ifinfomsg lo = { .ifi_index = 1 }, none = { .ifi_index = 0x7ffffff0 };
    struct cove_err e = { 0 };
    struct rtnl r;

    (void)state;
    rtnl_begin(&r, RTM_GETLINK, 0, &lo, sizeof(lo));
    assert_int_equal(rtnl_ask(&r, "lo", &e), 0);
    rtnl_begin(&r, RTM_GETLINK, 0, &none, sizeof(none));
    assert_int_equal(rtnl_ask(&r, "an interface that does not exist", &e), -1);
    assert_int_equal(e.errnum, ENODEV);
}

static void add_question(struct buf *out, uint32_t index)
{
    struct ifinfomsg link = { .ifi_index = (int)index };
    struct rtnl r;

    rtnl_begin(&r, RTM_GETLINK, 0, &link, sizeof(link));
    rtnl_append(&r, out);
}

static void of_several_requests_only_the_last_is_acknowledged(void **state)
{
    AUTO_BUF struct buf packet = BUF(4096);
    struct cove_err e = { 0 };
    struct nlmsghdr *head;
    int left;

    (void)state;
    for (uint32_t i = 1; i <= 3; i++)
        add_question(&packet, i);
    assert_int_equal(rtnl_seal(&packet, &e), 0);
    head = (struct nlmsghdr *)packet.data;
    left = (int)packet.len;
    for (uint32_t i = 1; i <= 3; i++, head = NLMSG_NEXT(head, left)) {
        assert_true(NLMSG_OK(head, left));
        assert_int_equal(head->nlmsg_seq, i);
        assert_int_equal(!!(head->nlmsg_flags & NLM_F_ACK), i == 3);
    }
    assert_int_equal(left, 0);
}

static void several_requests_that_do_not_fit_are_refused(void **state)
{
    AUTO_BUF struct buf packet = BUF(64);
    struct cove_err e = { 0 };

    (void)state;
    for (uint32_t i = 1; i <= 3; i++)
        add_question(&packet, i);
    assert_int_equal(rtnl_ask_all(&packet, "too much", &e), -1);
    assert_string_equal(e.msg, "network: requests too long");
}

static void one_failure_among_several_requests_is_noticed(void **state)
{
    AUTO_BUF struct buf packet = BUF(4096);
    struct cove_err e = { 0 };

    (void)state;
    add_question(&packet, 0x7ffffff0); /* there is no such interface */
    add_question(&packet, 1);
    assert_int_equal(rtnl_ask_all(&packet, "both", &e), -1);
    assert_int_equal(e.errnum, ENODEV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_many_attributes_are_refused),
        cmocka_unit_test(one_attribute_that_is_too_long_is_refused),
        cmocka_unit_test(nests_without_end_are_refused),
        cmocka_unit_test(the_kernel_answers_about_the_loopback_interface),
        cmocka_unit_test(of_several_requests_only_the_last_is_acknowledged),
        cmocka_unit_test(several_requests_that_do_not_fit_are_refused),
        cmocka_unit_test(one_failure_among_several_requests_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
