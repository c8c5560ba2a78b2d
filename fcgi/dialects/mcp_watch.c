/*
 * Changes of files, told as they happen: subscriptions/listen, and in the older revisions the stream of a
 * session (GET), which tells of the files that resources/subscribe named.
 *
 * The directory of a file is watched and not the file itself: editors, and write_file too, put a new file
 * in the place of the old one. The watch lives in the sandbox and is read here; what it says is bytes from
 * inside the sandbox.
 */
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/notes.h"
#include "cove/text.h"
#include "fcgi/dialects/mcp.h"

enum {
    WATCHES_MAX = 32,
    EVENTS_BYTES = 16 * 1024,
    LOOK_MS = 250,        /* how often the session's notes are looked at */
    NOTE_MS = 120 * 1000, /* how long a subscription lasts that no stream of its session has seen */
    SETTLE_MS = 50,       /* what changes within this time is told once */
    HEARTBEAT_MS = 15000,
    WATCHED = IN_CLOSE_WRITE | IN_MODIFY | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
              IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF,
};

/* The texts are not in the request's arena: subscriptions come and go as long as the stream lives. */
struct watched {
    char *uri;
    char *name; /* in its directory; NULL: the directory itself is meant */
    int32_t wd;
    bool changed;
    bool wanted; /* seen in the last round of notes */
};

struct watcher {
    struct mcp_call *call;
    bool open; /* the conversation with the sandbox */
    struct core_session session;
    int inotify;
    struct watched items[WATCHES_MAX];
    size_t count;
    uint64_t turn;
};

/* ------------------------------------------------------------------ what is watched */

static int open_once(struct watcher *w, struct cove_err *e)
{
    if (w->open)
        return 0;
    if (mcp_open(w->call, &w->session, e) < 0)
        return -1;
    w->open = true;
    return 0;
}

static bool is_directory(struct watcher *w, const char *path)
{
    struct box_stat st;
    struct cove_err e;

    return box_file_stat(&w->session.conn, core_default_user(&w->session), path, 0, &st, &e) == 0 &&
           S_ISDIR(st.mode);
}

static void watched_done(struct watched *item)
{
    free(item->uri);
    free(item->name);
}

/* The path is as long as `a` lives. */
static int watch_path(struct watcher *w, struct arena *a, const char *path, struct watched *item,
                      struct cove_err *e)
{
    if (!is_directory(w, path)) {
        const char *slash = strrchr(path, '/');

        item->name = strdup(slash + 1);
        path = slash == path ? "/" : arena_strndup(a, path, (size_t)(slash - path));
    }
    return box_watch(&w->session.conn, core_default_user(&w->session), path, WATCHED, w->inotify,
                     &item->wd, &w->inotify, e);
}

static int add_watch(struct watcher *w, const char *uri, struct cove_err *e)
{
    struct watched item = { .wanted = true };
    struct arena paths = { 0 };
    const char *path;
    int rc;

    if (w->count == WATCHES_MAX)
        return cove_fail(e, COVE_LIMIT, "more than %d files", WATCHES_MAX);
    path = mcp_uri_path(&paths, uri);
    if (!path)
        rc = cove_fail(e, COVE_INVALID, "'%.100s' is not a file:///PATH", uri);
    else
        rc = open_once(w, e) < 0 ? -1 : watch_path(w, &paths, path, &item, e);
    arena_done(&paths);
    item.uri = rc == 0 ? strdup(uri) : NULL;
    if (!item.uri) {
        watched_done(&item);
        return rc < 0 ? -1 : core_fail_memory(e);
    }
    w->items[w->count++] = item;
    return 0;
}

/* ------------------------------------------------------------------ what has changed */

static void mark(struct watcher *w, int32_t wd, const char *name)
{
    for (size_t i = 0; i < w->count; i++)
        if (w->items[i].wd == wd && (!w->items[i].name || strcmp(w->items[i].name, name) == 0))
            w->items[i].changed = true;
}

static void mark_all(struct watcher *w)
{
    for (size_t i = 0; i < w->count; i++)
        w->items[i].changed = true;
}

/* The kernel writes these, but the descriptor came out of the sandbox: every length is checked. */
static void read_events(struct watcher *w)
{
    char bytes[EVENTS_BYTES];
    ssize_t n = read(w->inotify, bytes, sizeof(bytes));
    struct inotify_event event;

    for (size_t at = 0; n > 0 && (size_t)n - at >= sizeof(event); at += sizeof(event) + event.len) {
        char name[NAME_MAX + 1] = "";

        memcpy(&event, bytes + at, sizeof(event));
        if (event.len > (size_t)n - at - sizeof(event))
            return;
        snprintf(name, sizeof(name), "%.*s", (int)event.len, bytes + at + sizeof(event));
        if (event.mask & IN_Q_OVERFLOW)
            mark_all(w);
        else
            mark(w, event.wd, name);
    }
}

