/* helpers/resolver/dns.c: what is understood of a message is right, and what is not is not passed on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>

#include "helpers/resolver/dns.h"

#define HEAD(id, flags, q, a, n, r) id flags "\0" q "\0" a "\0" n "\0" r
#define NAME_A                      "\1a\2bc\0"
#define QUESTION                    NAME_A "\0\1\0\1"
#define IN_TTL                      "\0\1\0\0\1\0" /* class, ttl 256 */

struct packet {
    const char *bytes;
    size_t len;
};
#define P(text)                                                                                    \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

static const struct {
    struct packet p;
    int rc;
    const char *because;
} queries[] = {
    { P(HEAD("\0\7", "\1\0", "\1", "\0", "\0", "\0") QUESTION), 0, "a question" },
    { P(HEAD("\0\7", "\1\0", "\1", "\0", "\0", "\1") QUESTION "\0\0\51\20\0\0\0\0\0\0\0"), 0,
      "with EDNS" },
    { P(HEAD("\0\7", "\x81\0", "\1", "\0", "\0", "\0") QUESTION), -1, "an answer is no question" },
    { P("\0\7\1"), -1, "less than a head" },
    { P(HEAD("\0\7", "\1\0", "\2", "\0", "\0", "\0") QUESTION QUESTION), DNS_FORMERR,
      "two questions" },
    { P(HEAD("\0\7", "\1\0", "\1", "\1", "\0", "\0") QUESTION), DNS_FORMERR,
      "answers in a question" },
    { P(HEAD("\0\7", "\1\0", "\1", "\0", "\0", "\0") "\1a\2bc"), DNS_FORMERR,
      "a name without end" },
    { P(HEAD("\0\7", "\1\0", "\1", "\0", "\0", "\0") "\100a\0\0\1\0\1"), DNS_FORMERR,
      "a label of no kind" },
    { P(HEAD("\0\7", "\1\0", "\1", "\0", "\0", "\0") "\xc0\x0c\0\1\0\1"), DNS_FORMERR,
      "a pointer to itself" },
    { P(HEAD("\0\7", "\1\0", "\1", "\0", "\0", "\0") "\1a\xc0\xff\0\1\0\1"), DNS_FORMERR,
      "a pointer outside" },
    { P(HEAD("\0\7", "\1\0", "\1", "\0", "\0", "\0") "\1a\xc0\x04\0\1\0\1"), DNS_FORMERR,
      "a pointer into the head" },
    { P(HEAD("\0\7", "\1\0", "\1", "\0", "\0", "\0") "\3a.b\0\0\1\0\1"), DNS_REFUSED,
      "a dot in a label" },
    { P(HEAD("\0\7", "\1\0", "\1", "\0", "\0", "\0") NAME_A "\0\xff\0\1"), DNS_REFUSED, "ANY" },
    { P(HEAD("\0\7", "\1\0", "\1", "\0", "\0", "\0") NAME_A "\0\xfc\0\1"), DNS_REFUSED,
      "a transfer" },
    { P(HEAD("\0\7", "\1\0", "\1", "\0", "\0", "\0") NAME_A "\0\1\0\3"), DNS_REFUSED,
      "another class" },
    { P(HEAD("\0\7", "\x29\0", "\1", "\0", "\0", "\0") QUESTION), DNS_NOTIMP, "an update" },
};

static void questions_are_taken_or_answered_with_a_code(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(queries) / sizeof(*queries); i++) {
        struct dns_query q;

        if (dns_read_query((const uint8_t *)queries[i].p.bytes, queries[i].p.len, &q) !=
            queries[i].rc)
            fail_msg("%s", queries[i].because);
    }
}

static struct dns_query question(uint16_t type)
{
    return (struct dns_query){ .id = 7, .type = type, .room = 512, .name = "a.bc" };
}

#define ANSWER_HEAD(count) HEAD("\0\7", "\x81\x80", "\1", count, "\0", "\0") QUESTION

