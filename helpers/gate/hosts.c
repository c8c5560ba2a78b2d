/*
 * The way in by host name: PORT-ID.DOMAIN.
 *
 * nginx has asked a worker who may reach which port (fcgi/port_access.c), and connects to us once per
 * request. The first header line, right after the request line, is nginx's:
 *
 *     GET /path HTTP/1.1
 *     Cove-Target: owner q1w2e3r4t5y6u7i8o9p0 8000 17 key=0123456789abcdef now html
 *     Host: ...
 *
 * We take that line away and from then on only move bytes: no HTTP is read here. The words are the
 * verdict (owner, anyone, nobody, gone), the sandbox, the port, the generation of the keys, how long the caller may
 * stay (key=NAME, until=SECONDS, or "-" for as long as it likes), whether the worker was
 * asked now or its verdict is one that nginx has kept, the kind of page for bad news, and then, if the caller owns
 * the sandbox, the reason in plain words. A WebSocket on a process has another line (sockets.c).
 *
 * A kept verdict is a second old at most. It counts only if nothing has changed: of another generation, for a
 * sandbox that sleeps or has ended, or for a port that does not answer, it is left without an answer. nginx then
 * asks a worker and comes again.
 *
 * Safe: only root and nginx's group can connect to this socket, and nginx replaces a Cove-Target that
 * a client sent. The target is looked up again all the same.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/gate/gate_private.h"

enum { HEAD_MAX = 64 * 1024, HEAD_MS = 10000, LINE_MAX_BYTES = 512 };

static const struct way_in by_host = { .refused = answer_refusal, .half_close = false };

/* ------------------------------------------------------------------ the line */

struct line {
    char verdict[8], id[24], asked[8], page[8];
    unsigned port, generation;
    struct gate_caller caller;
    char reason[120];
};

bool caller_read(const char *word, struct gate_caller *ret)
{
    unsigned long long until_s;
    int read = 0;

    if (strncmp(word, "key=", 4) == 0)
        return text_copy(ret->key, sizeof(ret->key), word + 4);
    if (sscanf(word, "until=%20llu%n", &until_s, &read) != 1 || word[read])
        return false;
    ret->until_s = until_s;
    return true;
}

static bool parse_line(const char *text, struct line *ret)
{
    char stays[32];
    int read = 0;

    *ret = (struct line){ 0 };
    if (sscanf(text, "Cove-Target: %7s %23s %5u %10u %31s %7s %7s%n", ret->verdict, ret->id,
               &ret->port, &ret->generation, stays, ret->asked, ret->page, &read) != 7 ||
        !text_is_id(ret->id) || ret->port < 1 || ret->port > 65535 ||
        (strcmp(stays, "-") != 0 && !caller_read(stays, &ret->caller)))
        return false;
    read += text[read] == ' ';
    text_copy(ret->reason, sizeof(ret->reason), text + read);
    return true;
}

/* 1: the line was there and is cut out of the head; 0: more must be read; -1: that is no head of
 * nginx's. */
static int cut_line(struct buf *head, char ret[LINE_MAX_BYTES])
{
    char *first = memmem(head->data, head->len, "\r\n", 2), *line, *end;
    size_t left;

    if (!first)
        return head->len < HEAD_MAX ? 0 : -1;
    line = first + 2;
    left = head->len - (size_t)(line - head->data);
    end = memmem(line, left, "\r\n", 2);
    if (!end)
        return left < LINE_MAX_BYTES ? 0 : -1;
    if (end - line >= LINE_MAX_BYTES)
        return -1;
    memcpy(ret, line, (size_t)(end - line));
    ret[end - line] = '\0';
    if (sockets_meant(ret) && !memmem(line, left, "\r\n\r\n", 4))
        return head->len < HEAD_MAX ? 0 : -1;
    memmove(line, end + 2, left - (size_t)(end + 2 - line));
    head->len -= (size_t)(end + 2 - line);
    return 1;
}

/* The owner may always. For all others the port's own word counts, and without one the sandbox's
 * default, which is in the verdict. */
static bool may_enter(const struct gate *g, const char *verdict, const struct port_target *t)
{
    enum gate_access_word word = access_of(g, t);

    if (strcmp(verdict, "owner") == 0)
        return true;
    if (word == GATE_ACCESS_DEFAULT)
        return strcmp(verdict, "anyone") == 0;
    return word == GATE_ACCESS_PUBLIC;
}