struct updated {
    const char *uri;
};

static const struct json_field updated_fields[] = {
    JSON_STR(struct updated, uri, "uri", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static void tell_changes(struct watcher *w)
{
    for (size_t i = 0; i < w->count; i++) {
        if (!w->items[i].changed)
            continue;
        w->items[i].changed = false;
        mcp_notification_begin(w->call, "notifications/resources/updated");
        json_put_members(w->call->w, updated_fields, &(struct updated){ w->items[i].uri });
        mcp_notification_end(w->call);
    }
}

/* ------------------------------------------------------------------ waiting */

bool mcp_is_leaving(const struct request *req)
{
    const atomic_bool *leaving = req->core->leaving;

    return leaving && atomic_load(leaving);
}

/* A conversation that says something unasked for, or ends, is the end of the sandbox. */
static bool box_is_gone(struct watcher *w)
{
    struct box_event event;
    struct cove_err e;

    return box_next_event(&w->session.conn, 0, &event, &e) < 0;
}

/* 1: nobody listens any more, or there is nothing more to tell. */
static int wait_once(struct watcher *w, int timeout_ms)
{
    struct stream *stream = &w->call->stream;
    short behind = stream_backlog(stream) == STREAM_CLEAR ? 0 : POLLOUT;
    struct pollfd fds[] = {
        { .fd = w->inotify, .events = POLLIN },
        { .fd = w->open ? w->session.conn.sock : -1, .events = POLLIN },
        { .fd = stream->req->client_fd, .events = (short)(POLLRDHUP | behind) },
    };
    int n = run_poll(fds, ARRAY_SIZE(fds), timeout_ms);

    if (mcp_is_leaving(w->call->req))
        return 1;
    if (n <= 0)
        return stream_tick(stream) != 0;
    if (fds[2].revents & (POLLRDHUP | POLLHUP | POLLERR))
        return stream_lost(stream), 1;
    if ((fds[2].revents & POLLOUT) && stream_send(stream) != 0)
        return 1;
    if (fds[1].revents && box_is_gone(w))
        return 1;
    if (fds[0].revents) {
        run_poll(NULL, 0, SETTLE_MS);
        read_events(w);
        tell_changes(w);
    }
    return 0;
}

static void close_watcher(struct watcher *w)
{
    for (size_t i = 0; i < w->count; i++)
        watched_done(&w->items[i]);
    cove_close(w->inotify);
    if (w->open)
        core_session_close(&w->session);
}

/* ------------------------------------------------------------------ subscriptions/listen */

struct filter {
    bool tools, prompts, resources;
    struct json_strings uris;
};

static const struct json_field filter_fields[] = {
    JSON_BOOL(struct filter, tools, "toolsListChanged", JSON_OPTIONAL),
    JSON_BOOL(struct filter, prompts, "promptsListChanged", JSON_OPTIONAL),
    JSON_BOOL(struct filter, resources, "resourcesListChanged", JSON_OPTIONAL),
    JSON_STR_ARRAY(struct filter, uris, "resourceSubscriptions", JSON_OPTIONAL, WATCHES_MAX,
                   MCP_URI_MAX),
    JSON_END,
};

struct listen {
    struct filter *filter;
};

static const struct json_field listen_fields[] = {
    JSON_OBJECT(struct listen, filter, "notifications", JSON_REQUIRED, filter_fields),
    JSON_END,
};

/* Tells the client which of its filters are used: changes of files. Lists of tools and prompts do not change here. */
static void acknowledge(struct watcher *w)
{
    const char *uris[WATCHES_MAX];
    struct filter honoured = { .uris = { uris, w->count } };

    for (size_t i = 0; i < w->count; i++)
        uris[i] = w->items[i].uri;
    mcp_notification_begin(w->call, "notifications/subscriptions/acknowledged");
    json_put_members(w->call->w, listen_fields, &(struct listen){ &honoured });
    mcp_notification_end(w->call);
}

static int add_all(struct watcher *w, const struct filter *f, struct cove_err *e)
{
    for (size_t i = 0; i < f->uris.count; i++)
        if (add_watch(w, f->uris.items[i], e) < 0)
            return -1;
    return 0;
}

int mcp_listen(struct mcp_call *c, struct cove_err *e)
{
    struct watcher w = { .call = c, .inotify = -1 };
    struct listen args = { 0 };
    int rc;

    if (json_read(&c->req->arena, c->params, listen_fields, &args, e) < 0)
        return mcp_refuse(c, MCP_PARAMS, "params.%s", e->msg);
    if (!mcp_accepts_stream(c->req))
        return mcp_refuse(c, MCP_PARAMS, "Accept: must allow text/event-stream");
    rc = add_all(&w, args.filter, e);
    if (rc == 0) {
        mcp_begin_stream(c);
        acknowledge(&w);
        while (wait_once(&w, stream_wait_ms(&c->stream)) == 0)
            ;
        if (!c->stream.gone) {
            mcp_result_begin(c);
            mcp_result_end(c);
        }
    }
    close_watcher(&w);
    return rc < 0 ? cove_context(e, "notifications.resourceSubscriptions") : 0;
}

/* ------------------------------------------------------------------ subscriptions of a session */

static int check_uri(struct mcp_call *c)
{
    if (!c->uri)
        return mcp_refuse(c, MCP_PARAMS, "params.uri: is missing");
    if (!mcp_uri_path(&c->req->arena, c->uri))
        return mcp_refuse(c, MCP_PARAMS, "params.uri: only file:///PATH can be subscribed to");
    return 0;
}

static int answer_empty(struct mcp_call *c)
{
    mcp_result_begin(c);
    mcp_result_end(c);
    return 0;
}

int mcp_subscribe(struct mcp_call *c, struct cove_err *e)
{
    struct notes *notes = mcp_notes(c->req);

    if (check_uri(c) < 0)
        return -1;
    if (notes && notes_put(notes, "watched", c->req->tenant, c->session, c->uri, NOTE_MS, e) < 0) {
        cove_context(e, "params.uri");
        return mcp_refuse(c, MCP_PARAMS, "%s", e->msg);
    }
    return answer_empty(c);
}

int mcp_unsubscribe(struct mcp_call *c, struct cove_err *e)
{
    struct notes *notes = mcp_notes(c->req);

    (void)e;
    if (check_uri(c) < 0)
        return -1;
    if (notes)
        notes_drop(notes, "watched", c->session, c->uri);
    return answer_empty(c);
}

/* Takes a note, which names a file: the file is watched from now on, unless it is watched already or cannot be. */
static void see_note(void *arg, const char *uri)
{
    struct watcher *w = arg;
    struct cove_err e;

    for (size_t i = 0; i < w->count; i++) {
        if (strcmp(w->items[i].uri, uri) == 0) {
            w->items[i].wanted = true;
            return;
        }
    }
    add_watch(w, uri, &e);
}

static void forget_unwanted(struct watcher *w)
{
    size_t kept = 0;

    for (size_t i = 0; i < w->count; i++) {
        if (w->items[i].wanted)
            w->items[kept++] = w->items[i];
        else
            watched_done(&w->items[i]);
    }
    w->count = kept;
}

/* Reads the session's subscriptions as they are now. They stay valid while the session's stream is open. */
static void look_at_notes(struct watcher *w, struct notes *notes, bool due)
{
    uint64_t turn = notes_turn(notes);

    if (turn == w->turn && !due)
        return;
    w->turn = turn;
    for (size_t i = 0; i < w->count; i++)
        w->items[i].wanted = false;
    notes_each(notes, "watched", w->call->session, NOTE_MS, see_note, w);
    forget_unwanted(w);
}

void mcp_serve_stream(struct mcp_call *c, bool resumed)
{
    struct watcher w = { .call = c, .inotify = -1 };
    struct notes *notes = mcp_notes(c->req);
    uint64_t next_ms = 0;
    const char *version;

    c->event_id = MCP_WATCH_ID;
    mcp_begin_stream(c);
    c->stream.heartbeat = NULL;
    c->stream.idle_ms = HEARTBEAT_MS;
    for (;;) {
        bool due = clock_boot_ms() >= next_ms;

        if (notes)
            look_at_notes(&w, notes, due);
        if (resumed) { /* nobody watched meanwhile: every file may have changed */
            resumed = false;
            mark_all(&w);
            tell_changes(&w);
        }
        if (due) {
            next_ms = clock_boot_ms() + HEARTBEAT_MS;
            if (!mcp_session_check(c->req, c->session, &version))
                break;
        }
        if (wait_once(&w, LOOK_MS) != 0)
            break;
    }
    close_watcher(&w);
    stream_end(&c->stream);
    buf_done(&c->nowhere);
}
