/* base/netlist.c: lists of what a sandbox may reach say what they seem to say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>

#include "cove/mem.h"
#include "cove/netlist.h"

static const struct {
    const char *text, *print; /* NULL: is none */
} ranges[] = {
    { "10.0.0.0/8", "10.0.0.0/8" },
    { "10.1.2.3/8", "10.0.0.0/8" },
    { "192.0.2.1", "192.0.2.1/32" },
    { "0.0.0.0/0", "0.0.0.0/0" },
    { "fd00::/8", "fd00::/8" },
    { "2001:db8::1", "2001:db8::1/128" },
    { "2001:db8:ffff::/33", "2001:db8:8000::/33" },
    { "::/0", "::/0" },
    { "10.0.0.0/33", NULL },
    { "::1/129", NULL },
    { "10.0.0", NULL },
    { "10.0.0.0/", NULL },
    { "10.0.0.0/-1", NULL },
    { "10.0.0.0/8/8", NULL },
    { "fe80::1%eth0", NULL },
    { "010.0.0.1", NULL },
    { "", NULL },
    { "name", NULL },
};

static void ranges_are_read_and_printed_without_host_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ranges); i++) {
        struct net_range r;
        char text[64];

        assert_int_equal(net_range_parse(ranges[i].text, &r), ranges[i].print != NULL);
        if (!ranges[i].print)
            continue;
        net_range_print(&r, text, sizeof(text));
        assert_string_equal(text, ranges[i].print);
    }
}

static bool never(const char *text)
{
    uint8_t addr[16] = { 0 };
    int family = strchr(text, ':') ? AF_INET6 : AF_INET;

    assert_int_equal(inet_pton(family, text, addr), 1);
    return net_is_never(family, addr);
}

static void what_is_refused_always_is_and_its_neighbours_are_not(void **state)
{
    static const char *const refused[] = {
        "0.0.0.0",
        "10.0.0.0",
        "10.255.255.255",
        "100.64.0.1",
        "100.100.100.200",
        "127.0.0.1",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.192",
        "192.168.1.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::10.0.0.1",
        "::ffff:8.8.8.8",
        "::ffff:0:10.0.0.1",
        "64:ff9b::a00:1",
        "64:ff9b:1::a00:1",
        "2002:a00:1::",
        "2001:0:1::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "100::1",
    };
    static const char *const open[] = {
        "1.1.1.1",       "9.255.255.255", "11.0.0.0",    "100.63.255.255", "100.128.0.0",
        "168.63.129.15", "172.15.0.1",    "172.32.0.0",  "192.0.1.0",      "192.167.0.1",
        "198.17.0.1",    "198.20.0.0",    "223.255.1.1", "2606:4700::1",   "2001:1::1",
        "2003::1",       "fb00::1",       "2a00::1",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        if (!never(refused[i]))
            fail_msg("%s passes", refused[i]);
    for (size_t i = 0; i < ARRAY_SIZE(open); i++)
        if (never(open[i]))
            fail_msg("%s is refused", open[i]);
}

static const struct {
    const char *list, *name;
    bool has;
    const char *because;
} names[] = {
    { "example.org", "example.org", true, "the name itself" },
    { "example.org", "EXAMPLE.org", true, "in any case" },
    { "example.org", "www.example.org", false, "nothing below it" },
    { "example.org", "badexample.org", false, "nor what ends in it" },
    { "*.example.org", "www.example.org", true, "a wildcard" },
    { "*.example.org", "a.b.example.org", true, "at any depth" },
    { "*.example.org", "example.org", false, "but not the name itself" },
    { "*.example.org", "badexample.org", false, "only whole labels" },
    { "*.example.org", ".example.org", false, "and not an empty one" },
    { "a.b 10.0.0.0/8 *.c", "x.c", true, "one of several words" },
    { "*", "any.thing", true, "all" },
    { "10.0.0.0/8", "10.0.0.1", false, "addresses are no names" },
    { "", "a.b", false, "none" },
};

static void names_and_wildcards_match_whole_labels(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (net_list_has_name(names[i].list, names[i].name) != names[i].has)
            fail_msg("%s, %s: %s", names[i].list, names[i].name, names[i].because);
}

static void a_list_with_a_wrong_word_is_refused_with_the_word(void **state)
{
    static const char *const wrong[] = { "a..b",       "-a.b",        "a.b-", "a b/c", "a;b",
                                         "10.0.0.300", "10.0.0.0/40", "*a.b", "a.*.b", "a.b.",
                                         "\"a\"",      "1.2.3",       "{x}",  "a.b\n}" };
    struct cove_err e = { 0 };

    (void)state;
    assert_int_equal(
        net_list_check("k", "a.b *.c.d _x.y 10.0.0.1 fd00::/8, xn--bcher-kva.example", true, &e),
        0);
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        if (net_list_check("k", wrong[i], true, &e) == 0)
            fail_msg("'%s' is taken", wrong[i]);
    assert_int_equal(net_list_check("k", "10.0.0.1 a.b", false, &e), -1);
    assert_non_null(strstr(e.msg, "k: 'a.b'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_read_and_printed_without_host_bits),
        cmocka_unit_test(what_is_refused_always_is_and_its_neighbours_are_not),
        cmocka_unit_test(names_and_wildcards_match_whole_labels),
        cmocka_unit_test(a_list_with_a_wrong_word_is_refused_with_the_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
