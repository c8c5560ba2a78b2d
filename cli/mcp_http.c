/*
 * Each message of the client is a POST of its own; the server answers with JSON or with a stream of events,
 * and every message in it is handed on. The session of the older revisions is kept here, and begun anew when
 * the server does not know it any more. Without a session (2026-07-28) a call is cancelled by closing its
 * connection.
 *
 * A desktop client speaks to this program and sees nothing of the network. So a call of a session whose connection
 * breaks is picked up again: a GET with the id of the last event (Last-Event-ID) brings what followed. A call without
 * a session cannot be, and ends with an error.
 */
#include "cli/mcp_http.h"

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
    TRANSFERS_MAX = 64,
    WAIT_MS = 1000,
    LISTEN_AGAIN_MS = 5000,
    CONNECT_MS = 10000,
    RESUMES_MAX = 8, /* the server lets a command go on without its client for half a minute */
    RESUME_MS = 250, /* before the second try; before each further one twice as long, up to: */
    RESUME_MOST_MS = 8000,
    KEEPALIVE_S = 30, /* of silence, then the server's machine is asked whether it is still there */
    SERVER_ERROR = -32000, /* JSON-RPC's number for errors that a server defines itself */
};

#define META_VERSION "io.modelcontextprotocol/protocolVersion"

struct mcp_transfer {
    struct mcp_server *server;
    struct mcp_transfer *next;
    CURL *easy;
    struct curl_slist *headers;
    char *body;
    size_t body_len;
    char *id;     /* of the request, as JSON; NULL: it is a notification, or the session's stream */
    char *method; /* NULL: several messages, or none */
    bool is_stream, in_session, starts_session, retried, answered;
    bool cancelled; /* the client does not want an answer any more */
    bool events;    /* the reply is a stream of events */
    char event[96]; /* the id of the event that is being read */
    char heard[96]; /* the id of the last whole event; "" = none */
    unsigned resumes;
    uint64_t due_ms; /* not to be begun before; 0 = it has begun */
    struct buf in;
};

/* ------------------------------------------------------------------ what the client sent */

static const char *text_member(struct json_object *of, const char *name)
{
    struct json_object *v = NULL;

    return of && json_object_object_get_ex(of, name, &v) && json_object_is_type(v, json_type_string)
               ? json_object_get_string(v)
               : NULL;
}

static struct json_object *member(struct json_object *of, const char *name)
{
    struct json_object *v = NULL;

    return of && json_object_object_get_ex(of, name, &v) && json_object_is_type(v, json_type_object)
               ? v
               : NULL;
}

static void add_header(struct mcp_transfer *t, const char *name, const char *value)
{
    char line[4096];

    if (!value || strpbrk(value, "\r\n") ||
        snprintf(line, sizeof(line), "%s: %s", name, value) >= (int)sizeof(line))
        return;
    t->headers = curl_slist_append(t->headers, line);
}

/* Adds the headers that repeat parts of the body, which the stateless revision demands. */
static void add_modern_headers(struct mcp_transfer *t, struct json_object *params,
                               const char *version)
{
    const char *name = text_member(params, "name");

    add_header(t, "MCP-Protocol-Version", version);
    add_header(t, "Mcp-Method", t->method);
    add_header(t, "Mcp-Name", name ? name : text_member(params, "uri"));
}

