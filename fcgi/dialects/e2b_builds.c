/* Builds of templates: a client asks for one, and then starts it. cove-builder does the work (core_builds.h). */
#include <string.h>

#include "fcgi/dialects/e2b_templates.h"

enum { TAGS_MAX = 32, STEP_ARGS_MAX = 256 };

/* ------------------------------------------------------------------ asked for */

struct new_args {
    const char *name, *alias;
    struct json_strings tags;
    int64_t cpus, memory_mb;
};

/* The operator says how much of the machine a sandbox gets at most; cpuCount and memoryMB can only make it less. */
static const struct json_field new_fields[] = {
    JSON_STR(struct new_args, name, "name", JSON_OPTIONAL, COVE_TEMPLATE_MAX + 64),
    JSON_STR(struct new_args, alias, "alias", JSON_OPTIONAL, COVE_TEMPLATE_MAX + 64),
    JSON_STR_ARRAY(struct new_args, tags, "tags", JSON_OPTIONAL, TAGS_MAX, COVE_TAG_MAX),
    JSON_INT(struct new_args, cpus, "cpuCount", JSON_OPTIONAL, 1, 1024),
    JSON_INT(struct new_args, memory_mb, "memoryMB", JSON_OPTIONAL, 128, 1 << 24),
    JSON_END,
};

static void add_tag(struct buf *list, const char *tag)
{
    if (list->len)
        buf_add_char(list, ' ');
    buf_add_str(list, tag);
}

static int read_new(struct request *req, struct core_build *ret, struct buf *ret_tags,
                    struct cove_err *e)
{
    struct new_args args = { 0 };
    const char *tag;

    if (request_json(req, new_fields, &args, e) < 0)
        return -1;
    if (args.cpus > 1 && args.cpus % 2)
        return cove_fail(e, COVE_INVALID, "cpuCount: must be 1 or an even number");
    if (args.memory_mb % 2)
        return cove_fail(e, COVE_INVALID, "memoryMB: must be an even number");
    ret->cpus = (uint32_t)args.cpus;
    ret->memory_bytes = (uint64_t)args.memory_mb << 20;
    if (!args.name && !args.alias)
        return cove_fail(e, COVE_INVALID, "name: is missing");
    if (e2b_template_split(req, "name", args.name ? args.name : args.alias, &ret->name, &tag, e) <
        0)
        return -1;
    if (*tag)
        add_tag(ret_tags, tag);
    for (size_t i = 0; i < args.tags.count; i++) {
        if (e2b_check_tag("tags", args.tags.items[i], e) < 0)
            return -1;
        add_tag(ret_tags, args.tags.items[i]);
    }
    if (ret_tags->len == 0)
        add_tag(ret_tags, COVE_TAG_DEFAULT);
    return 0;
}

struct new_build {
    const char *template, *build;
    struct json_strings names, aliases, tags;
    bool public;
};

