/*
 * The relay dialect: sandboxes with names that the caller chooses, each with an agent process whose lines
 * go over a WebSocket. Pausing saves the files and frees everything else; resuming brings them back.
 *
 * What the caller gave as envVars is kept in the sandbox's attributes while it lives, and is in no saved
 * state, no log and no listing.
 */
#include "fcgi/dialects/relay.h"

#include <string.h>

#include "cove/dialect.h"
#include "cove/keys.h"
#include "cove/text.h"
#include "fcgi/caller.h"
#include "fcgi/check.h"
#include "fcgi/dialects/dialects.h"
#include "fcgi/router.h"

enum { URL_MAX = 2048, BRANCH_MAX = 256, STATUS_TRIES = 3 };

static relay_handler list, create, status, pause_it, resume, destroy;

static const struct route relay_routes[] = {
    { GET, "/api/sandboxes", list, 0 },
    { POST, "/api/sandboxes/{id}", create, ROUTE_LONG },
    { GET, "/api/sandboxes/{id}/status", status, ROUTE_BOX },
    { POST, "/api/sandboxes/{id}/pause", pause_it, ROUTE_LONG },
    { POST, "/api/sandboxes/{id}/resume", resume, ROUTE_LONG },
    { DELETE, "/api/sandboxes/{id}", destroy, 0 },
    { GET, "/ws/sandboxes/{id}", relay_socket, ROUTE_LONG },
    /* The bridge, for clients that cannot use 4000-ID.DOMAIN. */
    { GET, "/api/sandboxes/{id}/bridge/health", relay_health, ROUTE_BOX },
    { POST, "/api/sandboxes/{id}/bridge/exec", relay_exec, ROUTE_LONG },
    { POST, "/api/sandboxes/{id}/bridge/start-pi", relay_start_pi, ROUTE_BOX },
    { POST, "/api/sandboxes/{id}/bridge/backup", relay_backup, ROUTE_LONG },
    { POST, "/api/sandboxes/{id}/bridge/restore", relay_restore, ROUTE_LONG | ROUTE_RAW },
};

static const struct route bridge_routes[] = {
    { GET, "/health", relay_health, ROUTE_BOX },
    { POST, "/exec", relay_exec, ROUTE_LONG },
    { POST, "/start-pi", relay_start_pi, ROUTE_BOX },
    { POST, "/backup", relay_backup, ROUTE_LONG },
    { POST, "/restore", relay_restore, ROUTE_LONG | ROUTE_RAW },
    { GET, "/**", relay_socket, ROUTE_LONG },
};

/* ------------------------------------------------------------------ bad news */

struct bad_news {
    const char *error;
};

