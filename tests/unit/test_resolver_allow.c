/* helpers/resolver/allow.c: what a sandbox may ask and be told, and what is pinned for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <arpa/inet.h>

#include "cove/mem.h"
#include "cove/msg_helpers.h"
#include "cove/text.h"
#include "helpers/resolver/resolver_private.h"

static struct resolver resolver;
static struct known_box box;
static int keeper; /* the keeper's end of its connection with the resolver */

static int setup(void **state)
{
    int pair[2];

    (void)state;
    resolver = (struct resolver){ .rules = { .mode = NET_EGRESS } };
    memset(&box, 0, sizeof(box));
    box.slot = 3;
    box.generation = 7;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    resolver.keeper.fd = pair[0];
    keeper = pair[1];
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cove_close(resolver.keeper.fd);
    cove_close(keeper);
    free(box.pins);
    return 0;
}

static struct dns_address address(const char *text, uint32_t ttl)
{
    struct dns_address a = { .family = strchr(text, ':') ? AF_INET6 : AF_INET, .ttl = ttl };

    assert_int_equal(inet_pton(a.family, text, a.bytes), 1);
    return a;
}

/* ------------------------------------------------------------------ names */

static const struct {
    uint32_t server, own; /* enum net_mode; own NET_NONE: the sandbox has no rules of its own */
    const char *server_allow, *own_allow;
    bool want;
    const char *because;
} names[] = {
    { NET_EGRESS, NET_NONE, "", "", true, "all names may be asked for" },
    { NET_ALLOW, NET_NONE, "*.example.org", "", true, "the name is on the server's list" },
    { NET_ALLOW, NET_NONE, "example.net", "", false, "the name is on no list" },
    { NET_NONE, NET_NONE, "www.example.org", "", false, "without a network no list counts" },
    { NET_EGRESS, NET_ALLOW, "", "www.example.org", true, "the sandbox's own list has the name" },
    { NET_EGRESS, NET_ALLOW, "", "example.net", false, "the sandbox's own list lacks the name" },
    { NET_ALLOW, NET_EGRESS, "example.net", "", false, "own rules open nothing" },
    { NET_ALLOW, NET_ALLOW, "example.net", "www.example.org", false, "both must have the name" },
};

static void every_stage_must_allow_a_name(void **state)
{
    (void)state;
    for (int stage = 0; stage < NET_STAGES; stage++) {
        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
            struct net_rules own = { .mode = names[i].own };

            snprintf(own.allow, sizeof(own.allow), "%s", names[i].own_allow);
            resolver.rules = (struct net_rules){ .mode = names[i].server };
            snprintf(resolver.rules.allow, sizeof(resolver.rules.allow), "%s",
                     names[i].server_allow);
            memset(box.own, 0, sizeof(box.own));
            box.own[stage] = names[i].own == NET_NONE ? NULL : &own;
            if (allow_name(&resolver, &box, "www.example.org") != names[i].want)
                fail_msg("stage %d: %s", stage, names[i].because);
            assert_int_equal(allow_needs_pins(&resolver, &box),
                             names[i].server == NET_ALLOW || names[i].own == NET_ALLOW);
        }
    }
}

/* ------------------------------------------------------------------ addresses */

static const struct {
    const char *address, *allow, *deny;
    bool want;
    const char *because;
} addresses[] = {
    { "192.0.2.7", "", "", true, "an address of the internet" },
    { "10.0.0.5", "", "", false, "a private one: a name may be pointed anywhere" },
    { "169.254.169.254", "", "", false, "the cloud's metadata" },
    { "::ffff:10.0.0.5", "", "", false, "a private one in another spelling" },
    { "10.0.0.5", "10.0.0.0/24", "", true, "the operator allows it" },
    { "10.0.0.5", "10.0.0.0/24", "10.0.0.5", false, "what the operator denies stays denied" },
    { "192.0.2.7", "", "192.0.2.0/24", false, "the operator denies it" },
    { "2001:db8::1", "", "", true, "IPv6" },
};

static void refused_addresses_are_taken_out_of_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(addresses); i++) {
        struct dns_answer a = { .address_count = 2 };

        a.addresses[0] = address(addresses[i].address, 60);
        a.addresses[1] = address("198.51.100.1", 60);
        resolver.rules = (struct net_rules){ .mode = NET_EGRESS };
        snprintf(resolver.rules.allow, sizeof(resolver.rules.allow), "%s", addresses[i].allow);
        snprintf(resolver.rules.deny, sizeof(resolver.rules.deny), "%s", addresses[i].deny);
        allow_strip(&resolver, &a);
        if (a.address_count != (addresses[i].want ? 2 : 1))
            fail_msg("%s: %s", addresses[i].address, addresses[i].because);
        assert_int_equal(a.addresses[a.address_count - 1].bytes[0], 198); /* the other one stays */
    }
}

