/*
 * The life of a question: which name server is asked, what its answer says, and the answer to the sandbox, which is
 * sent when its addresses are pinned. allow.c has the rules. Each question is asked from a socket of its own with an
 * id of its own, so a forger of answers has to guess both.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/msg_helpers.h"
#include "cove/text.h"
#include "helpers/resolver/resolver_private.h"

enum { TRY_MS = 1500, TRIES = 4, GIVE_UP_MS = 8000 };

/* ------------------------------------------------------------------ the end of a job */

static void finish(struct resolver *r, struct lookup *j)
{
    if (j->done)
        return;
    j->done = true;
    watch_close(&j->watch);
    LIST_REMOVE(j, link);
    LIST_INSERT_HEAD(&r->done, j, link); /* the caller may still look at it */
    assert(j->box->jobs > 0 && r->job_count > 0);
    j->box->jobs--;
    r->job_count--;
    if (j->conn)
        clients_go_on(r, j->conn);
}

static size_t room(const struct lookup *j)
{
    return j->conn ? DNS_MESSAGE_MAX : j->query.room;
}

static void answer_code(struct resolver *r, struct lookup *j, unsigned code)
{
    uint8_t out[DNS_QUERY_MAX];

    clients_answer(r, j, out, dns_write_code(&j->query, code, false, out, sizeof(out)));
    finish(r, j);
}

static void answer(struct resolver *r, struct lookup *j)
{
    static uint8_t out[DNS_MESSAGE_MAX];
    bool addresses = j->query.type == DNS_A || j->query.type == DNS_AAAA;
    size_t len;

    if (addresses)
        len = dns_write_addresses(&j->query, &j->answer, out, room(j));
    else
        len = dns_write_copy(&j->query, &j->answer, j->message, out, room(j));
    clients_answer(r, j, out, len);
    finish(r, j);
}

/* ------------------------------------------------------------------ pins */

/* The answer is sent when all of its addresses are pinned. */
static void pin_all(struct resolver *r, struct lookup *j)
{
    size_t kept = 0;

    for (size_t i = 0; i < j->answer.address_count; i++)
        if (allow_pin(r, j, &j->answer.addresses[i]) == 0)
            j->answer.addresses[kept++] = j->answer.addresses[i];
    if (j->answer.address_count && !kept) {
        if (!watch_is_on(&r->keeper))
            finish(r, j); /* the client asks again in a moment, and our successor answers */
        else
            answer_code(r, j, DNS_SERVFAIL);
        return;
    }
    j->answer.address_count = kept;
    if (!j->pins_waited)
        answer(r, j);
}

void jobs_on_pinned(struct resolver *r, uint32_t tag, bool pinned)
{
    struct lookup *j;

    LIST_FOREACH(j, &r->jobs, link)
    {
        if (j->tag != tag || !j->pins_waited)
            continue;
        j->pins_waited--;
        if (!pinned) {
            j->box->pin_count = 0; /* our list of the sandbox's pins is wrong: begin anew */
            answer_code(r, j, DNS_SERVFAIL);
        } else if (!j->pins_waited) {
            answer(r, j);
        }
        return;
    }
}

/* ------------------------------------------------------------------ asking */

static void job_ready(struct watch *w, uint32_t events);

