/*
 * Templates that the tenant builds, as they are built (Server-Sent Events):
 *
 *     GET /builds            `build` for each that there is, then for each that is new or has changed
 *     GET /builds/ID/log     `entry` for each line of its log, as lines come; then `end`, how it ended
 */
#include <string.h>

#include "cove/text.h"
#include "fcgi/core_builds.h"
#include "fcgi/dialects/console.h"
#include "fcgi/stream.h"

static const char *state_name(uint32_t state)
{
    static const char *const names[] = { "waiting", "queued", "running", "ready", "failed" };

    return state < ARRAY_SIZE(names) ? names[state] : "failed";
}

/* ------------------------------------------------------------------ all of them */

struct build_row {
    const char *id, *name, *tags, *state;
    uint64_t created_unix_ms, finished_unix_ms;
};

static const struct json_field build_fields[] = {
    JSON_STR(struct build_row, id, "id", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct build_row, name, "name", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct build_row, tags, "tags", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct build_row, state, "state", JSON_REQUIRED, JSON_ANY),
    JSON_TIME(struct build_row, created_unix_ms, "created", JSON_REQUIRED),
    JSON_TIME(struct build_row, finished_unix_ms, "finished", JSON_OPTIONAL),
    JSON_END,
};

static void tell_build(struct stream *s, const struct build_info *b)
{
    stream_event(s, &(struct frame){ .name = "build" }, build_fields,
                 &(struct build_row){
                     .id = b->id,
                     .name = b->name,
                     .tags = b->tags,
                     .state = state_name(b->state),
                     .created_unix_ms = b->created_unix_ms,
                     .finished_unix_ms = b->finished_unix_ms,
                 });
}

/* Was the client told of this build in its present state? */
static bool is_known(const struct build_listed *told, const struct build_info *b)
{
    for (uint32_t i = 0; i < told->count && i < BUILD_LIST_MAX; i++)
        if (strcmp(told->items[i].id, b->id) == 0)
            return told->items[i].state == b->state;
    return false;
}

int console_builds(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct build_listed *told = arena_alloc(&req->arena, sizeof(*told));
    struct build_listed *now = arena_alloc(&req->arena, sizeof(*now));
    struct stream stream;

    req->note.operation = "builds";
    told->count = 0;
    if (core_build_list(req->core, req->tenant, "", now, e) < 0)
        return -1;
    stream_init(&stream, req, rep, &framing_sse);
    stream_begin(&stream);
    do {
        for (uint32_t i = now->count < BUILD_LIST_MAX ? now->count : BUILD_LIST_MAX; i-- > 0;)
            if (!is_known(told, &now->items[i]))
                tell_build(&stream, &now->items[i]);
        *told = *now;
    } while (stream_drain(&stream) == 0 && console_wait(&stream, req) &&
             core_build_list(req->core, req->tenant, "", now, e) == 0);
    stream_end(&stream);
    return 0;
}

/* ------------------------------------------------------------------ the log of one */

struct entry_event {
    uint64_t unix_ms;
    const char *level, *step, *text;
};

static const struct json_field entry_fields[] = {
    JSON_TIME(struct entry_event, unix_ms, "time", JSON_REQUIRED),
    JSON_STR(struct entry_event, level, "level", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct entry_event, step, "step", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct entry_event, text, "text", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

struct end_event {
    const char *state, *step, *reason;
};

static const struct json_field end_fields[] = {
    JSON_STR(struct end_event, state, "state", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct end_event, step, "step", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct end_event, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static uint32_t tell_entries(struct stream *s, const struct buf *tail)
{
    static const char *const levels[] = { "debug", "info", "warn", "error" };
    const char *at = tail->data, *end = at ? at + tail->len : NULL, *step, *text;
    struct build_entry entry;
    uint32_t count = 0;

    for (; at && core_build_next_entry(&at, end, &entry, &step, &text); count++)
        stream_event(s, &(struct frame){ .name = "entry" }, entry_fields,
                     &(struct entry_event){
                         .unix_ms = entry.unix_ms,
                         .level = levels[entry.level < ARRAY_SIZE(levels) ? entry.level : 1],
                         .step = strcmp(step, "-") == 0 ? NULL : step,
                         .text = text,
                     });
    return count;
}

static void tell_end(struct stream *s, const struct build_told *told)
{
    bool failed = told->info.state == BUILD_FAILED;

    stream_event(s, &(struct frame){ .name = "end" }, end_fields,
                 &(struct end_event){
                     .state = state_name(told->info.state),
                     .step = failed ? told->step : NULL,
                     .reason = failed ? told->reason : NULL,
                 });
}

int console_build_log(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct build_told *told = arena_alloc(&req->arena, sizeof(*told));
    struct build_ask ask = { .limit = BUILD_ENTRIES_MAX };
    AUTO_BUF struct buf tail = BUF(MSG_MAX_BYTES);
    const char *id = request_capture(req, "build");
    struct stream stream;
    uint32_t count;

    req->note.operation = "build-log";
    text_copy(ask.which.tenant, sizeof(ask.which.tenant), req->tenant);
    if (!text_copy(ask.which.id, sizeof(ask.which.id), id))
        return cove_fail(e, COVE_NOT_FOUND, "no build '%.40s'", id);
    if (core_build_ask(req->core, &ask, told, &tail, e) < 0)
        return -1;
    stream_init(&stream, req, rep, &framing_sse);
    stream_begin(&stream);
    do {
        count = tell_entries(&stream, &tail);
        ask.offset += count;
        if (count == 0 && told->info.state >= BUILD_READY) {
            tell_end(&stream, told);
            break;
        }
        buf_clear(&tail);
    } while (stream_drain(&stream) == 0 && (count > 0 || console_wait(&stream, req)) &&
             core_build_ask(req->core, &ask, told, &tail, e) == 0);
    stream_end(&stream);
    return 0;
}
