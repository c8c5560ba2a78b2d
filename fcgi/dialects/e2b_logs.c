/*
 * Logs of a sandbox: what its processes were, what they wrote and how they ended, from the rings that
 * its init keeps. The old version of the call has lines that are JSON texts themselves, as the CLI
 * wants them; the new one has entries. What a ring has overwritten is not told.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/ring.h"
#include "cove/text.h"
#include "fcgi/dialects/e2b_sandboxes.h"

enum {
    ENTRIES_MAX = 20000, /* entries that are looked at; those of the oldest processes come first */
    BYTES_MAX = 4 * 1024 * 1024,
    LINE_MAX_BYTES = 8 * 1024,
    LIMIT_DEFAULT = 1000,
    LIMIT_MAX = 1000,
    PROCS_MAX = 2048,
};

enum level { LEVEL_DEBUG, LEVEL_INFO, LEVEL_WARN, LEVEL_ERROR };
static const char *const level_names[] = { "debug", "info", "warn", "error" };

struct entry {
    uint64_t unix_ms;
    size_t order; /* the entry's place among those of its millisecond */
    enum level level;
    const char *message;
    uint32_t pid;
};

struct gather {
    struct arena *arena;
    struct entry *entries;
    size_t count, bytes;
    uint64_t from_ms, to_ms;
    uint32_t pid; /* the process whose records are being read */
};

static bool is_full(const struct gather *g)
{
    return g->count == ENTRIES_MAX || g->bytes > BYTES_MAX;
}

static void add(struct gather *g, uint64_t unix_ms, enum level level, const char *text, size_t len)
{
    if (unix_ms < g->from_ms || unix_ms > g->to_ms || is_full(g))
        return;
    g->entries[g->count] = (struct entry){
        .unix_ms = unix_ms,
        .order = g->count,
        .level = level,
        .message = arena_strndup(g->arena, text, len < LINE_MAX_BYTES ? len : LINE_MAX_BYTES),
        .pid = g->pid,
    };
    g->count++;
    g->bytes += len;
}

/* ------------------------------------------------------------------ one process */

/* A line that is spread over several records becomes several entries, each with the time of its record. */
static void add_record(struct gather *g, const struct ring_rec *rec, const char *bytes)
{
    size_t at = 0;

    while (at < rec->len) {
        const char *end = memchr(bytes + at, '\n', rec->len - at);
        size_t len = end ? (size_t)(end - bytes) - at : rec->len - at;

        if (len > 0)
            add(g, rec->unix_ns / 1000000, rec->stream == RING_STDERR ? LEVEL_ERROR : LEVEL_INFO,
                bytes + at, len);
        at += len + (end != NULL);
    }
}

static int add_output(struct core_session *s, uint32_t proc, struct gather *g, struct cove_err *e)
{
    AUTO_FREE char *bytes = malloc(RING_REC_MAX);
    struct box_log_opened opened;
    AUTO_CLOSE int fd = -1;
    struct ring_reader r;
    struct ring_rec rec;
    uint64_t gap;

    if (!bytes)
        return cove_fail(e, COVE_BUSY, "out of memory");
    if (box_log(&s->conn, proc, NULL, &opened, &fd, e) < 0)
        /* cppcheck-suppress memleak ; bytes frees itself */
        return e->code == COVE_NOT_FOUND ? 0 : -1;
    if (ring_reader_init(&r, fd, 0, e) < 0)
        return -1; /* cppcheck-suppress memleak ; bytes frees itself */
    while (!is_full(g) && ring_read(&r, &rec, bytes, &gap, NULL) > 0)
        add_record(g, &rec, bytes);
    return 0;
}

struct listed {
    struct box_proc proc;
    const char *command;
};

struct procs {
    struct arena *arena;
    struct listed *items;
    size_t count;
};

static int take_proc(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    struct procs *l = arg;

    (void)label;
    if (!(p->flags & SPAWN_LOG))
        return 0;
    l->items[l->count++] = (struct listed){ *p, arena_strdup(l->arena, command) };
    return l->count == PROCS_MAX;
}

static void add_end(struct gather *g, const struct cove_end *end)
{
    char why[160], text[240];

    if (end->cause == END_OWN && end->signal)
        snprintf(why, sizeof(why), "signal %d", (int)end->signal);
    else if (end->cause == END_OWN)
        snprintf(why, sizeof(why), "exit status %d", (int)end->exit_code);
    else
        end_describe(end, why, sizeof(why));
    snprintf(text, sizeof(text), "process ended: %s", why);
    add(g, end->ended_unix_ms, end->signal || end->exit_code ? LEVEL_WARN : LEVEL_INFO, text,
        strlen(text));
}