/* Of a request without a body nothing follows its head: nginx can only leave. Most such requests are answered before the
 * next sweep, so the client's end is watched from that sweep on, which spares two system calls for each of them. (A client
 * of HTTP/2 may have sent a body all the same; a body that ends like a head waits for that sweep.) */
static bool nothing_follows(const struct relay *r)
{
    return r->kept && r->head.len >= 4 &&
           memcmp(r->head.data + r->head.len - 4, "\r\n\r\n", 4) == 0;
}

static void follow_port(struct relay *r, const struct line *line)
{
    struct port_target target = { .port = (uint16_t)line->port };
    struct cove_err e;

    text_copy(target.id, sizeof(target.id), line->id);
    r->target = target;
    r->caller = line->caller;
    r->html = strcmp(line->page, "html") == 0;
    r->kept = strcmp(line->asked, "kept") == 0;
    r->quiet = nothing_follows(r);
    text_copy(r->reason, sizeof(r->reason), line->reason);
    if (r->kept && line->generation != state_keys_generation(r->gate->state)) {
        cove_fail(&e, COVE_GONE, "the keys have changed");
        answer_refusal(r, &e);
    } else if (strcmp(line->verdict, "gone") == 0) {
        cove_fail(&e, COVE_GONE, "no such sandbox");
        answer_refusal(r, &e);
    } else if (!may_enter(r->gate, line->verdict, &target)) {
        cove_fail(&e, COVE_UNAUTHORIZED, "this port needs a key, a token or a link");
        answer_refusal(r, &e);
    } else {
        relay_connect(r, &target);
    }
}

static bool follow(struct relay *r, const char *text)
{
    struct line line;

    if (sockets_follow(r, text))
        return true;
    if (!parse_line(text, &line))
        return false;
    follow_port(r, &line);
    return true;
}

/* ------------------------------------------------------------------ reading the line */

/* More bytes have come while the sandbox is not connected yet: they stay in the socket. */
static void more_ready(struct watch *w, uint32_t events)
{
    (void)events;
    watch_want(w, 0);
}

/* True: more must come. False: the line was followed, or the connection is no more. */
static bool read_head(struct relay *r)
{
    struct watch *w = &r->end[CLIENT];
    char *room = buf_reserve(&r->head, 4096);
    ssize_t n = room ? recv(w->fd, room, 4096, MSG_DONTWAIT) : -1;
    char line[LINE_MAX_BYTES];
    int rc;

    if (n < 0 && room && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0) {
        relay_close(r);
        return false;
    }
    r->head.len += (size_t)n;
    rc = cut_line(&r->head, line);
    if (rc == 0)
        return true;
    timer_stop(&r->timer);
    w->ready = more_ready; /* most requests are whole by now */
    if (rc == 1 && follow(r, line))
        return false;
    log_event(LOG_LEVEL_WARN, "a connection to the ports' socket did not begin with nginx's line");
    relay_close(r);
    return false;
}

static void head_ready(struct watch *w, uint32_t events)
{
    (void)events;
    read_head(container_of(w, struct relay, end[CLIENT]));
}

static void too_slow(struct timer *t)
{
    relay_close(container_of(t, struct relay, timer));
}

static void hosts_ready(struct watch *w, uint32_t events)
{
    struct gate *g = container_of(w->loop, struct gate, loop);
    struct relay *r = relay_accept(g, w, &by_host);

    (void)events;
    if (!r)
        return;
    r->head = BUF(HEAD_MAX + 4096);
    r->end[CLIENT].ready = head_ready;
    timer_start(&g->loop, &r->timer, HEAD_MS, too_slow);
    gate_room_changed(g);
    /* nginx sends as soon as it has connected: mostly the line is here already. */
    if (read_head(r) && watch_want(&r->end[CLIENT], EPOLLIN) < 0)
        relay_close(r);
}

int hosts_listen(struct gate *g, int fd, struct cove_err *e)
{
    if (watch_start(&g->loop, &g->hosts, fd, EPOLLIN, hosts_ready) == 0)
        return 0;
    close(fd);
    return cove_fail_errno(e, COVE_INTERNAL, "the ports' socket");
}