static const struct {
    struct packet p;
    int rc;
    size_t aliases, addresses;
    const char *because;
} answers[] = {
    { P(ANSWER_HEAD("\1") "\xc0\x0c\0\1" IN_TTL "\0\4\1\2\3\4"), 0, 0, 1, "an address" },
    { P(ANSWER_HEAD("\2") "\xc0\x0c\0\5" IN_TTL "\0\4\1x\xc0\x0e\1x\2bc\0\0\1" IN_TTL
                          "\0\4\1\2\3\4"),
      0, 1, 1, "of an alias" },
    { P(ANSWER_HEAD("\2") "\1x\2bc\0\0\1" IN_TTL "\0\4\1\2\3\4\xc0\x0c\0\5" IN_TTL
                          "\0\4\1x\xc0\x0e"),
      0, 1, 1, "in any order" },
    { P(ANSWER_HEAD("\1") "\1x\2bc\0\0\1" IN_TTL "\0\4\1\2\3\4"), 0, 0, 0,
      "of a name nobody asked for" },
    { P(ANSWER_HEAD("\1") "\xc0\x0c\0\5" IN_TTL "\0\2\xc0\x0c"), 0, DNS_CHAIN_MAX, 0,
      "an alias of itself ends" },
    { P(ANSWER_HEAD("\1") "\xc0\x0c\0\1" IN_TTL "\0\5\1\2\3\4\5"), 0, 0, 0,
      "an address of five bytes" },
    { P(ANSWER_HEAD("\1") "\xc0\x0c\0\1" IN_TTL "\0\11\1\2\3\4"), -1, 0, 0,
      "a record longer than the message" },
    { P(ANSWER_HEAD("\2") "\xc0\x0c\0\1" IN_TTL "\0\4\1\2\3\4"), -1, 0, 0,
      "a record that is missing" },
    { P(HEAD("\0\7", "\x81\x80", "\1", "\0", "\0", "\0") "\1b\2bc\0\0\1\0\1"), -1, 0, 0,
      "another question's" },
    { P(HEAD("\0\10", "\x81\x80", "\1", "\0", "\0", "\0") QUESTION), -1, 0, 0, "another id" },
    { P(HEAD("\1\7", "\x81\x80", "\1", "\0", "\0", "\0") QUESTION), -1, 0, 0,
      "an id that ends like ours" },
    { P(HEAD("\0\7", "\1\0", "\1", "\0", "\0", "\0") QUESTION), -1, 0, 0, "no answer at all" },
};

static void of_an_answer_only_what_belongs_to_the_question_counts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
        struct dns_query q = question(DNS_A);
        struct dns_answer a;

        if (dns_read_answer((const uint8_t *)answers[i].p.bytes, answers[i].p.len, &q, 7, &a) !=
            answers[i].rc)
            fail_msg("%s", answers[i].because);
        if (answers[i].rc == 0 &&
            (a.alias_count != answers[i].aliases || a.address_count != answers[i].addresses))
            fail_msg("%s: %zu aliases, %zu addresses", answers[i].because, a.alias_count,
                     a.address_count);
    }
}

static void what_is_written_is_read_as_it_was(void **state)
{
    struct dns_query q = question(DNS_AAAA);
    struct dns_answer a = { .alias_count = 2, .address_count = 2 }, back;
    uint8_t out[1500];
    size_t len;

    (void)state;
    q.edns = true;
    strcpy(a.aliases[0].name, "www.b.example");
    strcpy(a.aliases[1].name, "edge.c.example");
    for (size_t i = 0; i < 2; i++) {
        a.addresses[i].family = AF_INET6;
        a.addresses[i].ttl = 30;
        memset(a.addresses[i].bytes, (int)i + 1, 16);
    }
    len = dns_write_addresses(&q, &a, out, sizeof(out));
    assert_int_equal(dns_read_answer(out, len, &q, 7, &back), 0);
    assert_int_equal(back.alias_count, 2);
    assert_string_equal(back.aliases[1].name, "edge.c.example");
    assert_int_equal(back.address_count, 2);
    assert_memory_equal(back.addresses[1].bytes, a.addresses[1].bytes, 16);
    assert_int_equal(back.addresses[1].ttl, 30);
    len = dns_write_addresses(&q, &a, out, 60);
    assert_int_equal(dns_read_answer(out, len, &q, 7, &back), 0);
    assert_true(back.truncated); /* too long for where it goes: by TCP, then */
    len = dns_write_query(&q, 7, out);
    assert_int_equal(dns_read_query(out, len, &q), 0);
    assert_string_equal(q.name, "a.bc");
    assert_true(q.edns);
}

static void addresses_in_answers_of_other_types_are_strange(void **state)
{
    static const char text[] = HEAD("\0\7", "\x81\x80", "\1", "\1", "\0", "\1") NAME_A
        "\0\17\0\1\xc0\x0c\0\1" IN_TTL "\0\4\12\0\0\1\xc0\x0c\0\1" IN_TTL "\0\4\12\0\0\1";
    struct dns_query q = question(15);
    struct dns_answer a;
    uint8_t out[512];
    size_t len;

    (void)state;
    assert_int_equal(dns_read_answer((const uint8_t *)text, sizeof(text) - 1, &q, 7, &a), 0);
    assert_true(a.strange);
    len = dns_write_copy(&q, &a, (const uint8_t *)text, out, sizeof(out));
    assert_int_equal(len, sizeof(text) - 1 - 16); /* and the additional one is left out */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_are_taken_or_answered_with_a_code),
        cmocka_unit_test(of_an_answer_only_what_belongs_to_the_question_counts),
        cmocka_unit_test(what_is_written_is_read_as_it_was),
        cmocka_unit_test(addresses_in_answers_of_other_types_are_strange),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
