/* Lists of sandboxes: filters, order, pages. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/build.h"
#include "cove/text.h"
#include "fcgi/dialects/e2b_sandboxes.h"

enum { PAGE_MAX = 100, FILTERS_MAX = 64 };

struct cursor { /* the last sandbox of the page before */
    uint64_t started;
    char id[24];
};

struct query {
    bool running, paused, ascending;
    const char *template;
    uint64_t started_after;
    size_t limit;
    struct cursor after; /* id "" : the first page */
    struct pair metadata[FILTERS_MAX];
    size_t metadata_count;
};

struct found {
    struct request *req;
    const struct query *query;
    struct box_info *boxes;
    size_t count, room;
    uint64_t running; /* how many sandboxes fit, on all pages */
};

/* ------------------------------------------------------------------ what was asked for */

static char *decode_once(struct request *req, const char *text)
{
    return http_decode(&req->arena, text, strlen(text), 0);
}

/* The value was decoded once as a part of the query. It is decoded once more as a whole, and then each name
 * and value in it. */
static int read_metadata(struct request *req, const char *given, struct query *q,
                         struct cove_err *e)
{
    char *text = decode_once(req, given), *pair;

    while (text && (pair = strsep(&text, "&"))) {
        char *name = strsep(&pair, "=");

        if (!*name)
            continue;
        if (q->metadata_count == FILTERS_MAX)
            return cove_fail(e, COVE_INVALID, "metadata: more than %d filters", FILTERS_MAX);
        name = decode_once(req, name);
        pair = decode_once(req, pair ? pair : "");
        if (!name || !pair)
            return cove_fail(e, COVE_INVALID, "metadata: a bad %% escape");
        q->metadata[q->metadata_count++] = (struct pair){ name, pair };
    }
    return 0;
}

static int read_states(struct request *req, struct query *q, struct cove_err *e)
{
    bool given = false;

    for (size_t i = 0; i < req->query_count; i++) {
        char *list, *word;

        if (strcmp(req->query[i].name, "state") != 0)
            continue;
        list = arena_strdup(&req->arena, req->query[i].value);
        while ((word = strsep(&list, ","))) {
            given = true;
            if (strcmp(word, "running") == 0)
                q->running = true;
            else if (strcmp(word, "paused") == 0)
                q->paused = true;
            else
                return cove_fail(e, COVE_INVALID, "state: must be running or paused");
        }
    }
    if (!given)
        q->running = q->paused = true;
    return 0;
}

static int read_limit(struct request *req, struct query *q, struct cove_err *e)
{
    const char *given = request_query(req, "limit");
    uint64_t limit;

    if (!given)
        return 0;
    if (text_parse_u64(given, &limit, e) < 0 || limit < 1 || limit > PAGE_MAX)
        return cove_fail(e, COVE_INVALID, "limit: must be between 1 and %d", PAGE_MAX);
    q->limit = (size_t)limit;
    return 0;
}

/* The token of the next page is TIME_ID, with _asc behind it in ascending order. */
static const char *make_token(struct arena *a, const struct box_info *last, bool ascending)
{
    return arena_printf(a, "%" PRIu64 "_%s%s", last->created_unix_ms, last->id,
                        ascending ? "_asc" : "");
}

static int read_token(struct request *req, struct query *q, struct cove_err *e)
{
    const char *given = request_query(req, "nextToken");
    char suffix[8] = "";
    int n, used = 0;

    if (!given || !*given)
        return 0;
    n = sscanf(given, "%" SCNu64 "_%20[a-z0-9]%n%7s", &q->after.started, q->after.id, &used,
               suffix);
    if (n < 2 || !text_is_id(q->after.id) || strcmp(suffix, q->ascending ? "_asc" : "") != 0 ||
        strlen(given) != (size_t)used + strlen(suffix))
        return cove_fail(e, COVE_INVALID, "Invalid next token");
    return 0;
}

static int read_order(struct request *req, struct query *q, struct cove_err *e)
{
    const char *given = request_query(req, "order");

    q->ascending = given && strcmp(given, "asc") == 0;
    if (given && !q->ascending && strcmp(given, "desc") != 0)
        return cove_fail(e, COVE_INVALID, "order: must be asc or desc");
    return 0;
}

