/* The filesystem service. init resolves every path inside the sandbox; what is here is the shape of
 * questions and answers. */
#include "fcgi/dialects/e2b_filesystem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    LIST_MAX = 100000,
    DEPTH_MAX = 256,
    METADATA_MAX = 1000, /* a list of more entries than this is told without their metadata */
};

static int answer_entry(struct rpc *r, const char *path, struct cove_err *e)
{
    Filesystem__EntryResponse out = FILESYSTEM__ENTRY_RESPONSE__INIT;

    if (entry_stat(r->envd, path, &out.entry, e) < 0)
        return -1;
    return rpc_answer(r, &out.base, e);
}

static int answer_empty(struct rpc *r, struct cove_err *e)
{
    Filesystem__Empty empty = FILESYSTEM__EMPTY__INIT;

    return rpc_answer(r, &empty.base, e);
}

/* ------------------------------------------------------------------ Stat, MakeDir, Move, Remove */

static int stat_path(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const char *path;

    if (envd_path(r->envd, ((const Filesystem__PathRequest *)in)->path, &path, e) < 0)
        return -1;
    return answer_entry(r, path, e);
}

static int make_dir(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    struct envd *d = r->envd;
    struct box_stat st;
    const char *path;

    if (envd_path(d, ((const Filesystem__PathRequest *)in)->path, &path, e) < 0)
        return -1;
    if (box_file_stat(&d->session.conn, "root", path, 0, &st, e) == 0)
        return S_ISDIR(st.mode)
                   ? cove_fail(e, COVE_CONFLICT, "directory already exists: %.160s", path)
                   : cove_fail(e, COVE_INVALID,
                               "path already exists but it is not a directory: %.160s", path);
    if (core_make_dir(&d->session, d->user, path, e) < 0)
        return -1;
    return answer_entry(r, path, e);
}

static int make_parent(struct envd *d, const char *path, struct cove_err *e)
{
    const char *slash = strrchr(path, '/');

    if (slash == path)
        return 0;
    return core_make_dir(&d->session, d->user,
                         arena_strndup(&d->req->arena, path, (size_t)(slash - path)), e);
}

static int move(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const Filesystem__MoveRequest *args = (const Filesystem__MoveRequest *)in;
    struct envd *d = r->envd;
    struct box_file how = { 0 };
    const char *from, *to;
    struct box_stat st;
    char target[MSG_PATH_MAX];

    if (envd_path(d, args->source, &from, e) < 0 || envd_path(d, args->destination, &to, e) < 0 ||
        box_file_stat_link(&d->session.conn, "root", from, &st, target, e) < 0 ||
        make_parent(d, to, e) < 0 ||
        box_file_change(&d->session.conn, BOX_RENAME, d->user, from, to, &how, e) < 0)
        return -1;
    return answer_entry(r, to, e);
}

static int remove_path(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    struct envd *d = r->envd;
    char target[MSG_PATH_MAX];
    struct box_stat st;
    const char *path;
    int rc;

    if (envd_path(d, ((const Filesystem__PathRequest *)in)->path, &path, e) < 0)
        return -1;
    rc = box_file_stat_link(&d->session.conn, "root", path, &st, target, e);
    if (rc == 0)
        rc = core_remove(&d->session, "root", path,
                         S_ISDIR(st.mode) ? FILE_DIR | FILE_RECURSIVE : 0, e);
    if (rc < 0 && e->code != COVE_NOT_FOUND)
        return -1;
    return answer_empty(r, e);
}

/* ------------------------------------------------------------------ ListDir */

struct listed {
    const char *name, *target;
    struct box_stat st;
};

struct listing { /* one directory */
    struct arena *arena;
    struct listed *items;
    size_t count, room;
};

struct walk { /* all of them */
    struct envd *envd;
    Filesystem__EntryInfo **entries;
    size_t count, room;
};

static int take_name(void *arg, const char *name, const struct box_stat *st, const char *target)
{
    struct listing *l = arg;

    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        struct listed *more = realloc(l->items, room * sizeof(*more));

        if (!more)
            abort();
        l->items = more;
        l->room = room;
    }
    l->items[l->count++] = (struct listed){
        .name = arena_strdup(l->arena, name),
        .target = arena_strdup(l->arena, target),
        .st = *st,
    };
    return l->count == LIST_MAX || l->arena->starved;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