static void read_message(struct mcp_transfer *t, struct json_object *message)
{
    struct json_object *params = member(message, "params"), *id = NULL;
    const char *version = text_member(member(params, "_meta"), META_VERSION);
    const char *method = text_member(message, "method");

    t->method = strdup(method ? method : "");
    if (method && json_object_object_get_ex(message, "id", &id) && id)
        t->id = strdup(json_object_to_json_string_ext(id, JSON_C_TO_STRING_PLAIN));
    t->starts_session = method && !version && strcmp(method, "initialize") == 0;
    t->in_session = !version && !t->starts_session;
    if (version)
        add_modern_headers(t, params, version);
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

static void answer_error(struct mcp_transfer *t, const char *what)
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

/* The answer to this very request, and not a notification on the way to it. */
static bool is_answer(const struct mcp_transfer *t, const char *text, size_t len)
{
    struct json_object *reply = NULL, *id = NULL;
    bool fits = false;

    if (len > 0 && text[0] == '[')
        return true;
    if (json_parse(text, len, &reply, NULL) == 0)
        fits = t->id && !text_member(reply, "method") &&
               json_object_object_get_ex(reply, "id", &id) && id &&
               strcmp(t->id, json_object_to_json_string_ext(id, JSON_C_TO_STRING_PLAIN)) == 0;
    json_free(reply);
    return fits;
}

static void hand_on(struct mcp_transfer *t, const char *text, size_t len)
{
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
        len--;
    if (len == 0)
        return;
    t->server->output(text, len);
    t->answered |= !t->id || is_answer(t, text, len);
}

static void read_event_line(struct mcp_transfer *t, const char *line, size_t len)
{
    if (len >= 4 && strncmp(line, "id: ", 4) == 0) {
        snprintf(t->event, sizeof(t->event), "%.*s", (int)(len - 4), line + 4);
    } else if (len >= 6 && strncmp(line, "data: ", 6) == 0) {
        hand_on(t, line + 6, len - 6);
        text_copy(t->heard, sizeof(t->heard), t->event);
        t->resumes = 0; /* tries in vain count */
    }
}

/* All whole lines of a stream; our server writes a message in one `data:` line, after the event's id. */
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

static void transfer_free(struct mcp_transfer *t)
{
    curl_easy_cleanup(t->easy);
    curl_slist_free_all(t->headers);
    buf_done(&t->in);
    free(t->body);
    free(t->id);
    free(t->method);
    free(t);
}

static struct mcp_transfer *transfer_new(struct mcp_server *s, const char *text, size_t len)
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

static void set_up(struct mcp_transfer *t)
{
    char bearer[512];

    snprintf(bearer, sizeof(bearer), "Bearer %s", t->server->key);
    add_header(t, "Authorization", bearer);
    add_header(t, "Content-Type", "application/json");
    add_header(t, "Accept", "application/json, text/event-stream");
    if (t->in_session && t->server->session[0])
        add_header(t, "Mcp-Session-Id", t->server->session);
    if (t->heard[0])
        add_header(t, "Last-Event-ID", t->heard);
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

static void start_at(struct mcp_transfer *t, uint64_t due_ms)
{
    struct mcp_server *s = t->server;

    set_up(t);
    t->due_ms = due_ms;
    t->next = s->transfers;
    s->transfers = t;
    s->count++;
    if (!due_ms)
        curl_multi_add_handle(s->multi, t->easy);
}

static void start(struct mcp_transfer *t)
{
    start_at(t, 0);
}

static void start_due(struct mcp_server *s)
{
    for (struct mcp_transfer *t = s->transfers; t; t = t->next) {
        if (!t->due_ms || t->due_ms > clock_boot_ms())
            continue;
        t->due_ms = 0;
        curl_multi_add_handle(s->multi, t->easy);
    }
}

static void stop(struct mcp_transfer *t)
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

/* ------------------------------------------------------------------ sending */

static struct mcp_transfer *find_call(struct mcp_server *s, struct json_object *id)
{
    const char *text = json_object_to_json_string_ext(id, JSON_C_TO_STRING_PLAIN);
    struct mcp_transfer *t = s->transfers;

    while (t && (!t->id || strcmp(t->id, text) != 0))
        t = t->next;
    return t;
}

/* Without a session the server learns of a cancelled call only by its connection: we close it. */
static bool cancel(struct mcp_server *s, struct json_object *message)
{
    struct json_object *id = NULL;
    struct mcp_transfer *call;

    if (!json_object_object_get_ex(member(message, "params"), "requestId", &id))
        return false;
    call = find_call(s, id);
    if (call)
        call->cancelled = true;
    if (call && !s->session[0])
        stop(call);
    return !s->session[0];
}

static void send_message(struct mcp_server *s, const char *text, size_t len, bool retried)
{
    struct mcp_transfer *t = transfer_new(s, text, len);
    struct json_object *message = NULL;

    t->retried = retried;
    t->in_session = true;
    if (json_parse(text, len, &message, NULL) == 0)
        read_message(t, message);
    if (t->method && strcmp(t->method, "notifications/cancelled") == 0 && cancel(s, message)) {
        transfer_free(t);
    } else if (s->count >= TRANSFERS_MAX) {
        answer_error(t, "too many calls at a time");
        transfer_free(t);
    } else {
        if (t->starts_session) {
            s->session[0] = s->heard[0] = '\0';
            buf_clear(&s->initialize);
            buf_add(&s->initialize, text, len);
        }
        if (t->method && strcmp(t->method, "notifications/initialized") == 0)
            s->initialized = true;
        start(t);
    }
    json_free(message);
}

void mcp_server_send(struct mcp_server *s, const char *text, size_t len)
{
    send_message(s, text, len, false);
}

static void listen_again(struct mcp_server *s)
{
    struct mcp_transfer *t;

    if (!s->initialized || s->listening || !s->session[0] || clock_boot_ms() < s->listen_at_ms)
        return;
    t = transfer_new(s, NULL, 0);
    t->is_stream = t->in_session = true;
    text_copy(t->heard, sizeof(t->heard), s->heard);
    s->listening = true;
    start(t);
}

/* ------------------------------------------------------------------ ends of transfers */

/* The server does not know the session any more: a new one is begun with the client's own `initialize`. */
static bool renew_session(struct mcp_server *s)
{
    struct mcp_transfer *t = transfer_new(s, s->initialize.data, s->initialize.len);
    long status = 0;

    s->session[0] = s->heard[0] = '\0';
    t->starts_session = true;
    set_up(t);
    if (curl_easy_perform(t->easy) == CURLE_OK)
        curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    transfer_free(t);
    return status == 200 && s->session[0];
}

static void tell_status(struct mcp_transfer *t, long status)
{
    struct json_object *reply = NULL;
    const char *why = NULL;
    char text[400];

    if (json_parse(t->in.data, t->in.len, &reply, NULL) == 0) {
        why = text_member(member(reply, "error"), "message");
        why = why ? why : text_member(reply, "error");
    }
    snprintf(text, sizeof(text), "the server answered %ld%s%.300s", status, why ? ": " : "",
             why ? why : "");
    answer_error(t, text);
    json_free(reply);
}

/* A call's stream that broke goes on in a transfer of its own, after the last event that arrived. */
static bool resume(struct mcp_transfer *t, CURLcode code, long status)
{
    struct mcp_transfer *next;
    uint64_t wait_ms = t->resumes ? (uint64_t)RESUME_MS << t->resumes : 0;

    if (!t->id || t->cancelled || !t->in_session || !t->heard[0] || t->resumes == RESUMES_MAX ||
        (code == CURLE_OK && status != 200 && status < 500))
        return false;
    next = transfer_new(t->server, NULL, 0);
    next->in_session = true;
    next->resumes = t->resumes + 1;
    text_copy(next->heard, sizeof(next->heard), t->heard);
    next->id = t->id;
    next->method = t->method;
    t->id = t->method = NULL;
    start_at(next, clock_boot_ms() + (wait_ms < RESUME_MOST_MS ? wait_ms : RESUME_MOST_MS));
    return true;
}

static void on_done(struct mcp_transfer *t, CURLcode code)
{
    struct mcp_server *s = t->server;
    long status = 0;

    curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (t->is_stream) {
        text_copy(s->heard, sizeof(s->heard), t->heard);
        s->listening = false;
        s->listen_at_ms = clock_boot_ms() + (status == 405 ? 3600 * 1000 : LISTEN_AGAIN_MS);
        return;
    }
    if (status == 404 && t->body && t->in_session && !t->retried && s->initialize.len &&
        renew_session(s)) {
        send_message(s, t->body, t->body_len, true);
        return;
    }
    if (!t->events && is_answer(t, t->in.data, t->in.len))
        hand_on(t, t->in.data, t->in.len);
    if (t->answered || t->cancelled || (!t->id && status < 300 && code == CURLE_OK) ||
        resume(t, code, status))
        return;
    if (code != CURLE_OK)
        answer_error(t, curl_easy_strerror(code));
    else
        tell_status(t, status);
}

bool mcp_server_owes(const struct mcp_server *s)
{
    for (const struct mcp_transfer *t = s->transfers; t; t = t->next)
        if (t->id)
            return true;
    return false;
}

void mcp_server_wait(struct mcp_server *s, int fd)
{
    struct curl_waitfd input = { .fd = fd, .events = CURL_WAIT_POLLIN };
    struct mcp_transfer *t;
    CURLMsg *m;
    int running, left;

    listen_again(s);
    start_due(s);
    curl_multi_perform(s->multi, &running);
    while ((m = curl_multi_info_read(s->multi, &left))) {
        CURLcode code = m->data.result;

        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        on_done(t, code);
        stop(t);
    }
    curl_multi_poll(s->multi, &input, fd >= 0 ? 1 : 0, WAIT_MS, NULL);
}

/* ------------------------------------------------------------------ beginning and end */

int mcp_server_init(struct mcp_server *s, struct cove_err *e)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0 || !(s->multi = curl_multi_init()))
        return cove_fail(e, COVE_INTERNAL, "libcurl does not start");
    buf_init(&s->initialize, 1024 * 1024);
    return 0;
}

static void end_session(struct mcp_server *s)
{
    struct mcp_transfer *t = transfer_new(s, NULL, 0);

    t->in_session = true;
    set_up(t);
    curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, "DELETE");
    curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_perform(t->easy);
    transfer_free(t);
}

void mcp_server_done(struct mcp_server *s)
{
    while (s->transfers)
        stop(s->transfers);
    if (s->session[0])
        end_session(s);
    curl_multi_cleanup(s->multi);
    buf_done(&s->initialize);
    curl_global_cleanup();
}
