/* helpers/fetch/address.c: which addresses a fetch may connect to. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cove/mem.h"
#include "helpers/fetch/fetch_private.h"

static struct sockaddr_storage address(const char *text)
{
    struct sockaddr_storage s = { 0 };

    if (strchr(text, ':')) {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&s;

        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(80);
        assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
    } else {
        struct sockaddr_in *v4 = (struct sockaddr_in *)&s;

        v4->sin_family = AF_INET;
        v4->sin_port = htons(80);
        assert_int_equal(inet_pton(AF_INET, text, &v4->sin_addr), 1);
    }
    return s;
}

static bool may(const char *allow, const char *text)
{
    struct sockaddr_storage s = address(text);

    return address_may_be_reached(allow, (struct sockaddr *)&s);
}

static const struct {
    const char *allow, *to;
    bool want;
    const char *because;
} cases[] = {
    { "", "198.51.100.7", true, "a public address" },
    { "", "2001:db8::7", true, "a public address" },
    { "", "172.15.255.255", true, "just below a private range" },
    { "", "172.32.0.0", true, "just above a private range" },
    { "", "127.0.0.1", false, "loopback" },
    { "", "127.255.255.254", false, "all of 127/8 is loopback" },
    { "", "0.0.0.0", false, "means this machine" },
    { "", "10.0.0.1", false, "private" },
    { "", "172.16.0.1", false, "private" },
    { "", "172.31.255.255", false, "private" },
    { "", "192.168.1.1", false, "private" },
    { "", "100.64.0.1", false, "of a carrier" },
    { "", "169.254.169.254", false, "metadata" },
    { "", "168.63.129.16", false, "a cloud's own" },
    { "", "224.0.0.1", false, "multicast" },
    { "", "255.255.255.255", false, "broadcast" },
    { "", "::1", false, "loopback" },
    { "", "::", false, "means this machine" },
    { "", "::ffff:127.0.0.1", false, "IPv4 in disguise" },
    { "", "::ffff:198.51.100.7", false, "IPv4 in disguise, whatever it holds" },
    { "", "::127.0.0.1", false, "IPv4 in disguise, old" },
    { "", "64:ff9b::a00:1", false, "IPv4 behind NAT64" },
    { "", "2002:a00:1::", false, "IPv4 in 6to4" },
    { "", "fe80::1", false, "link-local" },
    { "", "fc00::1", false, "unique-local" },
    { "", "fd00:ec2::254", false, "metadata" },
    { "", "ff02::1", false, "multicast" },
    { "10.0.0.0/24", "10.0.0.1", true, "the operator opened it" },
    { "10.0.0.0/24", "10.0.1.1", false, "the operator opened another one" },
    { "10.0.0.0/24", "::ffff:10.0.0.1", false, "what is open is open in its own form" },
    { "127.0.0.1 ::1", "::1", true, "the second of a list" },
};

static void addresses_are_refused_unless_they_are_public_or_opened(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (may(cases[i].allow, cases[i].to) != cases[i].want)
            fail_msg("%s (%s)", cases[i].to, cases[i].because);
}

static void a_family_of_another_kind_is_refused(void **state)
{
    struct sockaddr_storage s = { .ss_family = AF_UNIX };

    (void)state;
    assert_false(address_may_be_reached("0.0.0.0/0 ::/0", (struct sockaddr *)&s));
}

/* Loopback stands for any address of this machine: it is reached from itself, too. */
static void an_address_of_this_machine_is_known_as_such(void **state)
{
    struct sockaddr_storage own = address("127.0.0.1"), other = address("198.51.100.7");

    (void)state;
    assert_true(address_is_own((struct sockaddr *)&own));
    assert_false(address_is_own((struct sockaddr *)&other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_refused_unless_they_are_public_or_opened),
        cmocka_unit_test(a_family_of_another_kind_is_refused),
        cmocka_unit_test(an_address_of_this_machine_is_known_as_such),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
