/*
 * GET /sandboxes/ID/commands: how commands that somebody waited for ended, and why, as Server-Sent Events:
 * a `command` for each that is remembered, the oldest first, then for each that ends while the stream is open.
 */
#include <string.h>

#include "cove/dialect.h"
#include "cove/endings.h"
#include "cove/mem.h"
#include "cove/meters.h"
#include "fcgi/dialects/console.h"
#include "fcgi/stream.h"
#include "process/audit_send.h"

struct command_event {
    uint64_t started_unix_ms;
    int64_t duration_ms, exit_code;
    const char *command, *dialect, *cause, *reason;
};

static const struct json_field command_fields[] = {
    JSON_TIME(struct command_event, started_unix_ms, "started", JSON_REQUIRED),
    JSON_INT(struct command_event, duration_ms, "durationMs", JSON_REQUIRED, 0, INT64_MAX),
    JSON_STR(struct command_event, command, "command", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct command_event, dialect, "dialect", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct command_event, exit_code, "exitCode", JSON_REQUIRED, 0, 255),
    JSON_STR(struct command_event, cause, "endedBy", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct command_event, reason, "reason", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

/* The record lies in memory that every worker writes: it is brought into its ranges first. */
static void tell(struct stream *s, struct ending *one)
{
    AUTO_FREE char *clean = NULL;
    char reason[160] = "";
    size_t len = strnlen(one->command, sizeof(one->command));
    uint64_t began, ended;

    end_sanitize(&one->end);
    end_describe(&one->end, reason, sizeof(reason));
    if (audit_redact(one->command, len, &clean, NULL) < 0)
        return;
    began = one->end.started_unix_ms;
    ended = one->end.ended_unix_ms;
    stream_event(s, &(struct frame){ .name = "command" }, command_fields,
                 &(struct command_event){
                     .started_unix_ms = began,
                     .duration_ms = ended > began ? (int64_t)(ended - began) : 0,
                     .command = clean,
                     .dialect = dialect_name(one->dialect < DIALECT_COUNT ? one->dialect : 0),
                     .exit_code = end_exit_code(&one->end),
                     .cause = end_cause_name(one->end.cause),
                     .reason = reason,
                 });
}

int console_commands(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct stream stream;
    struct ending one;
    struct box_info box;
    uint64_t turn = 0, next;

    req->note.operation = "commands";
    if (console_find(req, &box, e) < 0)
        return -1;
    stream_init(&stream, req, rep, &framing_sse);
    stream_begin(&stream);
    do {
        while (req->core->meters &&
               (next = endings_next(meters_endings(req->core->meters), box.id, turn, &one))) {
            turn = next;
            tell(&stream, &one);
        }
    } while (stream_drain(&stream) == 0 && console_wait(&stream, req) &&
             console_find(req, &box, e) == 0);
    stream_end(&stream);
    return 0;
}
