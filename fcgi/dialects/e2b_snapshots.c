/*
 * Snapshots and forks. Both carry the files of a sandbox and no processes. A snapshot is a template of
 * its tenant's: TENANT/NAME, or an id when it has no name, with the tag `default` where none is given.
 */
#include "fcgi/core_snapshots.h"

#include <stdlib.h>
#include <string.h>

#include "cove/dialect.h"
#include "cove/text.h"
#include "fcgi/dialects/e2b_sandboxes.h"

enum {
    FORKS_MAX = 100,
    FORK_TIMEOUT_S = 15,
    LIST_LIMIT = 100,
    SNAPSHOTS_MAX = 10000, /* snapshots that are looked at for one list */
};

/* ------------------------------------------------------------------ one of them */

static const char *full_name(struct arena *a, const struct keeper_snapshot *s)
{
    return s->name[0] ? arena_printf(a, "%s/%s", s->tenant, s->name) : NULL;
}

struct told_snapshot {
    const char *id;
    struct json_strings names;
};

static const struct json_field snapshot_fields[] = {
    JSON_STR(struct told_snapshot, id, "snapshotID", JSON_REQUIRED, JSON_ANY),
    JSON_STR_ARRAY(struct told_snapshot, names, "names", JSON_REQUIRED, JSON_ANY, JSON_ANY),
    JSON_END,
};

static void put_snapshot(struct json_writer *w, struct arena *a, const struct keeper_snapshot *s)
{
    const char *name = full_name(a, s);
    struct told_snapshot told = {
        .id = arena_printf(a, "%s:%.*s", name ? name : s->id, name ? (int)strcspn(s->tags, " ") : 7,
                           name ? s->tags : "default"),
        .names = { &name, name ? 1 : 0 },
    };

    json_put_object(w, NULL, snapshot_fields, &told);
}

/* ------------------------------------------------------------------ made */

struct snapshot_args {
    const char *name;
};

static const struct json_field snapshot_args_fields[] = {
    JSON_STR(struct snapshot_args, name, "name", JSON_OPTIONAL, COVE_TEMPLATE_MAX + 64),
    JSON_END,
};

int e2b_snapshot_make(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct snapshot_args args = { 0 };
    struct keeper_snapshot made;
    struct json_writer w;
    struct box_info box;

    if (e2b_find(req, "snapshot", &box, e) < 0 ||
        (req->body.len > 0 && request_json(req, snapshot_args_fields, &args, e) < 0))
        return -1;
    if (core_snapshot_make(req->core, &box, args.name, &made, e) < 0)
        return -1;
    rep->status = 201;
    json_writer_init(&w, &rep->body);
    put_snapshot(&w, &req->arena, &made);
    return 0;
}

/* ------------------------------------------------------------------ listed */

struct listing {
    struct request *req;
    const char *sandbox, *name, *after; /* NULL = any */
    struct keeper_snapshot *items;
    size_t count;
};

static int take(void *arg, const struct keeper_snapshot *s)
{
    struct listing *l = arg;

    if ((l->sandbox && strcmp(l->sandbox, s->sandbox) != 0) ||
        (l->name && strcmp(l->name, s->name) != 0))
        return 0;
    l->items[l->count++] = *s;
    return l->count == SNAPSHOTS_MAX;
}

static int newest_first(const void *a, const void *b)
{
    const struct keeper_snapshot *x = a, *y = b;

    if (x->created_unix_ms != y->created_unix_ms)
        return x->created_unix_ms < y->created_unix_ms ? 1 : -1;
    return strcmp(y->id, x->id);
}

/* A page begins after the snapshot that the token names. */
static int find_start(const struct listing *l, size_t *ret, struct cove_err *e)
{
    *ret = 0;
    for (size_t i = 0; l->after && i < l->count; i++) {
        if (strcmp(l->items[i].id, l->after) == 0) {
            *ret = i + 1;
            return 0;
        }
    }
    return l->after ? cove_fail(e, COVE_INVALID, "Invalid next token") : 0;
}

static int read_limit(struct request *req, uint64_t *ret, struct cove_err *e)
{
    const char *text = request_query(req, "limit");

    *ret = LIST_LIMIT;
    if (!text || !*text)
        return 0;
    if (text_parse_u64(text, ret, e) < 0 || *ret < 1 || *ret > LIST_LIMIT)
        return cove_fail(e, COVE_INVALID, "limit: must be 1 to %d", LIST_LIMIT);
    return 0;
}

