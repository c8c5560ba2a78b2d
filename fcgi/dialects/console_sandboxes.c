/* Sandboxes as the console shows them: listed, made, paused, resumed, extended, ended. */
#include <string.h>

#include "cove/dialect.h"
#include "fcgi/caller.h"
#include "fcgi/check.h"
#include "fcgi/dialects/console.h"

const struct json_field console_box_fields[] = {
    JSON_STR(struct console_box, id, "id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct console_box, project, "project", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct console_box, template, "template", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct console_box, state, "state", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct console_box, dialect, "dialect", JSON_REQUIRED, JSON_ANY),
    JSON_TIME(struct console_box, created_unix_ms, "created", JSON_REQUIRED),
    JSON_TIME(struct console_box, ends_unix_ms, "ends", JSON_REQUIRED),
    JSON_END,
};

static const char *state_name(const struct box_info *box)
{
    switch (box->state) {
    case BOX_FROZEN:
        return "paused";
    case BOX_SAVED:
        return "saved";
    case BOX_AGEING:
        return "ageing";
    default:
        return "running";
    }
}

struct console_box console_box_of(const struct box_info *box)
{
    return (struct console_box){
        .id = box->id,
        .project = strcmp(box->project, box->id) == 0 ? NULL : box->project,
        .template = box->template,
        .state = state_name(box),
        .dialect = dialect_name(box->dialect),
        .created_unix_ms = box->created_unix_ms,
        .ends_unix_ms = core_sandbox_ends_unix_ms(box),
    };
}

int console_reply_box(struct reply *rep, const struct box_info *box)
{
    struct console_box shown = console_box_of(box);

    reply_json(rep, console_box_fields, &shown);
    return 0;
}

static int put_box(void *arg, const struct box_info *box)
{
    struct console_box shown = console_box_of(box);

    json_put_object(arg, NULL, console_box_fields, &shown);
    return 0;
}

int console_sandboxes(struct request *req, struct reply *rep, struct cove_err *e)
{
    (void)e;
    req->note.operation = "list";
    json_open(&rep->json, NULL, '{');
    json_open(&rep->json, "sandboxes", '[');
    core_sandbox_list(req->core, req->tenant, put_box, &rep->json);
    json_close(&rep->json, ']');
    json_close(&rep->json, '}');
    return 0;
}

int console_sandbox(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct box_info box;

    req->note.operation = "show";
    return console_find(req, &box, e) < 0 ? -1 : console_reply_box(rep, &box);
}

struct create_args {
    const char *template;
    int64_t seconds;
};

static const struct json_field create_fields[] = {
    JSON_STR(struct create_args, template, "template", JSON_OPTIONAL, COVE_TEMPLATE_MAX - 1),
    JSON_INT(struct create_args, seconds, "seconds", JSON_OPTIONAL, 1, TIMEOUT_MAX_S),
    JSON_END,
};

int console_create(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_attributes attributes = { 0 };
    struct create_args args = { 0 };
    struct box_info box;

    req->note.operation = "create";
    if (request_json(req, create_fields, &args, e) < 0 ||
        (args.seconds && check_extension(args.seconds, req->core->config, e) < 0))
        return -1;
    struct core_new new = {
        .tenant = req->tenant,
        .template = args.template && *args.template ? args.template : NULL,
        .dialect = DIALECT_CONSOLE,
        .lifetime_ms =
            args.seconds ? (uint64_t)args.seconds * 1000 : req->core->config->lifetime_ms,
        .attributes = &attributes,
    };
    if (core_sandbox_create(req->core, &new, &box, e) < 0)
        return -1;
    rep->status = 201;
    req->note.sandbox = arena_strdup(&req->arena, box.id);
    return console_reply_box(rep, &box);
}

int console_kill(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct box_info box;

    req->note.operation = "kill";
    if (console_find(req, &box, e) < 0 || core_sandbox_kill(req->core, &box, e) < 0)
        return -1;
    return console_reply_ok(rep);
}

static int reply_found(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct box_info box;

    return console_find(req, &box, e) < 0 ? -1 : console_reply_box(rep, &box);
}

struct pause_args {
    bool save;
};

static const struct json_field pause_fields[] = {
    JSON_BOOL(struct pause_args, save, "save", JSON_OPTIONAL),
    JSON_END,
};

int console_pause(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct pause_args args = { 0 };
    struct box_info box;

    req->note.operation = "pause";
    if (request_json(req, pause_fields, &args, e) < 0 || console_find(req, &box, e) < 0)
        return -1;
    if ((args.save ? core_sandbox_save(req->core, &box, e)
                   : core_sandbox_pause(req->core, &box, e)) < 0)
        return -1;
    return reply_found(req, rep, e);
}

int console_resume(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct box_info box;

    req->note.operation = "resume";
    if (console_find(req, &box, e) < 0 ||
        core_sandbox_resume(req->core, &box, box.lifetime_ms, e) < 0)
        return -1;
    return reply_found(req, rep, e);
}

struct extend_args {
    int64_t seconds;
};

static const struct json_field extend_fields[] = {
    JSON_INT(struct extend_args, seconds, "seconds", JSON_REQUIRED, 1, TIMEOUT_MAX_S),
    JSON_END,
};

int console_extend(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct extend_args args = { 0 };
    struct box_info box;

    req->note.operation = "extend";
    if (request_json(req, extend_fields, &args, e) < 0 ||
        check_extension(args.seconds, req->core->config, e) < 0 || console_find(req, &box, e) < 0 ||
        core_sandbox_extend(req->core, &box, (uint64_t)args.seconds * 1000, false, e) < 0)
        return -1;
    return reply_found(req, rep, e);
}