/* ------------------------------------------------------------------ pins */

/* The next request that the keeper got; seconds 0: none came. */
static struct resolver_pin next_request(void)
{
    static const struct msg_rule rules[] = {
        { RESOLVER_PIN, sizeof(struct resolver_pin), 0, 0, 0 },
        { 0 },
    };
    char buf[256];
    struct resolver_pin pin = { 0 };
    struct msg m;

    if (msg_recv(keeper, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, NULL) == 1)
        memcpy(&pin, m.body, sizeof(pin));
    return pin;
}

static void an_address_is_pinned_for_as_long_as_programs_use_it(void **state)
{
    static const uint32_t ttls[][2] = { /* of the answer, of the pin: one minute longer */
                                        { 0, 120 },
                                        { 60, 120 },
                                        { 300, 360 },
                                        { 1000000, 86460 }
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(ttls); i++) {
        struct lookup j = { .box = &box, .tag = 5 };
        struct dns_address a = address("192.0.2.7", ttls[i][0]);
        struct resolver_pin pin;

        box.pin_count = 0;
        assert_int_equal(allow_pin(&resolver, &j, &a), 0);
        pin = next_request();
        assert_int_equal(pin.seconds, ttls[i][1]);
        assert_int_equal(pin.slot, 3);
        assert_int_equal(pin.generation, 7);
        assert_memory_equal(pin.addr, a.bytes, 4);
        assert_int_equal(j.pins_waited, 1);
    }
}

static void a_pin_that_lasts_long_enough_is_not_asked_for_again(void **state)
{
    struct lookup j = { .box = &box };
    struct dns_address a = address("192.0.2.7", 300);

    (void)state;
    assert_int_equal(allow_pin(&resolver, &j, &a), 0);
    assert_int_equal(next_request().seconds, 360);
    assert_int_equal(allow_pin(&resolver, &j, &a), 0);
    assert_int_equal(next_request().seconds, 0);
    assert_int_equal(j.pins_waited, 1);
    a.ttl = 3600;
    assert_int_equal(allow_pin(&resolver, &j, &a), 0);
    assert_int_equal(next_request().seconds, 3660);
    assert_int_equal(box.pin_count, 1);
}

static void a_sandbox_has_a_bounded_number_of_pins(void **state)
{
    struct lookup j = { .box = &box };
    struct dns_address a = address("192.0.2.7", 300);

    (void)state;
    assert_null(box.pins); /* room is made when the first address is pinned, */
    for (int i = 0; i < BOX_PINS_MAX; i++) {
        a.bytes[1] = (uint8_t)(i >> 8);
        a.bytes[2] = (uint8_t)i;
        assert_int_equal(allow_pin(&resolver, &j, &a), 0);
        assert_int_equal(next_request().seconds, 360);
        assert_true(box.pin_room <= 2 * box.pin_count + BOX_PINS_FIRST); /* and grows with them */
    }
    a.bytes[1] = a.bytes[2] = 0; /* the first one has kept its place while room was made */
    assert_int_equal(allow_pin(&resolver, &j, &a), 0);
    assert_int_equal(next_request().seconds, 0);
    a.bytes[3]++;
    assert_int_equal(allow_pin(&resolver, &j, &a), -1);
    assert_int_equal(next_request().seconds, 0);
    box.pins[9].until_ms = clock_boot_ms(); /* one has run out: its place is free */
    assert_int_equal(allow_pin(&resolver, &j, &a), 0);
    assert_memory_equal(box.pins[9].addr, a.bytes, 4);
    assert_int_equal(box.pin_count, BOX_PINS_MAX);
}

static void without_a_keeper_nothing_counts_as_pinned(void **state)
{
    struct lookup j = { .box = &box };
    struct dns_address a = address("192.0.2.7", 300);

    (void)state;
    keeper = cove_close(keeper);
    assert_int_equal(allow_pin(&resolver, &j, &a), -1);
    assert_int_equal(j.pins_waited, 0);
    assert_int_equal(allow_pin(&resolver, &j, &a), -1); /* and so the next time */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_stage_must_allow_a_name, setup, teardown),
        cmocka_unit_test_setup_teardown(refused_addresses_are_taken_out_of_answers, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_address_is_pinned_for_as_long_as_programs_use_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_pin_that_lasts_long_enough_is_not_asked_for_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_sandbox_has_a_bounded_number_of_pins, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_keeper_nothing_counts_as_pinned, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