static const struct json_field bad_news_fields[] = {
    JSON_STR(struct bad_news, error, "error", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static void paused_meanwhile(struct request *req, struct cove_err *e);

static void relay_error(struct request *req, struct reply *rep, const struct cove_err *e)
{
    struct cove_err told = *e;

    if (told.code == COVE_GONE)
        paused_meanwhile(req, &told);
    rep->status = reply_error_status(NULL, 0, told.code);
    reply_json(rep, bad_news_fields, &(struct bad_news){ told.msg });
}

/* ------------------------------------------------------------------ which sandbox */

static const char *name_of(const struct request *req)
{
    return req->host_box ? req->host_box : request_capture(req, "id");
}

/* The sandbox that the path ({id}) or the host name means; WHICH_SAVED counts. COVE_NOT_FOUND. */
static int relay_find(struct request *req, struct which *ret, struct cove_err *e)
{
    const char *name = name_of(req);

    if (check_project("id", name, e) < 0)
        return -1;
    req->note.project = name;
    if (which_sandbox(req->core->state, req->tenant, name, ret) == WHICH_NONE ||
        caller_may_box(req->core, &ret->box, e) < 0)
        return cove_fail(e, COVE_NOT_FOUND, "there is no sandbox '%.128s'", name);
    return 0;
}

static int fail_paused(const struct request *req, struct cove_err *e)
{
    return cove_fail(e, COVE_CONFLICT, "the sandbox '%.128s' is paused: resume it first",
                     name_of(req));
}

/* A pause ends the sandbox's processes, so a request that the pause overtakes finds its sandbox gone. The client is told
 * what is true by then: the sandbox is paused. */
static void paused_meanwhile(struct request *req, struct cove_err *e)
{
    struct cove_err ignored;
    struct which w;

    if (relay_find(req, &w, &ignored) == 0 && box_is_paused(&w.box))
        fail_paused(req, e);
}

int relay_open(struct request *req, struct core_session *ret, struct cove_err *e)
{
    struct which w;

    if (relay_find(req, &w, e) < 0)
        return -1;
    if (box_is_paused(&w.box))
        return fail_paused(req, e);
    return core_session_open_found(req->core, req->tenant, &w, ret, e);
}

/* ------------------------------------------------------------------ a sandbox in a reply */

struct relay_box {
    const char *id, *sandbox, *status;
    struct relay_pi *pi;
};

static const struct json_field box_fields[] = {
    JSON_STR(struct relay_box, id, "id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct relay_box, sandbox, "sandboxId", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct relay_box, status, "status", JSON_REQUIRED, JSON_ANY),
    JSON_OBJECT(struct relay_box, pi, "pi", JSON_REQUIRED, relay_pi_fields),
    JSON_END,
};

static const char *status_word(const struct box_info *box)
{
    if (box->state == BOX_SAVED)
        return box->flags & BOX_IS_WAKING     ? "resuming"
               : box->flags & BOX_WAKE_FAILED ? "failed"
                                              : "paused";
    if (box->flags & BOX_IS_SAVING)
        return "pausing";
    return box->state == BOX_FROZEN ? "paused" : "running";
}

static void put_box(struct json_writer *w, const struct box_info *box, struct relay_pi *pi)
{
    struct relay_box shown = {
        .id = box->project,
        .sandbox = box->id,
        .status = status_word(box),
        .pi = pi,
    };

    json_put_object(w, NULL, box_fields, &shown);
}

static int ask_agent(struct request *req, struct which *w, struct relay_pi *ret, struct cove_err *e)
{
    struct core_session session;
    int rc;

    if (core_session_open_found(req->core, req->tenant, w, &session, e) < 0)
        return -1;
    rc = relay_agent_look(req, &session, ret, e);
    core_session_close(&session);
    return rc;
}

/* An agent is asked about only where it can run: nothing is woken to be looked at. A sandbox that was paused
 * while its agent was asked about is looked up again: by then it is paused, and that is the answer. */
static int reply_status(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct relay_pi pi;
    struct which w;

    for (int tries = 0; tries < STATUS_TRIES; tries++) {
        pi = (struct relay_pi){ 0 };
        if (relay_find(req, &w, e) < 0)
            return -1;
        if (box_is_paused(&w.box) || ask_agent(req, &w, &pi, e) == 0) {
            put_box(&rep->json, &w.box, &pi);
            return 0;
        }
        if (e->code != COVE_GONE)
            return -1;
    }
    return -1;
}

static int status(struct request *req, struct reply *rep, struct cove_err *e)
{
    req->note.operation = "status";
    return reply_status(req, rep, e);
}

static int list_one(void *arg, const struct box_info *box)
{
    struct relay_pi unknown = { 0 };

    if (box->dialect == DIALECT_RELAY)
        put_box(arg, box, &unknown);
    return 0;
}

/* The agents of a list are not asked about: an init that does not answer would delay all of it. */
static int list(struct request *req, struct reply *rep, struct cove_err *e)
{
    (void)e;
    req->note.operation = "list";
    json_open(&rep->json, NULL, '{');
    json_open(&rep->json, "sandboxes", '[');
    core_sandbox_list(req->core, req->tenant, list_one, &rep->json);
    json_close(&rep->json, ']');
    json_close(&rep->json, '}');
    return 0;
}

/* ------------------------------------------------------------------ create */

struct create_args {
    struct json_map env;
    const char *url, *branch, *template;
};

static const struct json_field create_fields[] = {
    JSON_STR_MAP(struct create_args, env, "envVars", JSON_OPTIONAL, ENV_MAX_COUNT, ENV_MAX_BYTES),
    JSON_STR(struct create_args, url, "repoUrl", JSON_OPTIONAL, URL_MAX),
    JSON_STR(struct create_args, branch, "repoBranch", JSON_OPTIONAL, BRANCH_MAX),
    JSON_STR(struct create_args, template, "template", JSON_OPTIONAL, COVE_TEMPLATE_MAX - 1),
    JSON_END,
};

/* The whole body may be missing: curl -X POST without one. */
static int decode(struct request *req, struct create_args *ret, struct cove_err *e)
{
    const char *const *strings;

    *ret = (struct create_args){ 0 };
    if (req->body.len > 0 && request_json(req, create_fields, ret, e) < 0)
        return -1;
    if (ret->url && strncmp(ret->url, "https://", 8) != 0 && strncmp(ret->url, "http://", 7) != 0)
        return cove_fail(e, COVE_INVALID, "repoUrl: must begin with https:// or http://");
    if (ret->branch && (*ret->branch == '-' || !ret->url))
        return cove_fail(e, COVE_INVALID,
                         ret->url ? "repoBranch: must not begin with '-'"
                                  : "repoBranch: there is no repoUrl");
    return check_env(&req->arena, &ret->env, &strings, e);
}

static const char *value_of(const struct json_map *map, const char *name)
{
    for (size_t i = 0; i < map->count; i++)
        if (strcmp(map->items[i].name, name) == 0)
            return map->items[i].value;
    return NULL;
}

static bool same_map(const struct json_map *a, const struct json_map *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const char *other = value_of(b, a->items[i].name);

        if (!other || strcmp(other, a->items[i].value) != 0)
            return false;
    }
    return true;
}

/* What is kept of a create request: its settings, and which request it was. Of two creates of one name at the same
 * moment both get the same sandbox, and the one whose request stands there sets it up. */
#define META_URL     "repoUrl"
#define META_BRANCH  "repoBranch"
#define META_REQUEST "createRequest"

static struct json_map settings_of(struct request *req, const struct create_args *args,
                                   const char *request_id)
{
    struct pair *items = arena_alloc(&req->arena, 3 * sizeof(*items));
    struct json_map map = { .items = items };

    items[map.count++] = (struct pair){ META_REQUEST, request_id };

    if (args->url)
        items[map.count++] = (struct pair){ META_URL, relay_url_without_secret(req, args->url) };
    if (args->branch)
        items[map.count++] = (struct pair){ META_BRANCH, args->branch };
    return map;
}

/* Answers a second create of the same name, which is allowed with the same settings. The envVars of a saved sandbox
 * are not known any more, so they are not compared. */
static int reply_existing(struct request *req, struct reply *rep, const struct which *w,
                          const struct create_args *args, struct cove_err *e)
{
    struct core_attributes has;
    struct json_map wanted;
    const char *maker;

    /* Before anything is compared: whether settings are the same would tell a key of another project what they are. */
    if (caller_may_box(req->core, &w->box, e) < 0)
        return -1;
    core_attributes_read(req->core, &req->arena, w->box.id, &has);
    maker = value_of(&has.metadata, META_REQUEST);
    wanted = settings_of(req, args, maker ? maker : "");
    if (!same_map(&wanted, &has.metadata) ||
        (w->where != WHICH_SAVED && !same_map(&args->env, &has.env)) ||
        (args->template && *args->template && strcmp(args->template, w->box.template) != 0))
        return cove_fail(e, COVE_CONFLICT, "the sandbox '%.128s' exists with other settings",
                         name_of(req));
    return reply_status(req, rep, e);
}

static int set_up(struct request *req, const struct box_info *box, const struct create_args *args,
                  struct cove_err *e)
{
    struct core_session session;
    int rc = 0;

    if (core_session_open_id(req->core, req->tenant, box->id, &session, e) < 0)
        return -1;
    if (args->url)
        rc = relay_clone(req, &session, args->url, args->branch, e);
    if (rc == 0)
        rc = relay_agent_start(req, &session, &args->env, e);
    core_session_close(&session);
    return rc;
}

/* Makes a sandbox. If it cannot be set up, it is ended, so that its name is free again and nothing half-made is left. */
static int make(struct request *req, const struct create_args *args, bool *ret_ours,
                struct cove_err *e)
{
    struct core_attributes attributes = { .metadata = settings_of(req, args, req->request_id),
                                          .env = args->env };
    const char *maker;
    struct core_new new = {
        .tenant = req->tenant,
        .once = name_of(req),
        .template = args->template && *args->template ? args->template : NULL,
        .dialect = DIALECT_RELAY,
        .lifetime_ms = req->core->config->lifetime_ms,
        .attributes = &attributes,
    };
    struct cove_err ignored;
    struct box_info box;

    if (core_sandbox_create(req->core, &new, &box, e) < 0)
        return -1;
    req->note.sandbox = arena_strdup(&req->arena, box.id);
    core_attributes_read(req->core, &req->arena, box.id, &attributes);
    maker = value_of(&attributes.metadata, META_REQUEST);
    *ret_ours = maker && strcmp(maker, req->request_id) == 0;
    if (!*ret_ours || set_up(req, &box, args, e) == 0)
        return 0;
    core_sandbox_kill(req->core, &box, &ignored);
    return -1;
}

static int create(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct create_args args;
    bool ours = false;
    struct which w;

    req->note.operation = "create";
    if (check_project("id", name_of(req), e) < 0 || decode(req, &args, e) < 0)
        return -1;
    if (which_sandbox(req->core->state, req->tenant, name_of(req), &w) != WHICH_NONE)
        return reply_existing(req, rep, &w, &args, e);
    if (make(req, &args, &ours, e) < 0)
        return -1;
    if (!ours && relay_find(req, &w, e) == 0)
        return reply_existing(req, rep, &w, &args, e);
    rep->status = 201;
    return reply_status(req, rep, e);
}

/* ------------------------------------------------------------------ pause, resume, delete */

static int pause_it(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct which w;

    req->note.operation = "pause";
    if (relay_find(req, &w, e) < 0)
        return -1;
    if (w.where != WHICH_SAVED && core_sandbox_save(req->core, &w.box, e) < 0)
        return -1;
    return reply_status(req, rep, e);
}

/* The environment variables come with each resume, because they were not saved. */
static int renew_env(struct request *req, const struct box_info *box, const struct json_map *env,
                     struct cove_err *e)
{
    struct core_attributes attributes;

    core_attributes_read(req->core, &req->arena, box->id, &attributes);
    attributes.env = *env;
    return core_sandbox_describe(req->core, box, &attributes, e);
}

/* Also in a sandbox that runs already: another API may have woken it, without the envVars that its agent needs. An
 * agent that runs is left as it is. */
static int start_agent(struct request *req, struct which *w, const struct json_map *env,
                       struct cove_err *e)
{
    struct core_session session;
    struct relay_pi pi;
    int rc;

    if (core_session_open_found(req->core, req->tenant, w, &session, e) < 0)
        return -1;
    rc = relay_agent_look(req, &session, &pi, e);
    if (rc == 0 && !pi.running && env->count > 0) {
        rc = renew_env(req, &w->box, env, e);
        if (rc == 0)
            rc = relay_agent_start(req, &session, env, e);
    }
    core_session_close(&session);
    return rc;
}

static int resume(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct create_args args;
    struct which w;

    req->note.operation = "resume";
    if (decode(req, &args, e) < 0 || relay_find(req, &w, e) < 0)
        return -1;
    if ((box_is_paused(&w.box) || args.env.count > 0) && start_agent(req, &w, &args.env, e) < 0)
        return -1;
    return reply_status(req, rep, e);
}

struct deleted {
    const char *id;
    bool success;
};

static const struct json_field deleted_fields[] = {
    JSON_STR(struct deleted, id, "id", JSON_REQUIRED, JSON_ANY),
    JSON_BOOL(struct deleted, success, "success", JSON_REQUIRED),
    JSON_END,
};

static int destroy(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct which w;

    req->note.operation = "delete";
    if (relay_find(req, &w, e) < 0 || core_sandbox_kill(req->core, &w.box, e) < 0)
        return -1;
    reply_json(rep, deleted_fields, &(struct deleted){ name_of(req), true });
    return 0;
}

/* ------------------------------------------------------------------ the dialect */

static const struct credential relay_credentials[] = {
    { "HTTP_X_RELAY_SECRET", "" },
    { NULL, NULL },
};

const struct dialect relay_dialect = {
    .name = "relay",
    .base = "",
    .routes = relay_routes,
    .route_count = ARRAY_SIZE(relay_routes),
    .credentials = relay_credentials,
    .headers = ", X-Relay-Secret",
    .on_error = relay_error,
};

static bool is_bridge(const struct request *req)
{
    return req->host_box && req->host_port == RELAY_BRIDGE_PORT;
}

const struct dialect relay_bridge_dialect = {
    .name = "relay",
    .base = "",
    .routes = bridge_routes,
    .route_count = ARRAY_SIZE(bridge_routes),
    .host_port = RELAY_BRIDGE_PORT,
    .host_maker = DIALECT_RELAY,
    .is_meant = is_bridge,
    .on_error = relay_error,
};
