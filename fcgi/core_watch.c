#include "fcgi/core_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"

enum {
    MASK = IN_CREATE | IN_MODIFY | IN_ATTRIB | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
           IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_EXCL_UNLINK,
    DEPTH_MAX = 128,
    EVENTS_BYTES = 16 * 1024,
};

static const struct {
    uint32_t bit;
    enum core_change change;
} changes[] = {
    { IN_CREATE, CHANGE_CREATED },   { IN_MOVED_TO, CHANGE_CREATED },
    { IN_MODIFY, CHANGE_WRITTEN },   { IN_DELETE, CHANGE_REMOVED },
    { IN_MOVED_FROM, CHANGE_MOVED }, { IN_ATTRIB, CHANGE_ATTRIBUTES },
};

/* ------------------------------------------------------------------ directories */

static struct core_watch_dir *find_dir(struct core_watch *w, int32_t wd)
{
    if (w->last < w->count && w->dirs[w->last].wd == wd)
        return &w->dirs[w->last];
    for (size_t i = w->count; i > 0; i--) {
        if (w->dirs[i - 1].wd == wd) {
            w->last = i - 1;
            return &w->dirs[i - 1];
        }
    }
    return NULL;
}

/* A directory that was moved inside the tree keeps its number and gets another name. */
static int note_dir(struct core_watch *w, int32_t wd, const char *name, struct cove_err *e)
{
    struct core_watch_dir *old = find_dir(w, wd);
    char *copy = strdup(name);

    if (!copy)
        return cove_fail(e, COVE_BUSY, "out of memory");
    if (old) {
        free(old->name);
        old->name = copy;
        return 0;
    }
    if (w->count == w->room) {
        size_t room = w->room ? 2 * w->room : 16;
        void *more =
            w->count < CORE_WATCH_DIRS_MAX ? realloc(w->dirs, room * sizeof(*w->dirs)) : NULL;

        if (!more) {
            free(copy);
            return cove_fail(e, COVE_LIMIT, "more than %d directories below '%.160s'",
                             CORE_WATCH_DIRS_MAX, w->root);
        }
        w->dirs = more;
        w->room = room;
    }
    w->dirs[w->count++] = (struct core_watch_dir){ .wd = wd, .name = copy };
    return 0;
}

static int join(char out[MSG_PATH_MAX], const char *dir, const char *name)
{
    const char *slash = *dir && *name && dir[strlen(dir) - 1] != '/' ? "/" : "";

    return snprintf(out, MSG_PATH_MAX, "%s%s%s", dir, slash, name) < MSG_PATH_MAX ? 0 : -1;
}

static int keep_dir(struct core_watch *w, int32_t wd, const char *name, struct cove_err *e)
{
    bool first = w->count == 0;

    if (!w->kept[0])
        return 0;
    return box_watch_keep(&w->session->conn, w->kept, first ? w->fd : -1, wd,
                          first ? w->root : name, e);
}

static int watch_dir(struct core_watch *w, const char *name, struct cove_err *e)
{
    char path[MSG_PATH_MAX];
    int made = -1;
    int32_t wd;

    if (join(path, w->root, name) < 0)
        return cove_fail(e, COVE_NOT_FOUND, "'%.160s': the path is too long", name);
    if (box_watch(&w->session->conn, "root", path, MASK, w->fd, &wd, &made, e) < 0)
        return -1;
    if (made >= 0)
        w->fd = made;
    if (keep_dir(w, wd, name, e) < 0)
        return -1;
    return note_dir(w, wd, name, e);
}

/* ------------------------------------------------------------------ all below one */

struct scan { /* one directory being looked through */
    char **dirs;
    size_t count, room;
    core_watch_fn each;
    void *arg;
    const char *name;
};

static int take_entry(void *arg, const char *name, const struct box_stat *st, const char *target)
{
    struct scan *s = arg;
    char full[MSG_PATH_MAX];

    (void)target;
    if (join(full, s->name, name) < 0)
        return 0;
    if (s->each)
        s->each(s->arg, CHANGE_CREATED, full);
    if (!S_ISDIR(st->mode))
        return 0;
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 16;
        void *more = realloc(s->dirs, room * sizeof(*s->dirs));

        if (!more)
            return 1;
        s->dirs = more;
        s->room = room;
    }
    s->dirs[s->count] = strdup(full);
    s->count += s->dirs[s->count] != NULL;
    return s->count > CORE_WATCH_DIRS_MAX;
}

/* A directory may be removed while we look: that is no failure. */
static bool is_passing(const struct cove_err *e)
{
    return e->code == COVE_NOT_FOUND || e->code == COVE_INVALID;
}

/* Watches a directory and all below it. With `each`, entries that exist are reported as made. */
static int watch_tree(struct core_watch *w, const char *name, int depth, core_watch_fn each,
                      void *arg, struct cove_err *e)
{
    struct scan s = { .each = each, .arg = arg, .name = name };
    char path[MSG_PATH_MAX];
    int rc = watch_dir(w, name, e);

    if (rc < 0 || !(w->flags & CORE_WATCH_RECURSIVE) || depth == 0)
        return rc;
    join(path, w->root, name); /* the path fitted a moment ago */
    if (box_list(&w->session->conn, "root", path, take_entry, &s, e) < 0)
        rc = is_passing(e) ? 0 : -1;
    for (size_t i = 0; i < s.count; i++) {
        if (rc == 0 && watch_tree(w, s.dirs[i], depth - 1, each, arg, e) < 0)
            rc = is_passing(e) ? 0 : -1;
        free(s.dirs[i]);
    }
    free(s.dirs);
    return rc;
}

