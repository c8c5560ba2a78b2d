/* How a build of a template goes: its state, and what it said. */
#include <string.h>

#include "fcgi/dialects/e2b_templates.h"

enum { LOGS_MAX = 1000 };

/* ------------------------------------------------------------------ its state */

static const char *const levels[] = { "debug", "info", "warn", "error" };

static int read_level(struct request *req, uint32_t *ret, struct cove_err *e)
{
    const char *given = request_query(req, "level");

    for (uint32_t i = 0; given && *given && i < ARRAY_SIZE(levels); i++) {
        if (strcmp(given, levels[i]) == 0) {
            *ret = i;
            return 0;
        }
    }
    return given && *given ? cove_fail(e, COVE_INVALID, "level: must be debug, info, warn or error")
                           : 0;
}

static int read_number(struct request *req, const char *name, uint64_t most, uint64_t *ret,
                       struct cove_err *e)
{
    const char *given = request_query(req, name);

    if (!given || !*given)
        return 0;
    if (text_parse_u64(given, ret, NULL) < 0 || *ret > most)
        return cove_fail(e, COVE_INVALID, "%s: must be 0 to %llu", name, (unsigned long long)most);
    return 0;
}

struct log_entry {
    uint64_t unix_ms;
    const char *level, *message, *step;
};

static const struct json_field entry_fields[] = {
    JSON_TIME(struct log_entry, unix_ms, "timestamp", JSON_REQUIRED),
    JSON_STR(struct log_entry, level, "level", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct log_entry, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct log_entry, step, "step", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

struct entries { /* walks a tail */
    const char *at, *end;
};

static bool next_entry(struct entries *t, struct log_entry *ret)
{
    const char *step, *message;
    struct build_entry entry;

    if (!t->at || !core_build_next_entry(&t->at, t->end, &entry, &step, &message))
        return false;
    *ret = (struct log_entry){
        .unix_ms = entry.unix_ms,
        .level = levels[entry.level < ARRAY_SIZE(levels) ? entry.level : 1],
        .message = message,
        .step = strcmp(step, "-") != 0 ? step : NULL,
    };
    return true;
}

struct reason {
    const char *message, *step;
    struct json_array entries; /* always empty: the log has them */
};

static const struct json_field reason_fields[] = {
    JSON_STR(struct reason, message, "message", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct reason, step, "step", JSON_REQUIRED, JSON_ANY),
    JSON_OBJECTS(struct reason, entries, struct log_entry, "logEntries", JSON_REQUIRED,
                 entry_fields, JSON_ANY),
    JSON_END,
};

struct status {
    const char *template, *build, *status;
    struct json_strings logs; /* always empty: texts of an older API */
    struct json_array entries;
    struct reason *reason;
};

static const struct json_field status_fields[] = {
    JSON_STR(struct status, template, "templateID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct status, build, "buildID", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct status, status, "status", JSON_REQUIRED, JSON_ANY),
    JSON_STR_ARRAY(struct status, logs, "logs", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_OBJECTS(struct status, entries, struct log_entry, "logEntries", JSON_REQUIRED,
                 entry_fields, JSON_ANY),
    JSON_OBJECT(struct status, reason, "reason", JSON_OPTIONAL, reason_fields),
    JSON_END,
};

int e2b_build_status(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct build_told *told = arena_alloc(&req->arena, sizeof(*told));
    AUTO_BUF struct buf tail = BUF(MSG_MAX_BYTES);
    uint64_t offset = 0, limit = BUILD_ENTRIES_MAX;
    struct log_entry *entries = arena_alloc(&req->arena, BUILD_ENTRIES_MAX * sizeof(*entries));
    struct build_ask args = { 0 };
    struct status status = { .entries.items = entries };
    struct reason reason;
    struct entries t;

    req->note.operation = "build_status";
    if (read_number(req, "logsOffset", INT32_MAX, &offset, e) < 0 ||
        read_number(req, "limit", BUILD_ENTRIES_MAX, &limit, e) < 0 ||
        read_level(req, &args.level, e) < 0)
        return -1;
    args.offset = offset;
    args.limit = (uint32_t)limit;
    if (e2b_build_ask(req, &args, told, &tail, e) < 0)
        return -1;
    status.template = e2b_template_id(req, told->info.name);
    status.build = told->info.id;
    status.status = e2b_build_state(told->info.state);
    t = (struct entries){ tail.data, tail.data + tail.len };
    while (status.entries.count < BUILD_ENTRIES_MAX &&
           next_entry(&t, &entries[status.entries.count]))
        status.entries.count++;
    reason = (struct reason){ .message = told->reason, .step = told->step };
    status.reason = told->info.state == BUILD_FAILED ? &reason : NULL;
    reply_json(rep, status_fields, &status);
    return 0;
}

/* ------------------------------------------------------------------ its log */

struct log_query {
    uint64_t cursor, limit; /* cursor: unix milliseconds; 0 = none */
    struct build_ask ask;
};

static int read_log_query(struct request *req, struct log_query *q, struct cove_err *e)
{
    const char *direction = request_query(req, "direction");

    q->limit = BUILD_ENTRIES_MAX;
    if (read_number(req, "cursor", INT64_MAX, &q->cursor, e) < 0 ||
        read_number(req, "limit", LOGS_MAX, &q->limit, e) < 0 ||
        read_level(req, &q->ask.level, e) < 0)
        return -1;
    if (direction && *direction && strcmp(direction, "forward") != 0 &&
        strcmp(direction, "backward") != 0)
        return cove_fail(e, COVE_INVALID, "direction: must be forward or backward");
    q->ask.backward = direction && strcmp(direction, "backward") == 0;
    q->ask.limit = BUILD_ENTRIES_MAX;
    return 0;
}

static bool is_beyond(const struct log_query *q, uint64_t unix_ms)
{
    return q->cursor && (q->ask.backward ? unix_ms > q->cursor : unix_ms < q->cursor);
}

/* Reads pages of the builder's log until there are as many entries as the client wants. */
int e2b_build_logs(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct build_told *told = arena_alloc(&req->arena, sizeof(*told));
    AUTO_BUF struct buf tail = BUF(MSG_MAX_BYTES);
    struct log_query q = { 0 };
    struct json_writer w;
    uint64_t put_count = 0;

    req->note.operation = "build_logs";
    if (read_log_query(req, &q, e) < 0)
        return -1;
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '{');
    json_open(&w, "logs", '[');
    do {
        struct log_entry entry;
        struct entries t;

        buf_clear(&tail);
        if (e2b_build_ask(req, &q.ask, told, &tail, e) < 0) {
            reply_clear(rep);
            return -1;
        }
        q.ask.offset += told->count;
        t = (struct entries){ tail.data, tail.data + tail.len };
        while (put_count < q.limit && next_entry(&t, &entry))
            if (!is_beyond(&q, entry.unix_ms)) {
                json_put_object(&w, NULL, entry_fields, &entry);
                put_count++;
            }
    } while (told->count == BUILD_ENTRIES_MAX && put_count < q.limit);
    json_close(&w, ']');
    json_close(&w, '}');
    return 0;
}
