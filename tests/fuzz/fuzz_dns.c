/* Any bytes as a question, and as the answer to one: read, filtered, written. What we write must be
 * readable, and an answer's addresses must be those of the answer. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "helpers/resolver/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_question(const uint8_t *p, size_t len)
{
    struct dns_query q, again;
    uint8_t out[DNS_QUERY_MAX];
    int rc = dns_read_query(p, len, &q);

    if (rc > 0)
        dns_write_code(&q, (unsigned)rc, false, out, sizeof(out));
    if (rc != 0)
        return;
    len = dns_write_query(&q, 1, out);
    if (len == 0 || dns_read_query(out, len, &again) != 0 || strcmp(q.name, again.name) != 0 ||
        q.type != again.type)
        abort();
}

/* The first byte picks the type that was asked for, the next two how much room there is. */
static void as_answer(const uint8_t *p, size_t len)
{
    static const uint16_t types[] = { DNS_A, DNS_AAAA, 15, 16 };
    struct dns_query q = { .id = 7, .name = "a.bc", .edns = p[0] & 4 };
    struct dns_answer a, back;
    size_t room = (size_t)(p[1] << 8 | p[2]) + 64, written;
    uint8_t *out = malloc(room);

    q.type = types[p[0] & 3];
    if (out && dns_read_answer(p + 3, len - 3, &q, 7, &a) == 0 && !a.truncated) {
        if (q.type == DNS_A || q.type == DNS_AAAA)
            written = dns_write_addresses(&q, &a, out, room);
        else
            written = dns_write_copy(&q, &a, p + 3, out, room);
        if (written > room || (written && dns_read_answer(out, written, &q, 7, &back) < 0))
            abort();
        if (written && !back.truncated && back.address_count != a.address_count)
            abort();
    }
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *exact = malloc(size + 1); /* of exactly this size: reading over it is noticed */

    if (!exact)
        return 0;
    memcpy(exact, data, size);
    exact = realloc(exact, size ? size : 1);
    as_question(exact, size);
    if (size > 3)
        as_answer(exact, size);
    free(exact);
    return 0;
}
