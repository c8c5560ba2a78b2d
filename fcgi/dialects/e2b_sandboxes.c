/* Sandboxes: created, looked at, given more time, paused, resumed, killed. Lists are in e2b_list.c. */
#include "fcgi/dialects/e2b_sandboxes.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "cove/dialect.h"
#include "cove/keys.h"
#include "cove/text.h"
#include "fcgi/caller.h"
#include "fcgi/check.h"

enum {
    TIMEOUT_V1_S = 15, /* what the two versions of the document give a sandbox by default */
    TIMEOUT_V2_S = 300,
    TIMEOUT_RESUME_S = 15,
    REFRESH_MIN_S = 15,
    REFRESH_MAX_S = 3600,
    TIMEOUT_LONGEST_S = 7 * 86400,
    METADATA_MAX = 256,
    METADATA_ITEM_MAX = 8192,
    ONCE_MAX = 255,
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

void e2b_describe(struct request *req, const struct box_info *box, struct e2b_sandbox *ret)
{
    struct core_attributes attributes;
    struct e2b_lifecycle *lifecycle = arena_alloc(&req->arena, sizeof(*lifecycle));
    struct limits limits;

    core_attributes_read(req->core, &req->arena, box->id, &attributes);
    caller_limits(req->core, box->tenant, box->template, &limits);
    *lifecycle = (struct e2b_lifecycle){
        .on_timeout = box->flags & BOX_END_FREEZES ? "pause" : "kill",
        .auto_resume = attributes.auto_resume,
    };
    *ret = (struct e2b_sandbox){
        .id = arena_strdup(&req->arena, box->id),
        .template = arena_strdup(&req->arena, box->template),
        .client = "6532622b", /* a constant in the reference too: nothing reads it any more */
        .envd_version = E2B_ENVD_VERSION,
        .token = attributes.open ? NULL : token_of(req, token_make, box->id),
        .traffic_token =
            attributes.private_ports ? token_of(req, traffic_token_make, box->id) : NULL,
        .network = e2b_network_told(&req->arena, &attributes),
        .started = box->created_unix_ms,
        .ends = core_sandbox_ends_unix_ms(box),
        .cpus = limits.cpu_percent ? (int64_t)((limits.cpu_percent + 99) / 100) : 1,
        .memory_mb = (int64_t)(limits.memory_max_bytes >> 20),
        .disk_mb = (int64_t)(limits.disk_max_bytes >> 20),
        .state = box_is_paused(box) ? "paused" : "running",
        .metadata = attributes.metadata,
        .internet_given = attributes.internet_given,
        .internet = attributes.internet,
        .lifecycle = lifecycle,
    };
}

static int reply_sandbox(struct request *req, struct reply *rep, int status,
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

/* ------------------------------------------------------------------ create */

struct auto_resume {
    bool enabled;
};

struct create_args {
    const char *template;
    int64_t timeout_s;
    bool auto_pause, secure, internet, internet_given;
    struct auto_resume *auto_resume;
    bool pause_memory, pause_memory_given;
    struct e2b_network *network;
    struct json_map metadata, env;
    struct json_array volumes;
};

struct volume {
    const char *name;
};

static const struct json_field volume_fields[] = {
    JSON_STR(struct volume, name, "name", JSON_REQUIRED, 128),
    JSON_END,
};

static const struct json_field auto_resume_fields[] = {
    JSON_BOOL(struct auto_resume, enabled, "enabled", JSON_REQUIRED),
    JSON_END,
};

static const struct json_field create_fields[] = {
    JSON_STR(struct create_args, template, "templateID", JSON_REQUIRED, COVE_TEMPLATE_MAX - 1),
    JSON_INT(struct create_args, timeout_s, "timeout", JSON_OPTIONAL, INT32_MIN, INT32_MAX),
    JSON_BOOL(struct create_args, auto_pause, "autoPause", JSON_OPTIONAL),
    JSON_OBJECT(struct create_args, auto_resume, "autoResume", JSON_OPTIONAL, auto_resume_fields),
    JSON_BOOL(struct create_args, secure, "secure", JSON_OPTIONAL),
    JSON_BOOL(struct create_args, internet, "allow_internet_access", JSON_OPTIONAL,
              JSON_HAS(struct create_args, internet_given)),
    JSON_BOOL(struct create_args, pause_memory, "autoPauseMemory", JSON_OPTIONAL,
              JSON_HAS(struct create_args, pause_memory_given)),
    JSON_OBJECT(struct create_args, network, "network", JSON_OPTIONAL, e2b_network_fields),
    JSON_OBJECTS(struct create_args, volumes, struct volume, "volumeMounts", JSON_OPTIONAL,
                 volume_fields, 100),
    JSON_STR_MAP(struct create_args, metadata, "metadata", JSON_OPTIONAL, METADATA_MAX,
                 METADATA_ITEM_MAX),
    JSON_STR_MAP(struct create_args, env, "envVars", JSON_OPTIONAL, ENV_MAX_COUNT, ENV_MAX_BYTES),
    JSON_END,
};

int e2b_check_timeout(int64_t seconds, struct cove_err *e)
{
    if (seconds <= 0)
        return cove_fail(e, COVE_INVALID, "Timeout must be greater than 0");
    if (seconds > TIMEOUT_LONGEST_S)
        return cove_fail(e, COVE_INVALID, "Timeout cannot be greater than %d seconds",
                         TIMEOUT_LONGEST_S);
    return 0;
}

/* The document's words for a template that is not there. */
static int name_template(const char *given, struct cove_err *e)
{
    return e->code == COVE_NOT_FOUND
               ? cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", given)
               : -1;
}

/* A project's name is shorter than a key may be, so its hash stands for it. */
static const char *once_name(struct arena *a, const char *key)
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    char hex[33];

    SHA256((const unsigned char *)key, strlen(key), hash);
    for (size_t i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    return arena_printf(a, "e2b-idempotency-%s", hex);
}

/* "Idempotency-Key: KEY": asked for again with that key, the sandbox that was made is meant. */
static int read_once(struct request *req, const char **ret, struct cove_err *e)
{
    const char *key = request_param(req, "HTTP_IDEMPOTENCY_KEY");
    size_t len = strlen(key);

    *ret = NULL;
    if (len == 0)
        return 0;
    if (len > ONCE_MAX || strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789-") != len)
        return cove_fail(e, COVE_INVALID,
                         "Idempotency-Key: must be 1 to %d lower-case letters, digits and hyphens",
                         ONCE_MAX);
    *ret = once_name(&req->arena, key);
    return 0;
}

static int check_create(const struct create_args *args, struct cove_err *e)
{
    if (e2b_check_timeout(args->timeout_s, e) < 0)
        return -1;
    if (args->volumes.count > 0)
        return cove_fail(e, COVE_UNSUPPORTED, "volumeMounts: not available on this server");
    if (args->pause_memory_given && !args->pause_memory &&
        (!args->auto_pause || (args->auto_resume && args->auto_resume->enabled)))
        return cove_fail(e, COVE_INVALID,
                         "autoPauseMemory: false needs autoPause and no autoResume");
    if (args->network && args->network->public_given && !args->network->public_traffic &&
        !args->secure)
        return cove_fail(e, COVE_INVALID,
                         "network.allowPublicTraffic: false needs a secured sandbox");
    return 0;
}

/* The network it was asked for, or the sandbox does not stay. */
static int set_network(struct request *req, const struct box_info *box,
                       const struct core_attributes *attributes, struct cove_err *e)
{
    struct net_rules rules;
    bool any;

    if (e2b_network_rules(attributes, &rules, &any, e) < 0)
        return -1;
    if (!any || core_network(req->core, req->tenant, box->id, &rules, e) == 0)
        return 0;
    core_sandbox_kill(req->core, box, NULL);
    return -1;
}

static int create(struct request *req, struct reply *rep, struct create_args *args,
                  struct cove_err *e)
{
    struct core_attributes attributes = {
        .metadata = args->metadata,
        .env = args->env,
        .open = !args->secure,
        .auto_pause = args->auto_pause,
        .auto_resume = args->auto_resume && args->auto_resume->enabled,
        .internet = args->internet,
        .internet_given = args->internet_given,
    };
    bool made = true;
    struct core_new new = {
        .tenant = req->tenant,
        .dialect = DIALECT_E2B,
        .lifetime_ms = (uint64_t)args->timeout_s * 1000,
        .attributes = &attributes,
        .ret_made = &made,
    };
    const char *const *ignored;
    struct net_rules rules;
    struct box_info box;
    bool any;

    if (check_create(args, e) < 0 || check_env(&req->arena, &args->env, &ignored, e) < 0 ||
        !(new.template = e2b_template_word(req, args->template, e)) ||
        read_once(req, &new.once, e) < 0 || e2b_network_take(args->network, &attributes, e) < 0 ||
        e2b_network_rules(&attributes, &rules, &any, e) < 0)
        return -1;
    if (core_sandbox_create(req->core, &new, &box, e) < 0)
        return name_template(args->template, e);
    req->note.sandbox = arena_strdup(&req->arena, box.id);
    if (made && set_network(req, &box, &attributes, e) < 0)
        return -1; /* one that was there already has its network, and stays */
    return reply_sandbox(req, rep, 201, &box);
}

int e2b_create_v1(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct create_args args = { .timeout_s = TIMEOUT_V1_S };

    req->note.operation = "create";
    return request_json(req, create_fields, &args, e) < 0 ? -1 : create(req, rep, &args, e);
}

int e2b_create_v2(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct create_args args = { .timeout_s = TIMEOUT_V2_S };

    req->note.operation = "create";
    if (request_json(req, create_fields, &args, e) < 0)
        return -1;
    args.secure = true;
    return create(req, rep, &args, e);
}

/* ------------------------------------------------------------------ one sandbox */

/* {id}, also in the form ID-CLIENT that old clients send. */
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

/* A body may be left out altogether. */
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

/* {"memory": false}: its files are kept, and none of its processes. */
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

/* What the sandbox is like after a change. */
static int reply_again(struct request *req, struct reply *rep, int status,
                       const struct box_info *box, struct cove_err *e)
{
    struct box_info now;

    if (core_sandbox_find(req->core, req->tenant, box->id, &now, e) < 0)
        return -1;
    return reply_sandbox(req, rep, status, &now);
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

/* Of one that runs, the time is made longer and never shorter; a paused one runs again. */
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
    struct time_args args = { .timeout_s = TIMEOUT_V2_S };
    struct box_info box;

    if (e2b_find(req, "connect", &box, e) < 0 || read_time(req, false, &args, e) < 0)
        return -1;
    return connect_to(req, rep, args.timeout_s, &box, e);
}