static int add_entry(struct walk *w, Filesystem__EntryInfo *entry, struct cove_err *e)
{
    if (w->count == LIST_MAX)
        return cove_fail(e, COVE_LIMIT, "more than %d entries, ask for less depth", LIST_MAX);
    if (w->count == w->room) {
        size_t room = w->room ? 2 * w->room : 64;
        void *more = realloc(w->entries, room * sizeof(*w->entries));

        if (!more)
            abort();
        w->entries = more;
        w->room = room;
    }
    w->entries[w->count++] = entry;
    return 0;
}

static int walk_dir(struct walk *w, const char *path, uint32_t depth, struct cove_err *e)
{
    struct arena *a = &w->envd->req->arena;
    struct listing l = { .arena = a };
    int rc = box_list(&w->envd->session.conn, "root", path, take_name, &l, e);

    if (rc == 0 && l.count > 0)
        qsort(l.items, l.count, sizeof(*l.items), by_name);
    for (size_t i = 0; rc == 0 && i < l.count; i++) {
        const struct listed *item = &l.items[i];
        const char *full = arena_printf(a, "%s/%s", strcmp(path, "/") == 0 ? "" : path, item->name);

        rc = a->starved ? core_fail_memory(e)
                        : add_entry(w, entry_make(w->envd, full, &item->st, item->target), e);
        if (rc == 0 && depth > 1 && S_ISDIR(item->st.mode) && walk_dir(w, full, depth - 1, e) < 0)
            rc = e->code == COVE_NOT_FOUND ? 0 : -1; /* gone while we looked */
    }
    free(l.items);
    return rc;
}

static int list_dir(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const Filesystem__ListDirRequest *args = (const Filesystem__ListDirRequest *)in;
    Filesystem__ListDirResponse out = FILESYSTEM__LIST_DIR_RESPONSE__INIT;
    struct walk w = { .envd = r->envd };
    uint32_t depth = args->depth ? args->depth : 1;
    struct box_stat st;
    const char *path;
    int rc;

    if (envd_path(r->envd, args->path, &path, e) < 0)
        return -1;
    if (box_file_stat(&r->envd->session.conn, "root", path, 0, &st, e) < 0)
        return e->errnum == ELOOP
                   ? cove_fail(e, COVE_NOT_READY, "path is a loop of links: %.160s", path)
                   : -1;
    if (!S_ISDIR(st.mode))
        return cove_fail(e, COVE_INVALID, "path is not a directory: %.160s", path);
    rc = walk_dir(&w, path, depth < DEPTH_MAX ? depth : DEPTH_MAX, e);
    out.entries = w.entries;
    out.n_entries = w.count;
    for (size_t i = 0; rc == 0 && w.count <= METADATA_MAX && i < w.count; i++)
        entry_add_metadata(r->envd, w.entries[i]);
    if (rc == 0)
        rc = rpc_answer(r, &out.base, e);
    free(w.entries);
    return rc;
}

/* ------------------------------------------------------------------ the service */

static const struct rpc_method methods[] = {
    { "Stat", &filesystem__path_request__descriptor, stat_path, false, NULL },
    { "MakeDir", &filesystem__path_request__descriptor, make_dir, false, NULL },
    { "Move", &filesystem__move_request__descriptor, move, false, NULL },
    { "ListDir", &filesystem__list_dir_request__descriptor, list_dir, false, NULL },
    { "Remove", &filesystem__path_request__descriptor, remove_path, false, NULL },
    { "WatchDir", &filesystem__watch_request__descriptor, e2b_watch_dir, true, NULL },
    { "CreateWatcher", &filesystem__watch_request__descriptor, e2b_watcher_create, false, NULL },
    { "GetWatcherEvents", &filesystem__watcher_request__descriptor, e2b_watcher_events, false,
      NULL },
    { "RemoveWatcher", &filesystem__watcher_request__descriptor, e2b_watcher_remove, false, NULL },
};

int envd_filesystem(struct request *req, struct reply *rep, struct cove_err *e)
{
    return rpc_serve(req, rep, methods, ARRAY_SIZE(methods), e);
}
