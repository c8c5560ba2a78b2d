/*
 * The console dialect: what the web console (web/) calls, and whoever wants the same view. Every address
 * takes a key like all dialects do, or the session of a browser (fcgi/console_session.h). A session
 * shows the sandboxes of one tenant.
 */
#include "fcgi/dialects/console.h"

#include <stdio.h>
#include <string.h>

#include "cove/dialect.h"
#include "cove/keys.h"
#include "cove/text.h"
#include "fcgi/caller.h"
#include "fcgi/check.h"
#include "fcgi/console_session.h"
#include "fcgi/dialects/dialects.h"
#include "fcgi/router.h"

static console_handler console_session_show, console_session_open, console_session_close;

static const struct route console_routes[] = {
    { GET, "/session", console_session_show, 0 },
    { POST, "/session", console_session_open, 0 },
    { DELETE, "/session", console_session_close, 0 },
    { GET, "/events", console_events, ROUTE_LONG },
    { GET, "/sandboxes", console_sandboxes, 0 },
    { POST, "/sandboxes", console_create, ROUTE_LONG },
    { GET, "/sandboxes/{id}", console_sandbox, 0 },
    { DELETE, "/sandboxes/{id}", console_kill, 0 },
    { POST, "/sandboxes/{id}/pause", console_pause, ROUTE_LONG },
    { POST, "/sandboxes/{id}/resume", console_resume, ROUTE_LONG },
    { POST, "/sandboxes/{id}/extend", console_extend, 0 },
    { GET, "/sandboxes/{id}/usage", console_usage, ROUTE_LONG },
    { GET, "/sandboxes/{id}/commands", console_commands, ROUTE_LONG },
    { GET, "/sandboxes/{id}/files", console_files, ROUTE_BOX },
    { GET, "/sandboxes/{id}/file", console_get_file, ROUTE_LONG },
    { PUT, "/sandboxes/{id}/file", console_put_file, ROUTE_LONG | ROUTE_RAW },
    { DELETE, "/sandboxes/{id}/file", console_remove_file, ROUTE_LONG },
    { POST, "/sandboxes/{id}/directory", console_make_dir, ROUTE_BOX },
    { POST, "/sandboxes/{id}/rename", console_rename, ROUTE_BOX },
    { GET, "/sandboxes/{id}/archive", console_archive, ROUTE_LONG },
    { GET, "/sandboxes/{id}/processes", console_processes, ROUTE_BOX },
    { POST, "/sandboxes/{id}/processes", console_start, ROUTE_BOX },
    { GET, "/sandboxes/{id}/processes/events", console_follow_processes, ROUTE_LONG },
    { DELETE, "/sandboxes/{id}/processes/{process}", console_kill_process, ROUTE_BOX },
    { GET, "/sandboxes/{id}/processes/{process}/log", console_log, ROUTE_LONG },
    { GET, "/sandboxes/{id}/ports", console_ports, ROUTE_LONG },
    { POST, "/sandboxes/{id}/ports", console_port_access, ROUTE_BOX },
    { POST, "/sandboxes/{id}/ports/link", console_port_link, ROUTE_BOX },
    { GET, "/snapshots", console_snapshots, 0 },
    { DELETE, "/snapshots/{snapshot}", console_snapshot_remove, 0 },
    { POST, "/sandboxes/{id}/snapshots", console_snapshot_make, ROUTE_LONG },
    { GET, "/sandboxes/{id}/saved", console_saved, ROUTE_LONG },
    { POST, "/sandboxes/{id}/fork", console_fork, ROUTE_LONG },
    { GET, "/sandboxes/{id}/refusals", console_refusals, 0 },
    { GET, "/builds", console_builds, ROUTE_LONG },
    { GET, "/builds/{build}/log", console_build_log, ROUTE_LONG },
    { POST, "/policy/test", console_policy_test, 0 },
    { GET, "/operator/nonce", console_operator_nonce, 0 },
    { POST, "/operator/run", console_operator_run, ROUTE_LONG },
    { GET, "/operator/builds", console_operator_builds, ROUTE_LONG },
};

/* ------------------------------------------------------------------ bad news */

static const struct error_reply error_replies[] = {
    { COVE_GONE, 404 },
};

struct bad_news {
    const char *error, *code;
};