static const struct json_field new_build_fields[] = {
    JSON_STR(struct new_build, template, "templateID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct new_build, build, "buildID", JSON_REQUIRED, JSON_ANY),
    JSON_STR_ARRAY(struct new_build, names, "names", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_STR_ARRAY(struct new_build, aliases, "aliases", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_STR_ARRAY(struct new_build, tags, "tags", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_BOOL(struct new_build, public, "public", JSON_REQUIRED),
    JSON_END,
};

int e2b_build_new(struct request *req, struct reply *rep, struct cove_err *e)
{
    AUTO_BUF struct buf tags = BUF(COVE_TAGS_MAX * 8);
    struct build_info made;
    struct core_build asked = { .dialect = DIALECT_E2B };
    struct new_build told = { 0 };

    req->note.operation = "new_build";
    if (read_new(req, &asked, &tags, e) < 0)
        return -1;
    asked.tags = tags.data;
    if (core_build_new(req->core, req->tenant, &asked, &made, e) < 0)
        return -1;
    rep->status = 202;
    told.template = e2b_template_id(req, asked.name);
    told.build = made.id;
    told.names = e2b_words(&req->arena, told.template);
    told.aliases = e2b_words(&req->arena, asked.name);
    told.tags = e2b_words(&req->arena, tags.data);
    reply_json(rep, new_build_fields, &told);
    return 0;
}

/* ------------------------------------------------------------------ started */

struct step {
    const char *type, *files;
    struct json_strings args;
    bool force;
};

struct registry {
    const char *type, *user, *password;
};

struct start_args {
    const char *from_template, *from_image, *start, *ready;
    struct registry *registry;
    bool force;
    struct json_array steps;
};

static const struct json_field step_fields[] = {
    JSON_STR(struct step, type, "type", JSON_REQUIRED, 16),
    JSON_STR_ARRAY(struct step, args, "args", JSON_OPTIONAL, STEP_ARGS_MAX, 131071),
    JSON_STR(struct step, files, "filesHash", JSON_OPTIONAL, 128),
    JSON_BOOL(struct step, force, "force", JSON_OPTIONAL),
    JSON_END,
};

static const struct json_field registry_fields[] = {
    JSON_STR(struct registry, type, "type", JSON_REQUIRED, 32),
    JSON_STR(struct registry, user, "username", JSON_OPTIONAL, 256),
    JSON_STR(struct registry, password, "password", JSON_OPTIONAL, 8192),
    JSON_END,
};

static const struct json_field start_fields[] = {
    JSON_STR(struct start_args, from_template, "fromTemplate", JSON_OPTIONAL,
             COVE_TEMPLATE_MAX - 1),
    JSON_STR(struct start_args, from_image, "fromImage", JSON_OPTIONAL, 512),
    JSON_OBJECT(struct start_args, registry, "fromImageRegistry", JSON_OPTIONAL, registry_fields),
    JSON_STR(struct start_args, start, "startCmd", JSON_OPTIONAL, MANIFEST_COMMAND_MAX),
    JSON_STR(struct start_args, ready, "readyCmd", JSON_OPTIONAL, MANIFEST_COMMAND_MAX),
    JSON_BOOL(struct start_args, force, "force", JSON_OPTIONAL),
    JSON_OBJECTS(struct start_args, steps, struct step, "steps", JSON_OPTIONAL, step_fields,
                 BUILD_STEPS_MAX),
    JSON_END,
};

static void put(struct buf *out, const char *key, const char *value)
{
    if (!value || !*value)
        return;
    buf_add(out, key, strlen(key) + 1);
    buf_add(out, value, strlen(value) + 1);
}

static void put_step(struct buf *out, const struct step *s)
{
    put(out, "step", s->type);
    for (size_t i = 0; i < s->args.count; i++) {
        buf_add(out, "arg", 4);
        buf_add(out, s->args.items[i], strlen(s->args.items[i]) + 1);
    }
    put(out, "files", s->files);
    put(out, "again", s->force ? "1" : NULL);
}

/* What the SDK makes of a Dockerfile's CMD: "wait 20 s, once, at the end of the build". Here the start
 * command runs in each new sandbox, and this one would keep each of them waiting for nothing. */
#define READY_OF_A_DOCKERFILE "sleep 20"

static int check_start(const struct start_args *args, struct cove_err *e)
{
    const struct step *steps = args->steps.items;
    static const char *const known[] = { "COPY", "RUN", "ENV", "WORKDIR", "USER" };

    if (args->registry && strcmp(args->registry->type, "registry") != 0)
        return cove_fail(e, COVE_UNSUPPORTED,
                         "fromImageRegistry: registries of the type '%.20s' are not known here",
                         args->registry->type);
    for (size_t i = 0; i < args->steps.count; i++) {
        size_t k = 0;

        while (k < ARRAY_SIZE(known) && strcmp(known[k], steps[i].type) != 0)
            k++;
        if (k == ARRAY_SIZE(known))
            return cove_fail(e, COVE_INVALID, "steps[%zu].type: there is no '%.16s'", i,
                             steps[i].type);
        if (strcmp(steps[i].type, "COPY") == 0 && !steps[i].files)
            return cove_fail(e, COVE_INVALID, "steps[%zu].filesHash: is missing", i);
    }
    return 0;
}

/* Is this build one of that template? */
static int check_build(struct request *req, const struct build_info *info, struct cove_err *e)
{
    const char *name;

    if (e2b_template_name(req, &name, e) < 0)
        return -1;
    if (strcmp(name, info->name) != 0)
        return cove_fail(e, COVE_NOT_FOUND, "build '%.40s' not found", info->id);
    return 0;
}

int e2b_build_ask(struct request *req, struct build_ask *args, struct build_told *ret,
                  struct buf *tail, struct cove_err *e)
{
    const char *id = request_capture(req, "build");

    text_copy(args->which.tenant, sizeof(args->which.tenant), req->tenant);
    if (!text_copy(args->which.id, sizeof(args->which.id), id))
        return cove_fail(e, COVE_NOT_FOUND, "build '%.40s' not found", id);
    if (core_build_ask(req->core, args, ret, tail, e) < 0)
        return -1;
    return check_build(req, &ret->info, e);
}

int e2b_build_start(struct request *req, struct reply *rep, struct cove_err *e)
{
    AUTO_BUF struct buf order = BUF(BUILD_ORDER_MAX);
    struct start_args args = { 0 };
    struct build_ask none = { 0 };
    struct build_told *told = arena_alloc(&req->arena, sizeof(*told));
    const struct step *steps;

    req->note.operation = "start_build";
    if (request_json(req, start_fields, &args, e) < 0 || check_start(&args, e) < 0 ||
        e2b_build_ask(req, &none, told, NULL, e) < 0)
        return -1;
    if (!args.from_template == !args.from_image)
        return cove_fail(e, COVE_INVALID, "fromTemplate, fromImage: must be one of the two");
    put(&order, "from-template",
        args.from_template ? e2b_template_word(req, args.from_template) : NULL);
    put(&order, "from-image", args.from_image);
    put(&order, "registry-user", args.registry ? args.registry->user : NULL);
    put(&order, "registry-password", args.registry ? args.registry->password : NULL);
    put(&order, "start", args.start);
    if (args.ready && strcmp(args.ready, READY_OF_A_DOCKERFILE) != 0)
        put(&order, "ready", args.ready);
    put(&order, "force", args.force ? "1" : NULL);
    steps = args.steps.items;
    for (size_t i = 0; i < args.steps.count; i++)
        put_step(&order, &steps[i]);
    if (core_build_start(req->core, req->tenant, told->info.id, &order, e) < 0)
        return -1;
    rep->status = 202;
    reply_header(rep, "Content-Length", "0"); /* without it the SDK waits for JSON */
    return 0;
}