static int read_query(struct request *req, struct query *q, struct cove_err *e)
{
    const char *metadata = request_query(req, "metadata");
    const char *after = request_query(req, "startedAfter");

    q->limit = PAGE_MAX;
    q->template = request_query(req, "template");
    if (after && text_parse_time(after, &q->started_after) < 0)
        return cove_fail(e, COVE_INVALID, "startedAfter: is not a time (RFC 3339, UTC)");
    if (read_order(req, q, e) < 0 || read_states(req, q, e) < 0 || read_limit(req, q, e) < 0 ||
        read_token(req, q, e) < 0)
        return -1;
    return metadata ? read_metadata(req, metadata, q, e) : 0;
}

/* ------------------------------------------------------------------ what fits */

static bool has_metadata(const struct query *q, const struct json_map *map)
{
    for (size_t i = 0; i < q->metadata_count; i++) {
        size_t k = 0;

        while (k < map->count && (strcmp(map->items[k].name, q->metadata[i].name) != 0 ||
                                  strcmp(map->items[k].value, q->metadata[i].value) != 0))
            k++;
        if (k == map->count)
            return false;
    }
    return true;
}

static bool fits(struct request *req, const struct query *q, const struct box_info *box)
{
    struct core_attributes attributes;

    if (!(box_is_paused(box) ? q->paused : q->running) || box->created_unix_ms < q->started_after ||
        strncmp(box->project, BUILD_PROJECT, strlen(BUILD_PROJECT)) == 0)
        return false;
    if (q->metadata_count == 0 && !q->template)
        return true;
    core_attributes_read(req->core, &req->arena, box->id, &attributes);
    if (q->template && strcmp(q->template, e2b_template_of(req, box, &attributes)) != 0)
        return false;
    return has_metadata(q, &attributes.metadata);
}

static int compare(uint64_t started, const char *id, const struct cursor *to)
{
    if (started != to->started)
        return started < to->started ? -1 : 1;
    return strcmp(id, to->id);
}

static int take(void *arg, const struct box_info *box)
{
    struct found *f = arg;
    int order = compare(box->created_unix_ms, box->id, &f->query->after);

    if (!fits(f->req, f->query, box))
        return 0;
    f->running += !box_is_paused(box);
    if (f->query->after.id[0] && (f->query->ascending ? order <= 0 : order >= 0))
        return 0;
    if (f->count == f->room) {
        size_t room = f->room ? 2 * f->room : 64;
        struct box_info *more = realloc(f->boxes, room * sizeof(*more));

        if (!more)
            abort();
        f->boxes = more;
        f->room = room;
    }
    f->boxes[f->count++] = *box;
    return 0;
}

static int oldest_first(const void *a, const void *b)
{
    const struct box_info *x = a, *y = b;

    if (x->created_unix_ms != y->created_unix_ms)
        return x->created_unix_ms < y->created_unix_ms ? -1 : 1;
    return strcmp(x->id, y->id);
}

static int newest_first(const void *a, const void *b)
{
    return oldest_first(b, a);
}

/* ------------------------------------------------------------------ the list */

static void write_page(struct request *req, struct reply *rep, const struct found *f, size_t count)
{
    struct json_writer w;

    json_writer_init(&w, &rep->body);
    json_open(&w, NULL, '[');
    for (size_t i = 0; i < count; i++) {
        struct e2b_sandbox sandbox;

        e2b_describe(req, &f->boxes[i], &sandbox);
        json_put_object(&w, NULL, e2b_listed_fields, &sandbox);
    }
    json_close(&w, ']');
}

static void list(struct request *req, struct reply *rep, const struct query *q)
{
    struct found f = { .req = req, .query = q };
    size_t count;

    core_sandbox_list(req->core, req->tenant, take, &f);
    if (f.count > 0)
        qsort(f.boxes, f.count, sizeof(*f.boxes), q->ascending ? oldest_first : newest_first);
    count = f.count < q->limit ? f.count : q->limit;
    if (count < f.count)
        reply_header(rep, "X-Next-Token",
                     make_token(&req->arena, &f.boxes[count - 1], q->ascending));
    if (q->running)
        reply_header(rep, "X-Total-Running", arena_printf(&req->arena, "%" PRIu64, f.running));
    write_page(req, rep, &f, count);
    free(f.boxes);
}

int e2b_list_v2(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct query q = { 0 };

    req->note.operation = "list";
    if (read_query(req, &q, e) < 0)
        return -1;
    list(req, rep, &q);
    return 0;
}

/* The old list has no pages: it holds all sandboxes that run. */
int e2b_list_v1(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct query q = { .running = true, .limit = SIZE_MAX };
    const char *metadata = request_query(req, "metadata");

    req->note.operation = "list";
    if (metadata && read_metadata(req, metadata, &q, e) < 0)
        return -1;
    list(req, rep, &q);
    return 0;
}
