/*
 * GET /events: what changes among the tenant's sandboxes, as Server-Sent Events, so that no page has to
 * ask again and again.
 *
 *     event: sandbox   data: a sandbox that is new or has changed (the first ones: all there are)
 *     event: gone      data: {"id"} of one that has ended
 *     event: ready     data: {"count"}: from here on it is changes
 *     event: usage     data: what one sandbox uses, as often as the keeper takes a sample of it
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cove/samples.h"
#include "cove/text.h"
#include "fcgi/caller.h"
#include "fcgi/console_session.h"
#include "fcgi/dialects/console.h"
#include "fcgi/stream.h"

enum { LOOK_MS = 1000, USAGE_LOOKS = SAMPLE_EVERY_MS / LOOK_MS, HISTORY = 24 };

struct seen { /* a sandbox that was told */
    char id[24];
    uint64_t hash;            /* of what was told */
    bool there;               /* seen in the current round */
    uint64_t sampled_unix_ms; /* the latest sample that was told */
};

struct events {
    struct stream stream;
    struct seen *seen;
    size_t count, room;
    size_t at; /* place of the next entry to compare: lists come in the same order each time */
};

static uint64_t hash_of(const struct console_box *b)
{
    uint64_t hash = text_hash(TEXT_HASH_START, b->state);

    return hash ^ b->ends_unix_ms * 31 ^ b->created_unix_ms;
}

static struct seen *find(struct events *ev, const char *id)
{
    for (size_t i = 0; i < ev->count; i++) {
        size_t at = (ev->at + i) % ev->count;

        if (strcmp(ev->seen[at].id, id) == 0) {
            ev->at = at + 1;
            return &ev->seen[at];
        }
    }
    return NULL;
}

static struct seen *add(struct events *ev, const char *id)
{
    if (ev->count == ev->room) {
        size_t room = ev->room ? 2 * ev->room : 64;
        struct seen *more = reallocarray(ev->seen, room, sizeof(*more));

        if (!more)
            return NULL;
        ev->seen = more;
        ev->room = room;
    }
    ev->seen[ev->count] = (struct seen){ 0 };
    text_copy(ev->seen[ev->count].id, sizeof(ev->seen->id), id);
    return &ev->seen[ev->count++];
}

static int look_at(void *arg, const struct box_info *box)
{
    struct console_box shown = console_box_of(box);
    struct events *ev = arg;
    struct seen *s = find(ev, box->id);
    bool is_new = !s;

    if (!s && !(s = add(ev, box->id)))
        return 1;
    s->there = true;
    if (!is_new && s->hash == hash_of(&shown))
        return 0;
    s->hash = hash_of(&shown);
    stream_event(&ev->stream, &(struct frame){ .name = "sandbox" }, console_box_fields, &shown);
    return stream_drain(&ev->stream) != 0;
}

struct gone {
    const char *id;
};

