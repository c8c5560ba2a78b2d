/* New sandboxes: both versions of the call, with their network and what keeps a repeated call from
 * making a second one. */
#include <openssl/sha.h>
#include <stdio.h>
#include <string.h>

#include "cove/dialect.h"
#include "fcgi/check.h"
#include "fcgi/dialects/e2b_sandboxes.h"

enum {
    TIMEOUT_V1_S = 15, /* what the two versions of the document give a sandbox by default */
    TIMEOUT_V2_S = 300,
    METADATA_MAX = 256,
    METADATA_ITEM_MAX = 8192,
    ONCE_MAX = 255,
    ONCE_S = 86400, /* an Idempotency-Key stands for its sandbox so long after the sandbox's end */
};

/* ------------------------------------------------------------------ what is asked for */

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

/* Reports a template that does not exist in the document's words. */
static int name_template(const char *given, struct cove_err *e)
{
    const char *colon = strchr(given, ':');

    if (e->code != COVE_NOT_FOUND)
        return -1;
    if (colon && strcmp(colon, ":default") != 0)
        return cove_fail(e, COVE_NOT_FOUND, "tag '%.40s' does not exist for template '%.*s'",
                         colon + 1, (int)(colon - given < 60 ? colon - given : 60), given);
    return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", given);
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

/* "Idempotency-Key: KEY": a second request with the same key gets the sandbox that the first one made. */
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

static int refuse_unbuilt(struct request *req, struct cove_err *e)
{
    if (e2b_refuse_unbuilt(req, "iam", "tokens", e) < 0 ||
        e2b_refuse_unbuilt(req, "network", "rules", e) < 0)
        return -1;
    return e2b_refuse_unbuilt(req, "network", "httpsPorts", e);
}

/* Sets the network that was asked for. If that fails, the sandbox is ended. */
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
        .template_asked = args->template,
        .auto_pause = args->auto_pause,
        .auto_resume = args->auto_resume && args->auto_resume->enabled,
        .internet = args->internet,
        .internet_given = args->internet_given,
    };
    bool made = true;
    struct core_new new = {
        .tenant = req->tenant,
        .dialect = DIALECT_E2B,
        .template = e2b_template_word(req, args->template),
        .lifetime_ms = (uint64_t)args->timeout_s * 1000,
        .attributes = &attributes,
        .ret_made = &made,
    };
    const char *const *ignored;
    struct net_rules rules;
    struct box_info box;
    bool any;

    if (refuse_unbuilt(req, e) < 0 || check_create(args, e) < 0 ||
        check_env(&req->arena, &args->env, &ignored, e) < 0 || read_once(req, &new.once, e) < 0 ||
        e2b_network_take(args->network, &attributes, e) < 0 ||
        e2b_network_rules(&attributes, &rules, &any, e) < 0)
        return -1;
    new.keep_ended_s = new.once ? ONCE_S : 0;
    if (core_sandbox_create(req->core, &new, &box, e) < 0)
        return name_template(args->template, e);
    req->note.sandbox = arena_strdup(&req->arena, box.id);
    if (made && set_network(req, &box, &attributes, e) < 0)
        return -1; /* a sandbox that existed before keeps its network */
    return e2b_reply_sandbox(req, rep, 201, &box);
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
