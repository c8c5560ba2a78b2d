/* Snapshots and forks of a sandbox, and the commands that were refused in it. */
#include <poll.h>

#include "cove/dialect.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/core_snapshots.h"
#include "fcgi/dialects/console.h"
#include "fcgi/transfer.h"

enum { FIRST_BYTE_MS = 60000 };

/* ------------------------------------------------------------------ snapshots */

struct snapshot_reply {
    const char *id, *name, *sandbox, *template;
    uint64_t created_unix_ms;
    int64_t bytes;
};

static const struct json_field snapshot_fields[] = {
    JSON_STR(struct snapshot_reply, id, "id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct snapshot_reply, name, "name", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct snapshot_reply, sandbox, "sandbox", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct snapshot_reply, template, "template", JSON_REQUIRED, JSON_ANY),
    JSON_TIME(struct snapshot_reply, created_unix_ms, "created", JSON_REQUIRED),
    JSON_INT(struct snapshot_reply, bytes, "bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

static struct snapshot_reply shown(const struct keeper_snapshot *s)
{
    return (struct snapshot_reply){
        .id = s->id,
        .name = s->name[0] ? s->name : NULL,
        .sandbox = s->sandbox,
        .template = s->template,
        .created_unix_ms = s->created_unix_ms,
        .bytes = (int64_t)s->bytes,
    };
}

static int put_snapshot(void *arg, const struct keeper_snapshot *s)
{
    struct snapshot_reply one = shown(s);

    json_put_object(arg, NULL, snapshot_fields, &one);
    return 0;
}

int console_snapshots(struct request *req, struct reply *rep, struct cove_err *e)
{
    int rc;

    req->note.operation = "snapshots";
    json_open(&rep->json, NULL, '{');
    json_open(&rep->json, "snapshots", '[');
    rc = core_snapshot_list(req->core, req->tenant, put_snapshot, &rep->json, e);
    json_close(&rep->json, ']');
    json_close(&rep->json, '}');
    return rc;
}

struct snapshot_args {
    const char *name;
};

static const struct json_field snapshot_args_fields[] = {
    JSON_STR(struct snapshot_args, name, "name", JSON_OPTIONAL, COVE_TEMPLATE_MAX - 1),
    JSON_END,
};

int console_snapshot_make(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct snapshot_args args = { 0 };
    struct keeper_snapshot made;
    struct snapshot_reply one;
    struct box_info box;

    req->note.operation = "snapshot";
    if (request_json(req, snapshot_args_fields, &args, e) < 0 || console_find(req, &box, e) < 0 ||
        core_snapshot_make(req->core, &box, args.name, &made, e) < 0)
        return -1;
    rep->status = 201;
    one = shown(&made);
    reply_json(rep, snapshot_fields, &one);
    return 0;
}

int console_snapshot_remove(struct request *req, struct reply *rep, struct cove_err *e)
{
    req->note.operation = "snapshot-remove";
    if (core_snapshot_remove(req->core, req->tenant, request_capture(req, "snapshot"), e) < 0)
        return -1;
    return console_reply_ok(rep);
}

/* ------------------------------------------------------------------ saved sandboxes */

/* An archive in a bucket comes through a pipe. The reply's head is not sent before its first bytes have come. */
static int wait_for_archive(int fd, struct cove_err *e)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    if (run_poll(&p, 1, FIRST_BYTE_MS) > 0 && p.revents & POLLIN)
        return 0;
    return cove_fail(e, COVE_BUSY,
                     "the archive could not be read from the bucket: try again; the server's log "
                     "says why");
}

int console_saved(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct keeper_which which = { 0 };
    struct keeper_archive archive;
    struct box_info box;
    AUTO_CLOSE int fd = -1;

    req->note.operation = "saved";
    if (console_find(req, &box, e) < 0)
        return -1;
    if (box.state != BOX_SAVED)
        return cove_fail(e, COVE_CONFLICT, "the sandbox %s is not saved", box.id);
    text_copy(which.tenant, sizeof(which.tenant), box.tenant);
    text_copy(which.id, sizeof(which.id), box.id);
    if (keeper_saved_archive(&req->core->keeper, &which, &archive, &fd, e) < 0 ||
        wait_for_archive(fd, e) < 0)
        return -1;
    reply_header(rep, "Content-Type", "application/octet-stream");
    reply_header(rep, "Content-Disposition",
                 arena_printf(&req->arena, "attachment; filename=\"%s.tar.zst%s\"", box.id,
                              archive.encrypted ? ".age" : ""));
    reply_header(rep, "X-Content-Type-Options", "nosniff");
    transfer_send(req, rep, fd, archive.bytes);
    return 0;
}

/* ------------------------------------------------------------------ forks */

int console_fork(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_attributes attributes;
    struct core_new new = {
        .tenant = req->tenant,
        .dialect = DIALECT_CONSOLE,
        .lifetime_ms = req->core->config->lifetime_ms,
        .attributes = &attributes,
    };
    struct box_info box, made;

    req->note.operation = "fork";
    if (console_find(req, &box, e) < 0)
        return -1;
    if (box_is_paused(&box))
        return cove_fail(e, COVE_CONFLICT, "the sandbox %s is paused: resume it first", box.id);
    core_attributes_read(req->core, &req->arena, box.id, &attributes);
    if (core_sandbox_fork(req->core, &box, &new, 1, &made, e) < 1)
        return -1;
    rep->status = 201;
    return console_reply_box(rep, &made);
}

/* ------------------------------------------------------------------ refused commands */

struct refusal {
    uint64_t unix_ms;
    const char *event, *rule, *form, *command;
};

static const struct json_field refusal_fields[] = {
    JSON_TIME(struct refusal, unix_ms, "time", JSON_REQUIRED),
    JSON_STR(struct refusal, event, "event", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct refusal, rule, "rule", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct refusal, form, "form", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct refusal, command, "command", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static void put_refusal(struct json_writer *w, const struct keeper_refusal *r)
{
    struct refusal one = {
        .unix_ms = r->unix_ms,
        .event = r->event,
        .rule = r->rule[0] ? r->rule : NULL,
        .form = r->form[0] ? r->form : NULL,
        .command = r->command,
    };

    json_put_object(w, NULL, refusal_fields, &one);
}

int console_refusals(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct keeper_which which = { 0 };
    struct keeper_refusal_list list;
    struct box_info box;

    req->note.operation = "refusals";
    if (console_find(req, &box, e) < 0)
        return -1;
    text_copy(which.tenant, sizeof(which.tenant), box.tenant);
    text_copy(which.id, sizeof(which.id), box.id);
    if (keeper_refusals(&req->core->keeper, &which, &list, e) < 0)
        return -1;
    json_open(&rep->json, NULL, '{');
    json_open(&rep->json, "refusals", '[');
    for (uint32_t i = 0; i < list.count; i++)
        put_refusal(&rep->json, &list.items[i]);
    json_close(&rep->json, ']');
    json_close(&rep->json, '}');
    return 0;
}