static const struct json_field gone_fields[] = {
    JSON_STR(struct gone, id, "id", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static void tell_gone(struct events *ev)
{
    for (size_t i = 0; i < ev->count;) {
        if (ev->seen[i].there) {
            ev->seen[i++].there = false;
            continue;
        }
        stream_event(&ev->stream, &(struct frame){ .name = "gone" }, gone_fields,
                     &(struct gone){ ev->seen[i].id });
        ev->seen[i] = ev->seen[--ev->count];
    }
}

static void look(struct events *ev, struct request *req)
{
    core_sandbox_list(req->core, req->tenant, look_at, ev);
    tell_gone(ev);
}

/* ------------------------------------------------------------------ what they use */

struct usage_look {
    struct events *ev;
    struct request *req;
    struct sample_ring *ring;
};

/* Writes the percentages that are new, the newest last; for a sandbox that was not told before, the last HISTORY of
 * them. */
static void put_cpu(struct json_writer *w, const struct sample_ring *ring, uint32_t count,
                    uint64_t since)
{
    uint32_t first = since == 0 && count > HISTORY ? count - HISTORY : 0;

    json_open(w, "cpu", '[');
    for (uint32_t i = first; i < count; i++)
        if (ring->samples[i].unix_ms > since)
            json_put_double(w, NULL, (double)ring->samples[i].cpu_permille / 10);
    json_close(w, ']');
}

struct usage { /* beside "cpu", the percentages */
    const char *id;
    int64_t memory_bytes, memory_limit, disk_bytes, disk_limit;
};

static const struct json_field usage_fields[] = {
    JSON_STR(struct usage, id, "id", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct usage, memory_bytes, "memoryBytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct usage, memory_limit, "memoryLimit", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct usage, disk_bytes, "diskBytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct usage, disk_limit, "diskLimit", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

static void put_usage(struct usage_look *u, const struct box_info *box, uint64_t since)
{
    uint32_t count = u->ring->count < SAMPLES_MAX ? u->ring->count : SAMPLES_MAX;
    const struct sample *last;
    struct json_writer w;
    struct limits limits;
    struct buf *out;

    if (count == 0)
        return;
    last = &u->ring->samples[count - 1];
    out = stream_open_frame(&u->ev->stream, &(struct frame){ .name = "usage" });
    if (!out)
        return;
    caller_limits(u->req->core, u->req->tenant, box->template, &limits);
    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_put_members(&w, usage_fields,
                     &(struct usage){ .id = box->id,
                                      .memory_bytes = (int64_t)last->memory_bytes,
                                      .memory_limit = (int64_t)limits.memory_max_bytes,
                                      .disk_bytes = (int64_t)last->disk_bytes,
                                      .disk_limit = (int64_t)limits.disk_max_bytes });
    put_cpu(&w, u->ring, count, since);
    json_close(&w, '}');
    stream_close_frame(&u->ev->stream);
}

static int look_at_usage(void *arg, const struct box_info *box)
{
    struct usage_look *u = arg;
    struct seen *s = find(u->ev, box->id);
    uint64_t newest;

    if (!s || core_sandbox_samples(u->req->core, box, u->ring, NULL) < 0 || u->ring->count == 0 ||
        u->ring->count > SAMPLES_MAX)
        return 0;
    newest = u->ring->samples[u->ring->count - 1].unix_ms;
    if (newest <= s->sampled_unix_ms)
        return 0;
    put_usage(u, box, s->sampled_unix_ms);
    s->sampled_unix_ms = newest;
    return stream_drain(&u->ev->stream) != 0;
}

static void tell_usage(struct events *ev, struct request *req, struct sample_ring *ring)
{
    core_sandbox_list(req->core, req->tenant, look_at_usage, &(struct usage_look){ ev, req, ring });
}

/* ------------------------------------------------------------------ the stream */

struct ready {
    int64_t count;
};

static const struct json_field ready_fields[] = {
    JSON_INT(struct ready, count, "count", JSON_REQUIRED, 0, INT64_MAX),
    JSON_END,
};

bool console_stands(const struct request *req)
{
    return caller_stands(req->core) && console_session_goes_on(req);
}

bool console_wait(struct stream *s, struct request *req)
{
    struct pollfd p = { .fd = req->client_fd, .events = POLLRDHUP };
    const atomic_bool *leaving = req->core->leaving;

    if (run_poll(&p, req->client_fd >= 0, LOOK_MS) > 0 || (leaving && *leaving))
        return false;
    return console_stands(req) && stream_tick(s) == 0;
}

int console_events(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct sample_ring *ring = arena_alloc(&req->arena, sizeof(*ring));
    struct events ev = { 0 };
    unsigned looks = 0;

    (void)e;
    req->note.operation = "events";
    stream_init(&ev.stream, req, rep, &framing_sse);
    stream_begin(&ev.stream);
    look(&ev, req);
    stream_event(&ev.stream, &(struct frame){ .name = "ready" }, ready_fields,
                 &(struct ready){ (int64_t)ev.count });
    do {
        if (looks > 0)
            look(&ev, req);
        if (looks++ % USAGE_LOOKS == 0)
            tell_usage(&ev, req, ring);
    } while (stream_drain(&ev.stream) == 0 && console_wait(&ev.stream, req));
    stream_end(&ev.stream);
    free(ev.seen);
    return 0;
}