static int send_question(struct lookup *j)
{
    uint8_t p[2 + DNS_QUERY_MAX];
    size_t len = dns_write_query(&j->query, j->id, p + 2);

    p[0] = (uint8_t)(len >> 8);
    p[1] = (uint8_t)len;
    j->sent = true;
    if (j->by_tcp)
        return send(j->watch.fd, p, len + 2, MSG_NOSIGNAL) == (ssize_t)(len + 2) ? 0 : -1;
    return send(j->watch.fd, p + 2, len, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -1;
}

static int ask(struct resolver *r, struct lookup *j)
{
    const struct sockaddr_storage *to = &r->upstreams[j->upstream % r->upstream_count];
    int type = (j->by_tcp ? SOCK_STREAM : SOCK_DGRAM) | SOCK_CLOEXEC | SOCK_NONBLOCK;
    AUTO_CLOSE int fd = socket(to->ss_family, type, 0);

    watch_close(&j->watch);
    j->sent = false;
    j->message_len = j->message_want = 0;
    j->until_ms = clock_boot_ms() + TRY_MS;
    text_random(&j->id, sizeof(j->id));
    if (fd < 0 ||
        (connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0 && errno != EINPROGRESS) ||
        watch_start(&r->loop, &j->watch, fd, j->by_tcp ? EPOLLOUT | EPOLLIN : EPOLLIN, job_ready) <
            0)
        return -1;
    take_fd(&fd);
    return j->by_tcp ? 0 : send_question(j);
}

static void try_next(struct resolver *r, struct lookup *j)
{
    while (j->tries < TRIES && r->upstream_count) {
        j->tries++;
        if (ask(r, j) == 0)
            return;
        j->upstream++;
    }
    answer_code(r, j, DNS_SERVFAIL);
}

static struct lookup *new_job(struct resolver *r, struct known_box *b, struct tcp_client *c,
                              const struct sockaddr_in *from)
{
    struct lookup *j;

    if (r->job_count >= JOBS_MAX || b->jobs >= BOX_JOBS_MAX || !(j = calloc(1, sizeof(*j))))
        return NULL; /* a client that asked by UDP asks again */
    j->box = b;
    j->conn = c;
    if (from)
        j->from = *from;
    j->tag = ++r->next_tag;
    j->gives_up_ms = clock_boot_ms() + GIVE_UP_MS;
    LIST_INSERT_HEAD(&r->jobs, j, link);
    r->job_count++;
    b->jobs++;
    resolver_need_tick(r);
    return j;
}

/* Hints of addresses in HTTPS and SVCB records would be a way round the pins: programs do without. */
static bool is_without_answer(uint16_t type)
{
    return type == DNS_HTTPS || type == DNS_SVCB;
}

void jobs_ask(struct resolver *r, struct known_box *b, struct tcp_client *c,
              const struct sockaddr_in *from, const uint8_t *p, size_t len)
{
    struct lookup *j = new_job(r, b, c, from);
    int rc;

    if (!j) {
        if (c)
            clients_go_on(r, c);
        return;
    }
    rc = dns_read_query(p, len, &j->query);
    if (rc < 0)
        finish(r, j);
    else if (rc > 0)
        answer_code(r, j, (unsigned)rc);
    else if (!allow_name(r, b, j->query.name))
        answer_code(r, j, DNS_REFUSED);
    else if (is_without_answer(j->query.type))
        answer_code(r, j, DNS_NOERROR);
    else
        try_next(r, j);
}

/* ------------------------------------------------------------------ being answered */

static void take_answer(struct resolver *r, struct lookup *j, const uint8_t *p, size_t len)
{
    if (dns_read_answer(p, len, &j->query, j->id, &j->answer) < 0) {
        if (j->by_tcp) {
            j->upstream++;
            try_next(r, j);
        }
        return; /* by UDP it may be a forgery: the true one may yet come */
    }
    if (j->answer.truncated && !j->by_tcp) {
        j->by_tcp = true;
        if (ask(r, j) < 0)
            answer_code(r, j, DNS_SERVFAIL);
        return;
    }
    if (j->answer.code != DNS_NOERROR && j->answer.code != DNS_NXDOMAIN && j->tries < TRIES &&
        r->upstream_count > 1) {
        j->upstream++;
        j->by_tcp = false;
        try_next(r, j);
        return;
    }
    watch_close(&j->watch);
    if (j->answer.truncated || j->answer.strange) {
        answer_code(r, j, DNS_SERVFAIL);
        return;
    }
    allow_strip(r, &j->answer);
    if (j->query.type != DNS_A && j->query.type != DNS_AAAA) {
        j->message = malloc(len);
        if (!j->message) {
            answer_code(r, j, DNS_SERVFAIL);
            return;
        }
        memcpy(j->message, p, len);
        answer(r, j);
        return;
    }
    if (allow_needs_pins(r, j->box))
        pin_all(r, j);
    else
        answer(r, j);
}

static void read_udp(struct resolver *r, struct lookup *j)
{
    static uint8_t p[DNS_MESSAGE_MAX];
    ssize_t n = recv(j->watch.fd, p, sizeof(p), 0);

    if (n >= 0) {
        take_answer(r, j, p, (size_t)n);
    } else if (errno != EAGAIN) { /* no name server is there */
        j->upstream++;
        try_next(r, j);
    }
}

static void fail_tcp(struct resolver *r, struct lookup *j)
{
    j->by_tcp = false;
    j->upstream++;
    try_next(r, j);
}

/* Reads a message: two bytes of length, then that many. 1: it is whole, 0: not yet, -1: the connection broke. */
static int read_piece(struct lookup *j)
{
    ssize_t n;

    if (j->message_want == 0) {
        n = recv(j->watch.fd, j->head, 2, MSG_PEEK);
        if (n != 2)
            return n < 0 && errno == EAGAIN ? 0 : n == 1 ? 0 : -1;
        n = recv(j->watch.fd, j->head, 2, 0);
        j->message_want = (size_t)(j->head[0] << 8 | j->head[1]);
        free(j->message);
        j->message = malloc(j->message_want + 1);
        if (n != 2 || !j->message || j->message_want == 0)
            return -1;
    }
    n = recv(j->watch.fd, j->message + j->message_len, j->message_want - j->message_len, 0);
    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0)
        return -1;
    j->message_len += (size_t)n;
    return j->message_len == j->message_want;
}

static void on_tcp(struct resolver *r, struct lookup *j)
{
    if (!j->sent) {
        if (send_question(j) < 0 || watch_want(&j->watch, EPOLLIN) < 0)
            fail_tcp(r, j);
        return;
    }
    switch (read_piece(j)) {
    case 1: {
        AUTO_FREE uint8_t *whole = take_ptr(j->message);

        take_answer(r, j, whole, j->message_len);
        break;
    }
    case -1:
        fail_tcp(r, j);
        break;
    default:
        break;
    }
}

static void job_ready(struct watch *w, uint32_t events)
{
    struct resolver *r = container_of(w->loop, struct resolver, loop);
    struct lookup *j = container_of(w, struct lookup, watch);

    (void)events;
    if (j->by_tcp)
        on_tcp(r, j);
    else
        read_udp(r, j);
    resolver_reap(r);
}

/* ------------------------------------------------------------------ time */

void jobs_forget_conn(struct resolver *r, const struct tcp_client *c)
{
    struct lookup *j = LIST_FIRST(&r->jobs);

    while (j) {
        struct lookup *next = LIST_NEXT(j, link);

        if (j->conn == c) {
            j->conn = NULL;
            finish(r, j);
        }
        j = next;
    }
}

static void look_at(struct resolver *r, struct lookup *j, uint64_t now)
{
    if (j->box->gone)
        finish(r, j);
    else if (now >= j->gives_up_ms)
        answer_code(r, j, DNS_SERVFAIL);
    else if (!j->pins_waited && now >= j->until_ms) {
        j->upstream++;
        try_next(r, j);
    }
}

void jobs_tick(struct resolver *r, uint64_t now)
{
    struct lookup *j = LIST_FIRST(&r->jobs);

    while (j) {
        struct lookup *next = LIST_NEXT(j, link);

        look_at(r, j, now);
        j = next;
    }
}
