/* Ports of a sandbox: what listens, the address of each, who may reach it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/dialect.h"
#include "fcgi/dialects/console.h"
#include "fcgi/port_access.h"
#include "fcgi/port_links.h"

enum {
    PORTS_MAX = 256,
    TABLE_MAX = 256 * 1024,
    TABLE_MS = 5000,
    LINK_SECONDS = 3600,
    LISTENING = 10
};

/* ------------------------------------------------------------------ what listens */

struct ports {
    unsigned numbers[PORTS_MAX];
    size_t count;
};

static void add_port(struct ports *p, unsigned port)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->numbers[i] == port)
            return;
    if (port && p->count < PORTS_MAX)
        p->numbers[p->count++] = port;
}

#define RESOLVER_ADDRESS "3500007F" /* 127.0.0.53: the server's own, in every sandbox */

/* "  0: 0100007F:1F40 00000000:0000 0A ...": address:port, peer, state. */
static void read_table(char *text, struct ports *ret)
{
    char *line;

    while ((line = strsep(&text, "\n"))) {
        unsigned port, state;
        char address[33];

        if (sscanf(line, " %*u: %32[0-9A-F]:%4x %*[0-9A-F]:%*4x %2x", address, &port, &state) ==
                3 &&
            state == LISTENING && strcmp(address, RESOLVER_ADDRESS) != 0)
            add_port(ret, port);
    }
}

static int by_number(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

    return (x > y) - (x < y);
}

static int keep(void *arg, enum run_stream stream, uint64_t offset, const char *bytes, size_t len)
{
    (void)offset;
    if (stream == RUN_STDOUT)
        buf_add(arg, bytes, len);
    return 0;
}

/* A command in the sandbox reads the kernel's tables. Root there can make it print anything: its output is parsed
 * as numbers, and shown to the sandbox's owner alone. */
static int find_ports(struct request *req, struct core_session *s,
                      const struct policy_filter *filter, struct ports *ret, struct cove_err *e)
{
    static const char *const argv[] = { "cat", "/proc/net/tcp", "/proc/net/tcp6", NULL };
    AUTO_BUF struct buf table;
    struct run_args args = {
        .argv = argv,
        .cwd = "/",
        .timeout_ms = TABLE_MS,
        .output_max_bytes = TABLE_MAX,
        .filter_fd = filter->fd,
        .exec_time = filter->exec_time,
        .dialect = DIALECT_CONSOLE,
        .own_purpose = true,
        .leaving = req->core->leaving,
        .client_fd = req->client_fd,
        .sink = keep,
        .sink_arg = &table,
    };
    struct run_result result;

    buf_init_within(&table, TABLE_MAX, req->core->bytes);
    if (core_run(s, &args, &result, e) < 0)
        return -1;
    if (table.len > 0)
        read_table(table.data, ret);
    qsort(ret->numbers, ret->count, sizeof(*ret->numbers), by_number);
    return 0;
}

struct port {
    int64_t port;
    const char *url;
};

static const struct json_field port_fields[] = {
    JSON_INT(struct port, port, "port", JSON_REQUIRED, 1, 65535),
    JSON_STR(struct port, url, "url", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static int list_ports(struct request *req, struct reply *rep, const char *command,
                      const struct policy_filter *filter, struct cove_err *e)
{
    struct core_session session;
    struct ports ports = { 0 };
    int rc;

    (void)command;
    if (console_open(req, &session, e) < 0)
        return -1;
    rc = find_ports(req, &session, filter, &ports, e);
    core_session_close(&session);
    if (rc < 0)
        return -1;
    json_open(&rep->json, NULL, '{');
    json_open(&rep->json, "ports", '[');
    for (size_t i = 0; i < ports.count; i++)
        json_put_object(
            &rep->json, NULL, port_fields,
            &(struct port){ ports.numbers[i], port_origin(req, session.box.id, ports.numbers[i]) });
    json_close(&rep->json, ']');
    json_close(&rep->json, '}');
    return 0;
}

int console_ports(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct box_info box;

    req->note.operation = "list-ports";
    return console_find(req, &box, e) < 0
               ? -1
               : console_with_permit(req, rep, "cat /proc/net/tcp", list_ports, e);
}

/* ------------------------------------------------------------------ who may */

struct port_args {
    int64_t port, seconds;
    const char *access;
};

static const struct json_field access_fields[] = {
    JSON_INT(struct port_args, port, "port", JSON_REQUIRED, 1, 65535),
    JSON_STR(struct port_args, access, "access", JSON_REQUIRED, 16),
    JSON_END,
};

static const struct json_field link_fields[] = {
    JSON_INT(struct port_args, port, "port", JSON_REQUIRED, 1, 65535),
    JSON_INT(struct port_args, seconds, "seconds", JSON_OPTIONAL, 1, 7 * 86400),
    JSON_END,
};

int console_port_access(struct request *req, struct reply *rep, struct cove_err *e)
{
    enum gate_access_word word = GATE_ACCESS_DEFAULT;
    struct port_args args = { 0 };
    struct core_session session;

    req->note.operation = "port-access";
    if (request_json(req, access_fields, &args, e) < 0 ||
        port_access_word(args.access, &word, e) < 0 || console_open(req, &session, e) < 0)
        return -1;
    core_session_close(&session);
    if (core_port_access(&session, (uint16_t)args.port, word, e) < 0)
        return -1;
    reply_json(rep, port_fields,
               &(struct port){ args.port, port_origin(req, session.box.id, (unsigned)args.port) });
    return 0;
}

int console_port_link(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct port_args args = { .seconds = LINK_SECONDS };
    struct box_info box;
    const char *url;

    req->note.operation = "port-link";
    if (request_json(req, link_fields, &args, e) < 0 || console_find(req, &box, e) < 0)
        return -1;
    url = port_link(req, box.id, (unsigned)args.port, (uint64_t)args.seconds, e);
    if (!url)
        return -1;
    reply_json(rep, port_fields, &(struct port){ args.port, url });
    return 0;
}