static const struct json_field bad_news_fields[] = {
    JSON_STR(struct bad_news, error, "error", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct bad_news, code, "code", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static void on_error(struct request *req, struct reply *rep, const struct cove_err *e)
{
    (void)req;
    rep->status = reply_error_status(error_replies, ARRAY_SIZE(error_replies), e->code);
    reply_json(rep, bad_news_fields, &(struct bad_news){ e->msg, cove_code_name(e->code) });
}

struct done {
    bool ok;
};

static const struct json_field done_fields[] = {
    JSON_BOOL(struct done, ok, "ok", JSON_REQUIRED),
    JSON_END,
};

int console_reply_ok(struct reply *rep)
{
    reply_json(rep, done_fields, &(struct done){ true });
    return 0;
}

/* ------------------------------------------------------------------ sessions */

struct session_reply {
    const char *tenant, *key, *token, *version, *domain;
    uint64_t until_unix_ms;
};

static const struct json_field session_fields[] = {
    JSON_STR(struct session_reply, tenant, "tenant", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct session_reply, key, "key", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct session_reply, token, "token", JSON_OPTIONAL, JSON_ANY),
    JSON_TIME(struct session_reply, until_unix_ms, "until", JSON_OPTIONAL),
    JSON_STR(struct session_reply, version, "version", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct session_reply, domain, "domain", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static int reply_session(struct request *req, struct reply *rep, const char *cookie,
                         uint64_t until_s)
{
    const struct caller *caller = req->core->caller;
    struct session_reply s = {
        .tenant = req->tenant,
        .key = caller && caller->key ? caller->key->name : NULL,
        .version = COVE_VERSION,
        .domain = request_param(req, "COVE_AUTHORITY"),
        .until_unix_ms = until_s * 1000,
    };
    char token[TOKEN_LEN + 1];

    if (cookie) {
        console_session_token(req->core->token_secret, cookie, token);
        s.token = token;
    }
    reply_json(rep, session_fields, &s);
    return 0;
}

static void set_cookie(struct request *req, struct reply *rep, const char *value, unsigned seconds)
{
    const char *name = console_cookie_name(req);
    bool secure = strncmp(name, "__Host-", 7) == 0;

    reply_header(rep, "Set-Cookie",
                 arena_printf(&req->arena, "%s=%s; Path=/; HttpOnly; SameSite=Strict; Max-Age=%u%s",
                              name, value, seconds, secure ? "; Secure" : ""));
}

static int console_session_show(struct request *req, struct reply *rep, struct cove_err *e)
{
    char cookie[CONSOLE_COOKIE_MAX];
    struct console_session s;

    (void)e;
    req->note.operation = "session";
    if (!req->core->token_secret || !console_cookie(req, cookie) ||
        !console_session_read(req->core->token_secret, cookie, clock_unix_ms() / 1000, &s))
        return reply_session(req, rep, NULL, 0); /* signed in by a header: nothing to repeat */
    return reply_session(req, rep, cookie, s.until_s);
}

/* A browser is signed in by what this request came with: a key, or a name and a password. */
static int console_session_open(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct console_session s = { .until_s = clock_unix_ms() / 1000 + CONSOLE_SESSION_S };
    char *cookie = arena_alloc(&req->arena, CONSOLE_COOKIE_MAX);

    req->note.operation = "sign-in";
    if (!req->core->token_secret)
        return cove_fail(e, COVE_UNSUPPORTED, "this server has no secret to sign sessions with");
    if (req->core->caller && req->core->caller->only[0])
        return cove_fail(e, COVE_FORBIDDEN,
                         "a sandbox's token opens no session: sign in with a key");
    if (!console_same_origin(req))
        return cove_fail(e, COVE_FORBIDDEN, "Origin: a session begins on a page of this host");
    caller_key_id(req->core, s.key);
    text_copy(s.tenant, sizeof(s.tenant), req->tenant);
    console_session_make(req->core->token_secret, &s, cookie);
    set_cookie(req, rep, cookie, CONSOLE_SESSION_S);
    return reply_session(req, rep, cookie, s.until_s);
}

static int console_session_close(struct request *req, struct reply *rep, struct cove_err *e)
{
    (void)e;
    req->note.operation = "sign-out";
    set_cookie(req, rep, "", 0);
    return console_reply_ok(rep);
}

/* ------------------------------------------------------------------ which sandbox */

int console_find(struct request *req, struct box_info *ret, struct cove_err *e)
{
    const char *id = request_capture(req, "id");

    req->note.sandbox = id;
    return core_sandbox_find(req->core, req->tenant, id, ret, e);
}

int console_open(struct request *req, struct core_session *ret, struct cove_err *e)
{
    struct box_info box;

    if (console_find(req, &box, e) < 0)
        return -1;
    if (box_is_paused(&box))
        return cove_fail(e, COVE_CONFLICT, "the sandbox %s is paused: resume it first", box.id);
    return core_session_open_id(req->core, req->tenant, box.id, ret, e);
}

int console_path(struct request *req, const char **ret, struct cove_err *e)
{
    *ret = request_query(req, "path");
    return check_query_path("path", *ret, e);
}

int console_with_permit(struct request *req, struct reply *rep, const char *command,
                        console_verb *verb, struct cove_err *e)
{
    struct core_permit permit;
    int rc;

    if (core_permit_one(req->core, DIALECT_CONSOLE, req->tenant, request_capture(req, "id"),
                        command, &permit, e) < 0)
        return -1;
    if (permit.forbidden)
        rc = cove_fail(e, COVE_FORBIDDEN, "refused by the rule %s: %s", permit.verdict.rule,
                       permit.verdict.reason);
    else
        rc = verb(req, rep, command, &permit.filter, e);
    core_permit_put(&permit);
    return rc;
}

const struct dialect console_dialect = {
    .name = "console",
    .base = CONSOLE_BASE,
    .routes = console_routes,
    .route_count = ARRAY_SIZE(console_routes),
    .on_error = on_error,
};