static int start(struct core_watch *w, struct core_session *s, const char *path, unsigned flags,
                 const char *name, struct cove_err *e)
{
    struct box_stat st;

    *w = (struct core_watch){ .session = s, .flags = flags, .fd = -1 };
    if (!text_copy(w->root, sizeof(w->root), path) || !text_copy(w->kept, sizeof(w->kept), name))
        return cove_fail(e, COVE_INVALID, "path: too long");
    if (box_file_stat(&s->conn, "root", path, 0, &st, e) < 0)
        return -1;
    if (!S_ISDIR(st.mode))
        return cove_fail(e, COVE_INVALID, "path is not a directory: %.160s", path);
    if (watch_tree(w, "", DEPTH_MAX, NULL, NULL, e) == 0)
        return 0;
    core_watch_done(w);
    if (w->kept[0])
        box_watch_drop(&s->conn, w->kept, NULL);
    return -1;
}

int core_watch_open(struct core_watch *w, struct core_session *s, const char *path, unsigned flags,
                    struct cove_err *e)
{
    return start(w, s, path, flags, "", e);
}

int core_watch_keep(struct core_watch *w, struct core_session *s, const char *path, unsigned flags,
                    const char *name, struct cove_err *e)
{
    return start(w, s, path, flags, name, e);
}

/* init gives back what a worker left there. An init that was taken over could give wrong names, which would only
 * be wrong names of files of that sandbox. */
static int take_kept(void *arg, int32_t wd, const char *name)
{
    struct core_watch *w = arg;

    if (w->count == 0) {
        text_copy(w->root, sizeof(w->root), name);
        name = "";
    }
    return note_dir(w, wd, name, NULL);
}

int core_watch_resume(struct core_watch *w, struct core_session *s, const char *name,
                      unsigned flags, struct cove_err *e)
{
    *w = (struct core_watch){ .session = s, .flags = flags, .fd = -1 };
    text_copy(w->kept, sizeof(w->kept), name);
    if (box_watch_kept(&s->conn, name, take_kept, w, &w->fd, e) == 0)
        return 0;
    core_watch_done(w);
    return -1;
}

void core_watch_done(struct core_watch *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->dirs[i].name);
    free(w->dirs);
    w->dirs = NULL;
    w->count = 0;
    w->fd = cove_close(w->fd);
}

/* ------------------------------------------------------------------ events */

struct reading {
    core_watch_fn each;
    void *arg;
};

static bool is_below(const char *name, const char *dir)
{
    size_t len = strlen(dir);

    return strncmp(name, dir, len) == 0 && (name[len] == '/' || !name[len]);
}

/* A directory that was moved out of the tree keeps its watches, whose events are ignored. */
static void forget_below(struct core_watch *w, const char *dir)
{
    for (size_t i = 0; i < w->count; i++) {
        struct core_watch_dir *d = &w->dirs[i];

        if (!d->name || !d->name[0] || !is_below(d->name, dir))
            continue;
        if (w->kept[0])
            box_watch_keep(&w->session->conn, w->kept, -1, d->wd, "/", NULL);
        free(d->name);
        d->name = NULL;
    }
}

static int on_directory(struct core_watch *w, const struct inotify_event *ev, const char *name,
                        const struct reading *r, struct cove_err *e)
{
    if (!(w->flags & CORE_WATCH_RECURSIVE))
        return 0;
    if (ev->mask & IN_MOVED_FROM)
        forget_below(w, name);
    if (!(ev->mask & (IN_CREATE | IN_MOVED_TO)) ||
        watch_tree(w, name, DEPTH_MAX, r->each, r->arg, e) == 0)
        return 0;
    return is_passing(e) ? 0 : -1;
}

/* An event of the watched directory itself: it was removed, moved or unmounted. Events of other directories come
 * from their parents. */
static int on_self(const struct core_watch_dir *d, const struct inotify_event *ev,
                   const struct reading *r, struct cove_err *e)
{
    if (d->name[0] || !(ev->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)))
        return 0;
    r->each(r->arg, ev->mask & IN_MOVE_SELF ? CHANGE_MOVED : CHANGE_REMOVED, ".");
    return cove_fail(e, COVE_NOT_FOUND, "the watched directory is gone");
}

static int on_event(struct core_watch *w, const struct inotify_event *ev, const struct reading *r,
                    struct cove_err *e)
{
    const struct core_watch_dir *d;
    char name[MSG_PATH_MAX];

    if (ev->mask & IN_Q_OVERFLOW)
        return cove_fail(e, COVE_LIMIT, "too much changed at once: events were lost");
    d = find_dir(w, ev->wd);
    if (!d || !d->name || d->name[0] == '/')
        return 0;
    if (ev->len == 0)
        return on_self(d, ev, r, e);
    if (join(name, d->name, ev->name) < 0)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(changes); i++)
        if (ev->mask & changes[i].bit)
            r->each(r->arg, changes[i].change, name);
    return ev->mask & IN_ISDIR ? on_directory(w, ev, name, r, e) : 0;
}

int core_watch_read(struct core_watch *w, unsigned most, core_watch_fn each, void *arg,
                    struct cove_err *e)
{
    _Alignas(struct inotify_event) char buf[EVENTS_BYTES];
    struct reading r = { .each = each, .arg = arg };

    fcntl(w->fd, F_SETFL, O_NONBLOCK); /* init set it, but a process inside could have cleared it */
    for (unsigned seen = 0; seen < most;) {
        ssize_t n = read(w->fd, buf, sizeof(buf));

        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n <= 0)
            return cove_fail_errno(e, COVE_GONE, "reading a watch");
        for (ssize_t at = 0; at < n; seen++) {
            const struct inotify_event *ev = (const void *)(buf + at);

            if (on_event(w, ev, &r, e) < 0)
                return -1;
            at += (ssize_t)(sizeof(*ev) + ev->len);
        }
    }
    return 1;
}
