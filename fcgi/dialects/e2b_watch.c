/*
 * Watching a directory: as a stream (WatchDir), or by asking again and again (CreateWatcher,
 * GetWatcherEvents, RemoveWatcher). A watcher is kept by the sandbox's init under its id, so the next
 * question may come to any worker. The id ends in a digit that says how the watcher was made.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "cove/text.h"
#include "fcgi/core_watch.h"
#include "fcgi/dialects/e2b_filesystem.h"

enum {
    READ_MOST = 512,     /* events that are read before they are sent */
    ANSWER_MOST = 20000, /* events of one GetWatcherEvents; the others come with the next one */
    BY_RECURSIVE = 1,    /* the digit of an id */
    BY_ENTRY = 2,
};

static const Filesystem__EventType types[] = {
    [CHANGE_CREATED] = FILESYSTEM__EVENT_TYPE__EVENT_TYPE_CREATE,
    [CHANGE_WRITTEN] = FILESYSTEM__EVENT_TYPE__EVENT_TYPE_WRITE,
    [CHANGE_REMOVED] = FILESYSTEM__EVENT_TYPE__EVENT_TYPE_REMOVE,
    [CHANGE_MOVED] = FILESYSTEM__EVENT_TYPE__EVENT_TYPE_RENAME,
    [CHANGE_ATTRIBUTES] = FILESYSTEM__EVENT_TYPE__EVENT_TYPE_CHMOD,
};

/* What is at the changed path now, if it is still there. */
static Filesystem__EntryInfo *entry_of(struct envd *d, const char *root, enum core_change change,
                                       const char *name)
{
    Filesystem__EntryInfo *entry = NULL;
    struct cove_err ignored;

    if (change == CHANGE_REMOVED || change == CHANGE_MOVED)
        return NULL;
    entry_stat(d, envd_clean(&d->req->arena, arena_printf(&d->req->arena, "%s/%s", root, name)),
               &entry, &ignored);
    return entry;
}

static unsigned flags_of(const Filesystem__WatchRequest *args)
{
    return args->recursive ? CORE_WATCH_RECURSIVE : 0;
}

/* ------------------------------------------------------------------ WatchDir */

struct watching {
    struct rpc *rpc;
    struct core_watch watch;
    bool entries;
};

static void tell(struct rpc *r, Filesystem__WatchDirResponse *out)
{
    rpc_tell(r, &out->base);
}

static void tell_start(struct rpc *r)
{
    Filesystem__WatchDirResponse out = FILESYSTEM__WATCH_DIR_RESPONSE__INIT;
    Filesystem__Empty empty = FILESYSTEM__EMPTY__INIT;

    out.event_case = FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_START;
    out.start = &empty;
    tell(r, &out);
}

static void tell_alive(struct stream *s, void *arg)
{
    Filesystem__WatchDirResponse out = FILESYSTEM__WATCH_DIR_RESPONSE__INIT;
    Filesystem__Empty empty = FILESYSTEM__EMPTY__INIT;

    (void)s;
    out.event_case = FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_KEEPALIVE;
    out.keepalive = &empty;
    tell(arg, &out);
}

static void tell_change(void *arg, enum core_change change, const char *name)
{
    struct watching *w = arg;
    Filesystem__WatchDirResponse out = FILESYSTEM__WATCH_DIR_RESPONSE__INIT;
    Filesystem__FilesystemEvent event = FILESYSTEM__FILESYSTEM_EVENT__INIT;

    event.name = (char *)name;
    event.has_type = 1;
    event.type = types[change];
    if (w->entries)
        event.entry = entry_of(w->rpc->envd, w->watch.root, change, name);
    out.event_case = FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_FILESYSTEM;
    out.filesystem = &event;
    tell(w->rpc, &out);
}

/* The entries of events would pile up in the request's arena, so they get one of their own. */
static int read_some(struct watching *w, struct cove_err *e)
{
    struct arena *a = &w->rpc->req->arena, before = *a;
    int rc;

    *a = (struct arena){ 0 };
    rc = core_watch_read(&w->watch, READ_MOST, tell_change, w, e);
    arena_done(a);
    *a = before;
    return rc;
}

/* On this connection the sandbox only answers questions, so when it becomes readable now it was closed. */
static int wait_once(struct watching *w, bool *ret_left, struct cove_err *e)
{
    struct stream *stream = &w->rpc->stream;
    enum stream_backlog behind = stream_backlog(stream);
    struct pollfd fds[] = {
        { .fd = w->watch.fd, .events = (short)(behind == STREAM_FULL ? 0 : POLLIN) },
        { .fd = w->rpc->envd->session.conn.sock, .events = POLLIN },
        { .fd = stream->req->client_fd, .events = (short)(POLLRDHUP | (behind ? POLLOUT : 0)) },
    };
    int n = run_poll(fds, ARRAY_SIZE(fds), stream_wait_ms(stream));

    if (n == 0)
        *ret_left = stream_tick(stream) != 0;
    if (n <= 0)
        return 0;
    if (fds[1].revents)
        return cove_fail(e, COVE_GONE, "the sandbox has ended");
    if (fds[2].revents & (POLLRDHUP | POLLHUP | POLLERR))
        *ret_left = stream_lost(stream) != 0;
    else if (fds[2].revents & POLLOUT)
        *ret_left = stream_send(stream) != 0;
    return 0;
}