static int add_process(struct core_session *s, const struct listed *l, struct gather *g,
                       struct cove_err *e)
{
    const char *text = arena_printf(g->arena, "process started: %s", l->command);

    g->pid = l->proc.pid;
    add(g, l->proc.end.started_unix_ms, LEVEL_INFO, text, strlen(text));
    if (add_output(s, l->proc.proc, g, e) < 0)
        return -1;
    if (!l->proc.running)
        add_end(g, &l->proc.end);
    return 0;
}

/* ------------------------------------------------------------------ all of them */

static int by_time(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->unix_ms != y->unix_ms)
        return x->unix_ms < y->unix_ms ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static int gather_from(struct core_session *s, struct gather *g, struct cove_err *e)
{
    struct procs l = { .arena = g->arena };

    l.items = arena_alloc(g->arena, PROCS_MAX * sizeof(*l.items));
    if (box_procs(&s->conn, take_proc, &l, e) < 0)
        return -1;
    for (size_t i = 0; i < l.count && !is_full(g); i++)
        if (add_process(s, &l.items[i], g, e) < 0)
            return -1;
    if (g->count > 0)
        qsort(g->entries, g->count, sizeof(*g->entries), by_time);
    return 0;
}

/* A paused sandbox answers nothing, and has nothing new to tell. */
static int gather(struct request *req, const struct box_info *box, struct gather *g,
                  struct cove_err *e)
{
    struct core_session s;
    int rc;

    g->arena = &req->arena;
    g->entries = arena_alloc(&req->arena, ENTRIES_MAX * sizeof(*g->entries));
    if (box_is_paused(box))
        return 0;
    if (core_session_open_id(req->core, req->tenant, box->id, &s, e) < 0)
        return -1;
    rc = gather_from(&s, g, e);
    core_session_close(&s);
    return rc;
}

/* ------------------------------------------------------------------ telling */

struct origin_reply { /* where an entry comes from */
    const char *logger, *pid, *sandbox;
};

struct entry_reply {
    uint64_t unix_ms;
    const char *level, *message, *line;
    struct origin_reply *origin;
};

static const struct json_field origin_fields[] = {
    JSON_STR(struct origin_reply, logger, "logger", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct origin_reply, pid, "pid", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct origin_reply, sandbox, "sandboxID", JSON_ALWAYS, JSON_ANY), JSON_END
};

static const struct json_field entry_fields[] = {
    JSON_TIME(struct entry_reply, unix_ms, "timestamp", JSON_ALWAYS),
    JSON_STR(struct entry_reply, level, "level", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct entry_reply, message, "message", JSON_ALWAYS, JSON_ANY),
    JSON_OBJECT(struct entry_reply, origin, "fields", JSON_ALWAYS, origin_fields), JSON_END
};

static void put_entry(struct json_writer *w, const struct entry *at, const char *id)
{
    char pid[16];
    struct origin_reply origin = { .logger = "process", .pid = pid, .sandbox = id };
    struct entry_reply reply = { .unix_ms = at->unix_ms,
                                 .level = level_names[at->level],
                                 .message = at->message,
                                 .origin = &origin };

    snprintf(pid, sizeof(pid), "%u", at->pid);
    json_put_object(w, NULL, entry_fields, &reply);
}

struct text_reply { /* what stands in a line of the old version */
    const char *level, *logger, *message, *sandbox;
    int64_t pid;
};

static const struct json_field text_fields[] = {
    JSON_STR(struct text_reply, level, "level", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct text_reply, logger, "logger", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct text_reply, message, "message", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct text_reply, pid, "pid", JSON_ALWAYS, 0, INT64_MAX),
    JSON_STR(struct text_reply, sandbox, "sandboxID", JSON_ALWAYS, JSON_ANY),
    JSON_END
};

static const struct json_field line_fields[] = {
    JSON_TIME(struct entry_reply, unix_ms, "timestamp", JSON_ALWAYS),
    JSON_STR(struct entry_reply, line, "line", JSON_ALWAYS, JSON_ANY), JSON_END
};

/* A line of the old version: a JSON object as text. */
static void put_line(struct json_writer *w, const struct entry *at, const char *id)
{
    AUTO_BUF struct buf text = BUF(8 * LINE_MAX_BYTES);
    struct text_reply told = { .level = level_names[at->level],
                               .logger = "process",
                               .message = at->message,
                               .pid = at->pid,
                               .sandbox = id };
    struct entry_reply reply = { .unix_ms = at->unix_ms };
    struct json_writer line;

    json_writer_init(&line, &text);
    json_put_object(&line, NULL, text_fields, &told);
    reply.line = text.data;
    json_put_object(w, NULL, line_fields, &reply);
}

