/*
 * What a client on a host name is told when its request cannot reach the sandbox: 502 for a sandbox
 * that is not there (unknown, somebody else's, ended: one body for all) and for a port on which nothing
 * listens, 401 for a port that is not open to everybody, 503 for too many connections. HTML for
 * browsers, JSON for all others; nginx's line says which.
 */
#include <string.h>
#include <sys/socket.h>

#include "cove/json.h"
#include "cove/mem.h"
#include "helpers/gate/gate_private.h"

enum { PAGE_MAX = 4096, LINGER_MS = 5000 };

struct refusal {
    enum cove_code code;
    int status;
    const char *phrase, *header, *message, *hint;
    bool names_port;
};

static const struct refusal refusals[] = {
    { COVE_UNAUTHORIZED, 401, "Unauthorized", "", "This port of the sandbox is private",
      "Send a key or the sandbox's token as X-Access-Token, or open a signed link.", true },
    { COVE_QUOTA, 503, "Service Unavailable", "Retry-After: 1\r\n",
      "Too many connections to this sandbox", "Close some, or ask the operator for more.", true },
    { COVE_BUSY, 503, "Service Unavailable", "Retry-After: 1\r\n",
      "Too many connections to this sandbox", "Try again in a moment.", true },
    { COVE_GONE, 502, "Bad Gateway", "", "The sandbox was not found", "", false },
    { COVE_TIMEOUT, 502, "Bad Gateway", "", "The sandbox is running but the port does not answer",
      "The program on this port did not accept the connection.", true },
    /* Last: every other code that init may send about the port. */
    { COVE_NOT_FOUND, 502, "Bad Gateway", "", "The sandbox is running but port is not open",
      "Start a server in the sandbox that listens on this port, on 127.0.0.1, ::1 or all "
      "addresses.",
      true },
};

static const struct refusal *find(enum cove_code code)
{
    size_t i = 0;

    while (i + 1 < ARRAY_SIZE(refusals) && refusals[i].code != code)
        i++;
    return &refusals[i];
}

struct told {
    const char *sandbox, *message, *hint, *reason, *error;
    int64_t port, code;
};

static const struct json_field refusal_fields[] = {
    JSON_STR(struct told, sandbox, "sandboxId", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct told, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct told, port, "port", JSON_OPTIONAL, 1, UINT16_MAX),
    JSON_INT(struct told, code, "code", JSON_REQUIRED, 400, 599),
    JSON_STR(struct told, hint, "hint", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct told, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static const struct json_field status_fields[] = {
    JSON_INT(struct told, code, "code", JSON_REQUIRED, 400, 599),
    JSON_STR(struct told, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct told, error, "error", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static void write_line(struct buf *out, const struct json_field *fields, const struct told *told)
{
    struct json_writer w;

    json_writer_init(&w, out);
    json_put_object(&w, NULL, fields, told);
    buf_add_char(out, '\n');
}

static void write_json(const struct relay *r, const struct refusal *f, struct buf *out)
{
    const struct told told = {
        .sandbox = r->target.id,
        .message = f->message,
        .port = f->names_port ? r->target.port : 0,
        .code = f->status,
        .hint = *f->hint ? f->hint : NULL,
        .reason = r->reason[0] ? r->reason : NULL,
    };

    write_line(out, refusal_fields, &told);
}

/* Only the reason is escaped: it might hold a name that a tenant chose. The id is letters and digits, and
 * all other words are from this file. */
static void add_escaped(struct buf *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("<>&\"'", *text))
            buf_addf(out, "&#%d;", *text);
        else
            buf_add_char(out, *text);
    }
}

static void write_html(const struct relay *r, const struct refusal *f, struct buf *out)
{
    buf_addf(out,
             "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">"
             "<meta name=\"viewport\" content=\"width=device-width\"><title>%d %s</title>"
             "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:36em;margin:4em auto;"
             "padding:0 1em;color:#222}code{background:#eee;padding:.1em .3em}</style>"
             "<h1>%s</h1><p>Sandbox <code>%s</code>",
             f->status, f->phrase, f->message, r->target.id);
    if (f->names_port)
        buf_addf(out, ", port <code>%u</code>", r->target.port);
    buf_addf(out, ".</p><p>%s</p><p>", f->hint);
    add_escaped(out, r->reason);
    buf_add_str(out, "</p></html>\n");
}

/* ------------------------------------------------------------------ sending the answer */

static void linger_ready(struct watch *w, uint32_t events)
{
    static char nothing[65536];
    ssize_t n = recv(w->fd, nothing, sizeof(nothing), MSG_DONTWAIT);

    if (n == 0 || (n < 0 && (events & (EPOLLERR | EPOLLHUP))))
        relay_close(container_of(w, struct relay, end[CLIENT]));
}

static void linger_over(struct timer *t)
{
    relay_close(container_of(t, struct relay, timer));
}

/* A peer that is still sending its body would lose the answer if we closed now. */
static void linger(struct relay *r)
{
    shutdown(r->end[CLIENT].fd, SHUT_WR);
    r->stage = RELAY_LINGERING;
    r->end[CLIENT].ready = linger_ready;
    timer_start(&r->gate->loop, &r->timer, LINGER_MS, linger_over);
    if (watch_want(&r->end[CLIENT], EPOLLIN) < 0)
        relay_close(r);
}

static void answer(struct relay *r, int status, const char *phrase, const char *header,
                   const struct buf *body)
{
    AUTO_BUF struct buf reply = BUF(2 * PAGE_MAX);

    buf_addf(&reply,
             "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s"
             "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
             status, phrase, r->html ? "text/html; charset=utf-8" : "application/json", body->len,
             header);
    buf_add(&reply, body->data, body->len);
    /* The reply is smaller than any socket's buffer, and nothing was sent before. */
    if (send(r->end[CLIENT].fd, reply.data, reply.len, MSG_NOSIGNAL | MSG_DONTWAIT) !=
        (ssize_t)reply.len) {
        relay_close(r);
        return;
    }
    linger(r);
}

void answer_refusal(struct relay *r, const struct cove_err *why)
{
    const struct refusal *f = find(why->code);
    AUTO_BUF struct buf body = BUF(PAGE_MAX);

    if (r->kept &&
        (why->code == COVE_GONE || why->code == COVE_UNAUTHORIZED || why->code == COVE_NOT_FOUND)) {
        relay_close(r); /* nginx, left without an answer, asks a worker and comes again */
        return;
    }
    (r->html ? write_html : write_json)(r, f, &body);
    answer(r, f->status, f->phrase, f->header, &body);
}

void answer_status(struct relay *r, unsigned status, const char *message)
{
    const char *header = status == 426                    ? "Upgrade: websocket\r\n"
                         : status == 429 || status == 503 ? "Retry-After: 1\r\n"
                                                          : "";
    AUTO_BUF struct buf body = BUF(PAGE_MAX);

    write_line(&body, status_fields,
               &(struct told){ .code = status, .message = message, .error = message });
    r->html = false;
    answer(r, (int)status, "Refused", header, &body);
}