static int follow(struct watching *w, struct cove_err *e)
{
    const atomic_bool *leaving = w->rpc->req->core->leaving;
    struct stream *stream = &w->rpc->stream;
    bool left = false;

    while (!left) {
        int rc = stream_backlog(stream) == STREAM_FULL ? 0 : read_some(w, e);

        if (rc < 0) {
            stream_send(stream);
            return -1;
        }
        left = stream_send(stream) != 0;
        if (leaving && atomic_load(leaving))
            return cove_fail(e, COVE_GONE, "the server restarts");
        if (!left && rc == 0 && wait_once(w, &left, e) < 0)
            return -1;
    }
    return 0;
}

int e2b_watch_dir(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const Filesystem__WatchRequest *args = (const Filesystem__WatchRequest *)in;
    struct watching w = { .rpc = r, .entries = args->include_entry };
    const char *path;
    int rc;

    if (envd_path(r->envd, args->path, &path, e) < 0 ||
        core_watch_open(&w.watch, &r->envd->session, path, flags_of(args), e) < 0)
        return -1;
    r->heartbeat = tell_alive;
    rpc_begin(r);
    tell_start(r);
    rc = follow(&w, e);
    core_watch_done(&w.watch);
    return rc;
}

/* ------------------------------------------------------------------ watchers */

int e2b_watcher_create(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const Filesystem__WatchRequest *args = (const Filesystem__WatchRequest *)in;
    Filesystem__CreateWatcherResponse out = FILESYSTEM__CREATE_WATCHER_RESPONSE__INIT;
    char id[COVE_ID_LEN + 1];
    struct core_watch watch;
    const char *path;

    text_new_id(id);
    out.watcher_id =
        arena_printf(&r->req->arena, "w%s%d", id,
                     (args->recursive ? BY_RECURSIVE : 0) | (args->include_entry ? BY_ENTRY : 0));
    if (envd_path(r->envd, args->path, &path, e) < 0 ||
        core_watch_keep(&watch, &r->envd->session, path, flags_of(args), out.watcher_id, e) < 0)
        return -1;
    core_watch_done(&watch);
    return rpc_answer(r, &out.base, e);
}

struct gathering {
    struct envd *envd;
    struct core_watch watch;
    bool entries;
    Filesystem__FilesystemEvent **events;
    size_t count, room;
};

static void gather(void *arg, enum core_change change, const char *name)
{
    struct gathering *g = arg;
    Filesystem__FilesystemEvent *event = arena_alloc(&g->envd->req->arena, sizeof(*event));

    if (g->count == g->room) {
        size_t room = g->room ? 2 * g->room : 64;
        void *more = realloc(g->events, room * sizeof(*g->events));

        if (!more)
            abort();
        g->events = more;
        g->room = room;
    }
    filesystem__filesystem_event__init(event);
    event->name = arena_strdup(&g->envd->req->arena, name);
    event->has_type = 1;
    event->type = types[change];
    if (g->entries)
        event->entry = entry_of(g->envd, g->watch.root, change, name);
    g->events[g->count++] = event;
}

static int find_watcher(struct rpc *r, const char *id, struct core_watch *ret, struct cove_err *e)
{
    size_t len = id ? strlen(id) : 0;

    if (len < 2 || len > CORE_WATCH_NAME_MAX || *id != 'w')
        return cove_fail(e, COVE_NOT_FOUND, "watcher with id %.60s not found", id ? id : "");
    if (core_watch_resume(ret, &r->envd->session, id,
                          (id[len - 1] - '0') & BY_RECURSIVE ? CORE_WATCH_RECURSIVE : 0, e) == 0)
        return 0;
    return e->code == COVE_NOT_FOUND
               ? cove_fail(e, COVE_NOT_FOUND, "watcher with id %.60s not found", id)
               : -1;
}

int e2b_watcher_events(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const char *id = ((const Filesystem__WatcherRequest *)in)->watcher_id;
    Filesystem__GetWatcherEventsResponse out = FILESYSTEM__GET_WATCHER_EVENTS_RESPONSE__INIT;
    struct gathering g = { .envd = r->envd };
    int rc;

    if (find_watcher(r, id, &g.watch, e) < 0)
        return -1;
    g.entries = (id[strlen(id) - 1] - '0') & BY_ENTRY;
    rc = core_watch_read(&g.watch, ANSWER_MOST, gather, &g, e);
    if (rc < 0 && e->code == COVE_NOT_FOUND && g.count > 0)
        rc = 0; /* the events tell that the directory was removed */
    out.events = g.events;
    out.n_events = g.count;
    if (rc >= 0)
        rc = rpc_answer(r, &out.base, e);
    free(g.events);
    core_watch_done(&g.watch);
    return rc < 0 ? -1 : 0;
}

int e2b_watcher_remove(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const char *id = ((const Filesystem__WatcherRequest *)in)->watcher_id;
    Filesystem__Empty empty = FILESYSTEM__EMPTY__INIT;

    if (box_watch_drop(&r->envd->session.conn, id ? id : "", e) < 0)
        return e->code == COVE_NOT_FOUND
                   ? cove_fail(e, COVE_NOT_FOUND, "watcher with id %.60s not found", id ? id : "")
                   : -1;
    return rpc_answer(r, &empty.base, e);
}
