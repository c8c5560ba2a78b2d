/*
 * One request to the server by libcurl, and what comes back: JSON, or a stream of events of which every message is
 * handed on to the client. Which requests there are, and what their ends mean, is mcp_http.c.
 */
#include "cli/mcp_transfer.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cove/json.h"
#include "cove/mem.h"
#include "cove/text.h"

enum {
    REPLY_MAX = 64 * 1024 * 1024,
    KEEPALIVE_S = 30, /* of silence, then the server's machine is asked whether it is still there */
    SERVER_ERROR = -32000, /* JSON-RPC's number for errors that a server defines itself */
};

const char *mcp_text_member(struct json_object *of, const char *name)
{
    struct json_object *v = NULL;

    return of && json_object_object_get_ex(of, name, &v) && json_object_is_type(v, json_type_string)
               ? json_object_get_string(v)
               : NULL;
}

struct json_object *mcp_member(struct json_object *of, const char *name)
{
    struct json_object *v = NULL;

    return of && json_object_object_get_ex(of, name, &v) && json_object_is_type(v, json_type_object)
               ? v
               : NULL;
}

void transfer_add_header(struct mcp_transfer *t, const char *name, const char *value)
{
    char line[4096];

    if (!value || strpbrk(value, "\r\n") ||
        snprintf(line, sizeof(line), "%s: %s", name, value) >= (int)sizeof(line))
        return;
    t->headers = curl_slist_append(t->headers, line);
}

/* ------------------------------------------------------------------ what goes back */

struct rpc_error {
    int64_t code;
    const char *message;
};