static const char *filter(struct request *req, const char *name)
{
    const char *value = request_query(req, name);

    return value && *value ? value : NULL;
}

static int reply_page(struct listing *l, struct reply *rep, uint64_t limit, struct cove_err *e)
{
    struct json_writer w;
    size_t at, end;

    if (l->count > 0)
        qsort(l->items, l->count, sizeof(*l->items), newest_first);
    if (find_start(l, &at, e) < 0)
        return -1;
    end = l->count - at < limit ? l->count : at + limit;
    if (end < l->count)
        reply_header(rep, "X-Next-Token", arena_strdup(&l->req->arena, l->items[end - 1].id));
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '[');
    for (; at < end; at++)
        put_snapshot(&w, &l->req->arena, &l->items[at]);
    json_close(&w, ']');
    return 0;
}

int e2b_snapshot_list(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct listing l = { .req = req, .sandbox = filter(req, "sandboxID") };
    uint64_t limit;
    int rc;

    req->note.operation = "snapshots";
    l.after = filter(req, "nextToken");
    l.name = filter(req, "name");
    if (l.name)
        l.name = core_template_word(req->tenant, e2b_template_word(req, l.name));
    if (read_limit(req, &limit, e) < 0)
        return -1;
    l.items = malloc(SNAPSHOTS_MAX * sizeof(*l.items));
    if (!l.items)
        return cove_fail(e, COVE_BUSY, "out of memory");
    rc = core_snapshot_list(req->core, req->tenant, take, &l, e);
    if (rc == 0)
        rc = reply_page(&l, rep, limit, e);
    free(l.items);
    return rc;
}

/* ------------------------------------------------------------------ forks */

struct fork_args {
    int64_t timeout_s, count;
};

static const struct json_field fork_fields[] = {
    JSON_INT(struct fork_args, timeout_s, "timeout", JSON_OPTIONAL, INT32_MIN, INT32_MAX),
    JSON_INT(struct fork_args, count, "count", JSON_OPTIONAL, 1, FORKS_MAX),
    JSON_END,
};

struct failed_fork {
    struct e2b_bad_news *error;
};

static const struct json_field failed_fields[] = {
    JSON_OBJECT(struct failed_fork, error, "error", JSON_REQUIRED, e2b_error_fields),
    JSON_END,
};

static void put_failed(struct json_writer *w, const struct cove_err *e)
{
    struct e2b_bad_news news = { .code = e2b_error_code(e), .message = e->msg };

    json_put_object(w, NULL, failed_fields, &(struct failed_fork){ &news });
}

/* Each fork succeeds or fails on its own. The reply has an entry for each fork that the client asked for. */
static int make_forks(struct request *req, const struct box_info *box, const struct core_new *new,
                      size_t count, struct json_writer *w, struct cove_err *e)
{
    size_t told = 0;

    while (told < count) {
        struct box_info made[CORE_FORKS_MAX];
        unsigned ask = count - told < CORE_FORKS_MAX ? (unsigned)(count - told) : CORE_FORKS_MAX;
        int n = core_sandbox_fork(req->core, box, new, ask, made, e);

        if (n < 0 && told == 0)
            return -1;
        for (int i = 0; i < n; i++)
            e2b_put_sandbox(w, req, &made[i], "sandbox");
        for (unsigned i = n < 0 ? 0 : (unsigned)n; i < ask; i++)
            put_failed(w, e);
        told += ask;
    }
    return 0;
}

int e2b_fork(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct fork_args args = { .timeout_s = FORK_TIMEOUT_S, .count = 1 };
    struct core_attributes attributes;
    struct core_new new = { .dialect = DIALECT_E2B, .attributes = &attributes };
    struct json_writer w;
    struct box_info box;

    if (e2b_find(req, "fork", &box, e) < 0 ||
        (req->body.len > 0 && request_json(req, fork_fields, &args, e) < 0) ||
        e2b_check_timeout(args.timeout_s, e) < 0)
        return -1;
    if (box_is_paused(&box))
        return cove_fail(e, COVE_CONFLICT, "Sandbox \"%s\" is paused", box.id);
    core_attributes_read(req->core, &req->arena, box.id, &attributes);
    new.lifetime_ms = (uint64_t)args.timeout_s * 1000;
    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '[');
    if (make_forks(req, &box, &new, (size_t)args.count, &w, e) < 0) {
        reply_clear(rep);
        return -1;
    }
    json_close(&w, ']');
    rep->status = 201;
    return 0;
}