typedef void put_fn(struct json_writer *w, const struct entry *at, const char *id);

static void put_all(struct json_writer *w, const char *name, put_fn *put, const struct gather *g,
                    const size_t *chosen, size_t count, const char *id)
{
    json_open(w, name, '[');
    for (size_t i = 0; i < count; i++)
        put(w, &g->entries[chosen[i]], id);
    json_close(w, ']');
}

/* ------------------------------------------------------------------ questions */

struct question {
    uint64_t cursor, limit;
    bool cursor_given, backward;
    size_t level; /* entries of this level and of worse ones are wanted */
    const char *search;
};

static int read_number(struct request *req, const char *name, uint64_t most, uint64_t *ret,
                       bool *ret_given, struct cove_err *e)
{
    const char *text = request_query(req, name);

    *ret_given = text && *text;
    if (!*ret_given)
        return 0;
    if (text_parse_u64(text, ret, e) < 0)
        return cove_context(e, "%s", name);
    return *ret <= most
               ? 0
               : cove_fail(e, COVE_INVALID, "%s: above %llu", name, (unsigned long long)most);
}

static int read_level(struct request *req, size_t *ret, struct cove_err *e)
{
    const char *text = request_query(req, "level");

    for (size_t i = 0; text && *text && i < ARRAY_SIZE(level_names); i++) {
        *ret = i;
        if (strcmp(text, level_names[i]) == 0)
            return 0;
    }
    *ret = 0;
    return text && *text ? cove_fail(e, COVE_INVALID,
                                     "level: '%.20s' is not one of debug, info, warn, error", text)
                         : 0;
}

/* Finds the entries that the reply holds, in their order there. */
static size_t choose(const struct gather *g, const struct question *q, size_t *chosen)
{
    size_t count = 0;

    for (size_t n = 0; n < g->count && count < q->limit; n++) {
        size_t i = q->backward ? g->count - 1 - n : n;
        const struct entry *at = &g->entries[i];

        if ((size_t)at->level >= q->level && (!q->search || strstr(at->message, q->search)))
            chosen[count++] = i;
    }
    return count;
}

int e2b_logs_v1(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct question q = { .limit = LIMIT_DEFAULT };
    struct gather g = { .to_ms = UINT64_MAX };
    size_t *chosen, count;
    struct json_writer w;
    struct box_info box;
    bool ignored;

    if (e2b_find(req, "logs", &box, e) < 0 ||
        read_number(req, "start", UINT64_MAX, &g.from_ms, &ignored, e) < 0 ||
        read_number(req, "limit", LIMIT_MAX, &q.limit, &ignored, e) < 0 ||
        gather(req, &box, &g, e) < 0)
        return -1;
    chosen = arena_alloc(&req->arena, (g.count + 1) * sizeof(*chosen));
    count = choose(&g, &q, chosen);
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '{');
    put_all(&w, "logs", put_line, &g, chosen, count, box.id);
    put_all(&w, "logEntries", put_entry, &g, chosen, count, box.id);
    json_close(&w, '}');
    return 0;
}

static int read_question(struct request *req, struct question *q, struct cove_err *e)
{
    const char *direction = request_query(req, "direction");
    bool ignored;

    q->search = request_query(req, "search");
    q->backward = !direction || strcmp(direction, "backward") == 0;
    if (direction && !q->backward && strcmp(direction, "forward") != 0)
        return cove_fail(e, COVE_INVALID, "direction: must be forward or backward");
    if (q->search && strlen(q->search) > 256)
        return cove_fail(e, COVE_INVALID, "search: longer than 256 bytes");
    if (read_number(req, "cursor", UINT64_MAX, &q->cursor, &q->cursor_given, e) < 0 ||
        read_number(req, "limit", LIMIT_MAX, &q->limit, &ignored, e) < 0)
        return -1;
    return read_level(req, &q->level, e);
}

int e2b_logs_v2(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct question q = { .limit = LIMIT_DEFAULT };
    struct gather g = { .to_ms = UINT64_MAX };
    size_t *chosen, count;
    struct json_writer w;
    struct box_info box;

    if (e2b_find(req, "logs", &box, e) < 0 || read_question(req, &q, e) < 0)
        return -1;
    if (q.cursor_given && q.backward)
        g.to_ms = q.cursor;
    else if (q.cursor_given)
        g.from_ms = q.cursor;
    if (gather(req, &box, &g, e) < 0)
        return -1;
    chosen = arena_alloc(&req->arena, (g.count + 1) * sizeof(*chosen));
    count = choose(&g, &q, chosen);
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '{');
    put_all(&w, "logs", put_entry, &g, chosen, count, box.id);
    json_close(&w, '}');
    return 0;
}