static const struct json_field rpc_error_fields[] = {
    JSON_INT(struct rpc_error, code, "code", JSON_ALWAYS, INT64_MIN, INT64_MAX),
    JSON_STR(struct rpc_error, message, "message", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

struct rpc_failure {
    const char *jsonrpc;
    struct json_text id; /* of the request, as it came */
    const struct rpc_error *error;
};

static const struct json_field rpc_failure_fields[] = {
    JSON_STR(struct rpc_failure, jsonrpc, "jsonrpc", JSON_ALWAYS, JSON_ANY),
    JSON_RAW(struct rpc_failure, id, "id", JSON_ALWAYS),
    JSON_OBJECT(struct rpc_failure, error, "error", JSON_ALWAYS, rpc_error_fields),
    JSON_END,
};

void transfer_fail(struct mcp_transfer *t, const char *what)
{
    AUTO_BUF struct buf text = BUF(4096);
    struct json_writer w;

    if (!t->id) {
        if (!t->is_stream)
            fprintf(stderr, "cove mcp: %s\n", what);
        return;
    }
    json_writer_init(&w, &text);
    json_put_object(&w, NULL, rpc_failure_fields,
                    &(struct rpc_failure){ "2.0",
                                           { t->id, strlen(t->id) },
                                           &(struct rpc_error){ SERVER_ERROR, what } });
    t->server->output(text.data, text.len);
    t->answered = true;
}

/* Is this message the answer to the request, and not a notification that comes before the answer? */
bool transfer_is_answer(const struct mcp_transfer *t, const char *text, size_t len)
{
    struct json_object *reply = NULL, *id = NULL;
    bool fits = false;

    if (len > 0 && text[0] == '[')
        return true;
    if (json_parse(text, len, &reply, NULL) == 0)
        fits = t->id && !mcp_text_member(reply, "method") &&
               json_object_object_get_ex(reply, "id", &id) && id &&
               strcmp(t->id, json_object_to_json_string_ext(id, JSON_C_TO_STRING_PLAIN)) == 0;
    json_free(reply);
    return fits;
}

void transfer_hand_on(struct mcp_transfer *t, const char *text, size_t len)
{
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
        len--;
    if (len == 0)
        return;
    t->server->output(text, len);
    t->answered |= !t->id || transfer_is_answer(t, text, len);
}

static void read_event_line(struct mcp_transfer *t, const char *line, size_t len)
{
    if (len >= 4 && strncmp(line, "id: ", 4) == 0) {
        snprintf(t->event, sizeof(t->event), "%.*s", (int)(len - 4), line + 4);
    } else if (len >= 6 && strncmp(line, "data: ", 6) == 0) {
        transfer_hand_on(t, line + 6, len - 6);
        text_copy(t->heard, sizeof(t->heard), t->event);
        t->resumes = 0; /* only tries that bring nothing are counted */
    }
}

/* Reads all whole lines of a stream. A cove server writes a message in one `data:` line, after the event's id. */
static void read_events(struct mcp_transfer *t)
{
    char *at = t->in.data, *end = at + t->in.len, *feed;

    while ((feed = memchr(at, '\n', (size_t)(end - at)))) {
        read_event_line(t, at, (size_t)(feed - at));
        at = feed + 1;
    }
    buf_drop(&t->in, (size_t)(at - t->in.data));
}

/* ------------------------------------------------------------------ curl */

static size_t on_body(char *bytes, size_t size, size_t count, void *arg)
{
    struct mcp_transfer *t = arg;

    if (buf_add(&t->in, bytes, size * count) < 0)
        return 0;
    if (t->events)
        read_events(t);
    return size * count;
}

static bool header_value(const char *line, size_t len, const char *name, char *ret, size_t size)
{
    size_t skip = strlen(name);

    if (len <= skip || strncasecmp(line, name, skip) != 0)
        return false;
    while (skip < len && line[skip] == ' ')
        skip++;
    while (len > skip && (line[len - 1] == '\r' || line[len - 1] == '\n'))
        len--;
    return snprintf(ret, size, "%.*s", (int)(len - skip), line + skip) < (int)size;
}

static size_t on_header(char *line, size_t size, size_t count, void *arg)
{
    struct mcp_transfer *t = arg;
    char value[256];

    if (header_value(line, size * count, "Content-Type:", value, sizeof(value)))
        t->events = strncasecmp(value, "text/event-stream", 17) == 0;
    if (t->starts_session &&
        header_value(line, size * count, "Mcp-Session-Id:", value, sizeof(value)))
        text_copy(t->server->session, sizeof(t->server->session), value);
    return size * count;
}

void transfer_free(struct mcp_transfer *t)
{
    curl_easy_cleanup(t->easy);
    curl_slist_free_all(t->headers);
    buf_done(&t->in);
    free(t->body);
    free(t->id);
    free(t->method);
    free(t);
}

struct mcp_transfer *transfer_new(struct mcp_server *s, const char *text, size_t len)
{
    struct mcp_transfer *t = calloc(1, sizeof(*t));

    if (!t || !(t->easy = curl_easy_init()) || (text && !(t->body = malloc(len + 1))))
        abort();
    t->server = s;
    buf_init(&t->in, REPLY_MAX);
    if (text) {
        memcpy(t->body, text, len);
        t->body[len] = '\0';
        t->body_len = len;
    }
    return t;
}

void transfer_set_up(struct mcp_transfer *t)
{
    char bearer[512];

    snprintf(bearer, sizeof(bearer), "Bearer %s", t->server->key);
    transfer_add_header(t, "Authorization", bearer);
    transfer_add_header(t, "Content-Type", "application/json");
    transfer_add_header(t, "Accept", "application/json, text/event-stream");
    if (t->in_session && t->server->session[0])
        transfer_add_header(t, "Mcp-Session-Id", t->server->session);
    if (t->heard[0])
        transfer_add_header(t, "Last-Event-ID", t->heard);
    curl_easy_setopt(t->easy, CURLOPT_URL, t->server->url);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, t->headers);
    curl_easy_setopt(t->easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(t->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(t->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(t->easy, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_S);
    curl_easy_setopt(t->easy, CURLOPT_TCP_KEEPINTVL, (long)(KEEPALIVE_S / 3));
    curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->easy, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(t->easy, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    if (t->server->ca)
        curl_easy_setopt(t->easy, CURLOPT_CAINFO, t->server->ca);
    if (t->body) {
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, t->body);
        curl_easy_setopt(t->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->body_len);
    }
}

void transfer_start_at(struct mcp_transfer *t, uint64_t due_ms)
{
    struct mcp_server *s = t->server;

    transfer_set_up(t);
    t->due_ms = due_ms;
    t->next = s->transfers;
    s->transfers = t;
    s->count++;
    if (!due_ms)
        curl_multi_add_handle(s->multi, t->easy);
}

void transfer_start(struct mcp_transfer *t)
{
    transfer_start_at(t, 0);
}

void transfers_start_due(struct mcp_server *s)
{
    for (struct mcp_transfer *t = s->transfers; t; t = t->next) {
        if (!t->due_ms || t->due_ms > clock_boot_ms())
            continue;
        t->due_ms = 0;
        curl_multi_add_handle(s->multi, t->easy);
    }
}

void transfer_stop(struct mcp_transfer *t)
{
    struct mcp_server *s = t->server;

    for (struct mcp_transfer **at = &s->transfers; *at; at = &(*at)->next) {
        if (*at != t)
            continue;
        *at = t->next;
        break;
    }
    s->count--;
    curl_multi_remove_handle(s->multi, t->easy);
    transfer_free(t);
}
