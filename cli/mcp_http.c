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
#include "cli/mcp_transfer.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "cove/json.h"
#include "cove/text.h"

enum {
    TRANSFERS_MAX = 64,
    WAIT_MS = 1000,
    LISTEN_AGAIN_MS = 5000,
    RESUMES_MAX = 8, /* the server lets a command go on without its client for half a minute */
    RESUME_MS = 250, /* before the second try; before each further one twice as long, up to: */
    RESUME_MOST_MS = 8000,
};

#define META_VERSION "io.modelcontextprotocol/protocolVersion"

/* ------------------------------------------------------------------ what the client sent */

/* Adds the headers that repeat parts of the body, which the stateless revision demands. */
static void add_modern_headers(struct mcp_transfer *t, struct json_object *params,
                               const char *version)
{
    const char *name = mcp_text_member(params, "name");

    transfer_add_header(t, "MCP-Protocol-Version", version);
    transfer_add_header(t, "Mcp-Method", t->method);
    transfer_add_header(t, "Mcp-Name", name ? name : mcp_text_member(params, "uri"));
}

static void read_message(struct mcp_transfer *t, struct json_object *message)
{
    struct json_object *params = mcp_member(message, "params"), *id = NULL;
    const char *version = mcp_text_member(mcp_member(params, "_meta"), META_VERSION);
    const char *method = mcp_text_member(message, "method");

    t->method = strdup(method ? method : "");
    if (method && json_object_object_get_ex(message, "id", &id) && id)
        t->id = strdup(json_object_to_json_string_ext(id, JSON_C_TO_STRING_PLAIN));
    t->starts_session = method && !version && strcmp(method, "initialize") == 0;
    t->in_session = !version && !t->starts_session;
    if (version)
        add_modern_headers(t, params, version);
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

    if (!json_object_object_get_ex(mcp_member(message, "params"), "requestId", &id))
        return false;
    call = find_call(s, id);
    if (call)
        call->cancelled = true;
    if (call && !s->session[0])
        transfer_stop(call);
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
        transfer_fail(t, "too many calls at a time");
        transfer_free(t);
    } else {
        if (t->starts_session) {
            s->session[0] = s->heard[0] = '\0';
            buf_clear(&s->initialize);
            buf_add(&s->initialize, text, len);
        }
        if (t->method && strcmp(t->method, "notifications/initialized") == 0)
            s->initialized = true;
        transfer_start(t);
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
    transfer_start(t);
}

/* ------------------------------------------------------------------ ends of transfers */

/* The server does not know the session any more: a new one is begun with the client's own `initialize`. */
static bool renew_session(struct mcp_server *s)
{
    struct mcp_transfer *t = transfer_new(s, s->initialize.data, s->initialize.len);
    long status = 0;

    s->session[0] = s->heard[0] = '\0';
    t->starts_session = true;
    transfer_set_up(t);
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
        why = mcp_text_member(mcp_member(reply, "error"), "message");
        why = why ? why : mcp_text_member(reply, "error");
    }
    snprintf(text, sizeof(text), "the server answered %ld%s%.300s", status, why ? ": " : "",
             why ? why : "");
    transfer_fail(t, text);
    json_free(reply);
}

/* Continues a call whose stream broke in another transfer, behind the last event that arrived. */
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
    transfer_start_at(next,
                      clock_boot_ms() + (wait_ms < RESUME_MOST_MS ? wait_ms : RESUME_MOST_MS));
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
    if (!t->events && transfer_is_answer(t, t->in.data, t->in.len))
        transfer_hand_on(t, t->in.data, t->in.len);
    if (t->answered || t->cancelled || (!t->id && status < 300 && code == CURLE_OK) ||
        resume(t, code, status))
        return;
    if (code != CURLE_OK)
        transfer_fail(t, curl_easy_strerror(code));
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
    transfers_start_due(s);
    curl_multi_perform(s->multi, &running);
    while ((m = curl_multi_info_read(s->multi, &left))) {
        CURLcode code = m->data.result;

        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
        on_done(t, code);
        transfer_stop(t);
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
    transfer_set_up(t);
    curl_easy_setopt(t->easy, CURLOPT_CUSTOMREQUEST, "DELETE");
    curl_easy_setopt(t->easy, CURLOPT_TIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_perform(t->easy);
    transfer_free(t);
}

void mcp_server_done(struct mcp_server *s)
{
    while (s->transfers)
        transfer_stop(s->transfers);
    if (s->session[0])
        end_session(s);
    curl_multi_cleanup(s->multi);
    buf_done(&s->initialize);
    curl_global_cleanup();
}
