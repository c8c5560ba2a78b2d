/* Sandboxes: looked at, given more time, paused, resumed, killed. They are made in e2b_create.c and
 * listed in e2b_list.c. */
#include "fcgi/dialects/e2b_sandboxes.h"

#include <string.h>

#include "cove/keys.h"
#include "fcgi/caller.h"

enum {
    TIMEOUT_CONNECT_S = 300,
    TIMEOUT_RESUME_S = 15,
    REFRESH_MIN_S = 15,
    REFRESH_MAX_S = 3600,
    TIMEOUT_LONGEST_S = 7 * 86400,
};

/* ------------------------------------------------------------------ what is told of one */

static const struct json_field sandbox_fields[] = {
    JSON_STR(struct e2b_sandbox, id, "sandboxID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct e2b_sandbox, template, "templateID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct e2b_sandbox, client, "clientID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct e2b_sandbox, envd_version, "envdVersion", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct e2b_sandbox, alias, "alias", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct e2b_sandbox, token, "envdAccessToken", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct e2b_sandbox, traffic_token, "trafficAccessToken", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct e2b_sandbox, domain, "domain", JSON_NULLABLE, JSON_ANY),
    JSON_END,
};

static const struct json_field lifecycle_fields[] = {
    JSON_STR(struct e2b_lifecycle, on_timeout, "onTimeout", JSON_REQUIRED, JSON_ANY),
    JSON_BOOL(struct e2b_lifecycle, auto_resume, "autoResume", JSON_ALWAYS),
    JSON_END,
};

const struct json_field e2b_listed_fields[] = {
    JSON_STR(struct e2b_sandbox, id, "sandboxID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct e2b_sandbox, template, "templateID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct e2b_sandbox, client, "clientID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct e2b_sandbox, alias, "alias", JSON_OPTIONAL, JSON_ANY),
    JSON_TIME(struct e2b_sandbox, started, "startedAt", JSON_ALWAYS),
    JSON_TIME(struct e2b_sandbox, ends, "endAt", JSON_ALWAYS),
    JSON_INT(struct e2b_sandbox, cpus, "cpuCount", JSON_ALWAYS, 0, INT32_MAX),
    JSON_INT(struct e2b_sandbox, memory_mb, "memoryMB", JSON_ALWAYS, 0, INT32_MAX),
    JSON_INT(struct e2b_sandbox, disk_mb, "diskSizeMB", JSON_ALWAYS, 0, INT32_MAX),
    JSON_STR(struct e2b_sandbox, state, "state", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct e2b_sandbox, envd_version, "envdVersion", JSON_REQUIRED, JSON_ANY),
    JSON_STR_MAP(struct e2b_sandbox, metadata, "metadata", JSON_OPTIONAL, JSON_ANY, JSON_ANY),
    JSON_END,
};

static const struct json_field detail_fields[] = {
    JSON_STR(struct e2b_sandbox, id, "sandboxID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct e2b_sandbox, template, "templateID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct e2b_sandbox, client, "clientID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct e2b_sandbox, alias, "alias", JSON_OPTIONAL, JSON_ANY),
    JSON_TIME(struct e2b_sandbox, started, "startedAt", JSON_ALWAYS),
    JSON_TIME(struct e2b_sandbox, ends, "endAt", JSON_ALWAYS),
    JSON_INT(struct e2b_sandbox, cpus, "cpuCount", JSON_ALWAYS, 0, INT32_MAX),
    JSON_INT(struct e2b_sandbox, memory_mb, "memoryMB", JSON_ALWAYS, 0, INT32_MAX),
    JSON_INT(struct e2b_sandbox, disk_mb, "diskSizeMB", JSON_ALWAYS, 0, INT32_MAX),
    JSON_STR(struct e2b_sandbox, state, "state", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct e2b_sandbox, envd_version, "envdVersion", JSON_REQUIRED, JSON_ANY),
    JSON_STR_MAP(struct e2b_sandbox, metadata, "metadata", JSON_OPTIONAL, JSON_ANY, JSON_ANY),
    JSON_STR(struct e2b_sandbox, token, "envdAccessToken", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct e2b_sandbox, domain, "domain", JSON_NULLABLE, JSON_ANY),
    JSON_BOOL(struct e2b_sandbox, internet, "allowInternetAccess", JSON_NULLABLE,
              JSON_HAS(struct e2b_sandbox, internet_given)),
    JSON_OBJECT(struct e2b_sandbox, network, "network", JSON_OPTIONAL, e2b_network_fields),
    JSON_OBJECT(struct e2b_sandbox, lifecycle, "lifecycle", JSON_REQUIRED, lifecycle_fields),
    JSON_END,
};

typedef void token_fn(const unsigned char secret[TOKEN_SECRET_BYTES], const char *id,
                      char ret[TOKEN_LEN + 1]);

static const char *token_of(struct request *req, token_fn *make, const char *id)
{
    char *token = arena_alloc(&req->arena, TOKEN_LEN + 1);

    make(req->core->token_secret, id, token);
    return token;
}

/* The name of a sandbox's template. Of a tenant's own template it is the name in the request, without a tag. */
const char *e2b_template_of(struct request *req, const struct box_info *box,
                            const struct core_attributes *attributes)
{
    const char *asked = box->snapshot[0] ? attributes->template_asked : NULL;

    return asked ? arena_strndup(&req->arena, asked, strcspn(asked, ":"))
                 : arena_strdup(&req->arena, box->template);
}

void e2b_describe(struct request *req, const struct box_info *box, struct e2b_sandbox *ret)
{
    struct core_attributes attributes;
    struct e2b_lifecycle *lifecycle = arena_alloc(&req->arena, sizeof(*lifecycle));
    struct limits limits;

    core_attributes_read(req->core, &req->arena, box->id, &attributes);
    caller_limits_of(req->core, box->tenant, box->template, box->snapshot, &limits);
    *lifecycle = (struct e2b_lifecycle){
        .on_timeout = box->flags & BOX_END_FREEZES ? "pause" : "kill",
        .auto_resume = attributes.auto_resume,
    };
    *ret = (struct e2b_sandbox){
        .id = arena_strdup(&req->arena, box->id),
        .template = e2b_template_of(req, box, &attributes),
        .client = "6532622b", /* a constant in the reference too: nothing reads it any more */
        .envd_version = E2B_ENVD_VERSION,
        .token = attributes.open ? NULL : token_of(req, token_make, box->id),
        .traffic_token =
            attributes.private_ports ? token_of(req, traffic_token_make, box->id) : NULL,
        .network = e2b_network_told(&req->arena, &attributes),
        .started = box->created_unix_ms,
        .ends = core_sandbox_ends_unix_ms(box),
        .cpus = limits_cpus(&limits),
        .memory_mb = (int64_t)(limits.memory_max_bytes >> 20),
        .disk_mb = (int64_t)(limits.disk_max_bytes >> 20),
        .state = box_is_paused(box) ? "paused" : "running",
        .metadata = attributes.metadata,
        .internet_given = attributes.internet_given,
        .internet = attributes.internet,
        .lifecycle = lifecycle,
    };
}

int e2b_reply_sandbox(struct request *req, struct reply *rep, int status,
                      const struct box_info *box)
{
    struct e2b_sandbox sandbox;

    e2b_describe(req, box, &sandbox);
    rep->status = status;
    reply_json(rep, sandbox_fields, &sandbox);
    return 0;
}

void e2b_put_sandbox(struct json_writer *w, struct request *req, const struct box_info *box,
                     const char *name)
{
    struct e2b_sandbox sandbox;

    e2b_describe(req, box, &sandbox);
    json_open(w, NULL, '{');
    json_put_object(w, name, sandbox_fields, &sandbox);
    json_close(w, '}');
}

/* ------------------------------------------------------------------ one sandbox */

/* The {id} of the path may also have the form ID-CLIENT, which old clients send. */
int e2b_find(struct request *req, const char *operation, struct box_info *ret, struct cove_err *e)
{
    const char *given = request_capture(req, "id");
    const char *id = arena_strndup(&req->arena, given, strcspn(given, "-"));

    req->note.operation = operation;
    req->note.sandbox = id;
    return core_sandbox_find(req->core, req->tenant, id, ret, e);
}

int e2b_get(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct e2b_sandbox sandbox;
    struct box_info box;

    if (e2b_find(req, "get", &box, e) < 0)
        return -1;
    e2b_describe(req, &box, &sandbox);
    reply_json(rep, detail_fields, &sandbox);
    return 0;
}

static int done(struct reply *rep)
{
    rep->status = 204;
    return 0;
}

int e2b_kill(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct box_info box;

    if (e2b_find(req, "kill", &box, e) < 0 || core_sandbox_kill(req->core, &box, e) < 0)
        return -1;
    return done(rep);
}

/* ------------------------------------------------------------------ its time */

int e2b_check_timeout(int64_t seconds, struct cove_err *e)
{
    if (seconds <= 0)
        return cove_fail(e, COVE_INVALID, "Timeout must be greater than 0");
    if (seconds > TIMEOUT_LONGEST_S)
        return cove_fail(e, COVE_INVALID, "Timeout cannot be greater than %d seconds",
                         TIMEOUT_LONGEST_S);
    return 0;
}

struct time_args {
    int64_t timeout_s, duration_s;
    bool timeout_given;
};

static const struct json_field time_fields[] = {
    JSON_INT(struct time_args, timeout_s, "timeout", JSON_OPTIONAL, INT32_MIN, INT32_MAX,
             JSON_HAS(struct time_args, timeout_given)),
    JSON_INT(struct time_args, duration_s, "duration", JSON_OPTIONAL, 0, REFRESH_MAX_S),
    JSON_END,
};

/* A request may have no body at all. */
static int read_time(struct request *req, bool required, struct time_args *ret, struct cove_err *e)
{
    if (req->body.len > 0 && request_json(req, time_fields, ret, e) < 0)
        return -1;
    if (required && !ret->timeout_given)
        return cove_fail(e, COVE_INVALID, "timeout: is missing");
    return 0;
}

int e2b_timeout(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct time_args args = { 0 };
    struct box_info box;

    if (e2b_find(req, "timeout", &box, e) < 0 || read_time(req, true, &args, e) < 0)
        return -1;
    if (box_is_paused(&box))
        return cove_fail(e, COVE_NOT_FOUND, "Sandbox \"%s\" is paused", box.id);
    if (args.timeout_s > TIMEOUT_LONGEST_S)
        return e2b_check_timeout(args.timeout_s, e);
    if (args.timeout_s <= 0
            ? core_sandbox_kill(req->core, &box, e) < 0
            : core_sandbox_extend(req->core, &box, (uint64_t)args.timeout_s * 1000, false, e) < 0)
        return -1;
    return done(rep);
}

int e2b_refresh(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct time_args args = { .duration_s = REFRESH_MIN_S };
    struct box_info box;

    if (e2b_find(req, "refresh", &box, e) < 0 || read_time(req, false, &args, e) < 0)
        return -1;
    if (args.duration_s < REFRESH_MIN_S)
        args.duration_s = REFRESH_MIN_S;
    if (core_sandbox_extend(req->core, &box, (uint64_t)args.duration_s * 1000, true, e) < 0)
        return -1;
    return done(rep);
}

/* ------------------------------------------------------------------ pause, resume, connect */

struct pause_args {
    bool memory, memory_given;
};

static const struct json_field pause_fields[] = {
    JSON_BOOL(struct pause_args, memory, "memory", JSON_OPTIONAL,
              JSON_HAS(struct pause_args, memory_given)),
    JSON_END,
};

/* With {"memory": false} the sandbox keeps its files and loses its processes. */
int e2b_pause(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct pause_args args = { 0 };
    struct box_info box;

    if (e2b_find(req, "pause", &box, e) < 0 ||
        (req->body.len > 0 && request_json(req, pause_fields, &args, e) < 0))
        return -1;
    if (box_is_paused(&box))
        return cove_fail(e, COVE_CONFLICT, "Sandbox \"%s\" is already paused", box.id);
    if ((args.memory_given && !args.memory ? core_sandbox_save(req->core, &box, e)
                                           : core_sandbox_pause(req->core, &box, e)) < 0)
        return -1;
    return done(rep);
}

/* Replies with the sandbox as it is after a change. */
static int reply_again(struct request *req, struct reply *rep, int status,
                       const struct box_info *box, struct cove_err *e)
{
    struct box_info now;

    if (core_sandbox_find(req->core, req->tenant, box->id, &now, e) < 0)
        return -1;
    return e2b_reply_sandbox(req, rep, status, &now);
}

int e2b_resume(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct time_args args = { .timeout_s = TIMEOUT_RESUME_S };
    struct box_info box;

    if (e2b_find(req, "resume", &box, e) < 0 || read_time(req, false, &args, e) < 0 ||
        e2b_check_timeout(args.timeout_s, e) < 0)
        return -1;
    if (!box_is_paused(&box))
        return cove_fail(e, COVE_CONFLICT, "Sandbox \"%s\" is already running", box.id);
    if (core_sandbox_resume(req->core, &box, (uint64_t)args.timeout_s * 1000, e) < 0)
        return -1;
    return reply_again(req, rep, 201, &box, e);
}

/* The time of a running sandbox is made longer and never shorter; a paused one is resumed. */
static int connect_to(struct request *req, struct reply *rep, int64_t timeout_s,
                      const struct box_info *box, struct cove_err *e)
{
    bool paused = box_is_paused(box);
    uint64_t ms = (uint64_t)timeout_s * 1000;

    if (e2b_check_timeout(timeout_s, e) < 0)
        return -1;
    if (paused ? core_sandbox_resume(req->core, box, ms, e) < 0
               : core_sandbox_extend(req->core, box, ms, true, e) < 0)
        return -1;
    return reply_again(req, rep, paused ? 201 : 200, box, e);
}

int e2b_connect_v1(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct time_args args = { 0 };
    struct box_info box;

    if (e2b_find(req, "connect", &box, e) < 0 || read_time(req, true, &args, e) < 0)
        return -1;
    return connect_to(req, rep, args.timeout_s, &box, e);
}

int e2b_connect_v2(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct time_args args = { .timeout_s = TIMEOUT_CONNECT_S };
    struct box_info box;

    if (e2b_find(req, "connect", &box, e) < 0 || read_time(req, false, &args, e) < 0)
        return -1;
    return connect_to(req, rep, args.timeout_s, &box, e);
}
