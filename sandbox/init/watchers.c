/*
 * Watches that are kept under a name. A worker makes an inotify descriptor (BOX_WATCH) and leaves it
 * here with the directories it is for; whichever worker serves the next request gets all of it back.
 * init reads nothing from the descriptor: the kernel keeps the events until a worker does.
 */
#include "config.h" /* _GNU_SOURCE */

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "sandbox/init/init_private.h"

struct kept_dir {
    int32_t wd;
    char *path;
};

struct watcher {
    LIST_ENTRY(watcher) link;
    char name[64];
    int fd;
    struct kept_dir *dirs;
    size_t count, room;
};

static struct watcher *find(struct init *in, const char *name)
{
    struct watcher *w;

    LIST_FOREACH(w, &in->watchers, link)
    if (strcmp(w->name, name) == 0)
        return w;
    return NULL;
}

static int find_or_fail(struct init *in, const char *name, struct watcher **ret, struct cove_err *e)
{
    *ret = find(in, name);
    return *ret ? 0 : cove_fail(e, COVE_NOT_FOUND, "there is no watcher '%.60s'", name);
}

static void watcher_free(struct init *in, struct watcher *w)
{
    for (size_t i = 0; i < w->count; i++)
        free(w->dirs[i].path);
    free(w->dirs);
    cove_close(w->fd);
    LIST_REMOVE(w, link);
    assert(in->watcher_count > 0);
    in->watcher_count--;
    free(w);
}

/* Takes the descriptor. */
static struct watcher *watcher_new(struct init *in, const char *name, int *fd, struct cove_err *e)
{
    struct watcher *w = in->watcher_count < MAX_WATCHERS ? calloc(1, sizeof(*w)) : NULL;

    if (!w || strlen(name) >= sizeof(w->name)) {
        free(w);
        cove_fail(e, COVE_LIMIT, "this sandbox keeps %u watchers already", in->watcher_count);
        return NULL;
    }
    strcpy(w->name, name);
    w->fd = take_fd(fd);
    LIST_INSERT_HEAD(&in->watchers, w, link);
    in->watcher_count++;
    return w;
}

/* The kernel gives a directory that was removed and made again a new number. */
static int add_dir(struct watcher *w, int32_t wd, const char *path, struct cove_err *e)
{
    if (w->count == w->room) {
        size_t room = w->room ? 2 * w->room : 16;
        void *more = room <= MAX_KEPT_DIRS ? realloc(w->dirs, room * sizeof(*w->dirs)) : NULL;

        if (!more)
            return cove_fail(e, COVE_LIMIT, "a watcher cannot have more than %d directories",
                             MAX_KEPT_DIRS);
        w->dirs = more;
        w->room = room;
    }
    w->dirs[w->count] = (struct kept_dir){ .wd = wd, .path = strdup(path) };
    if (!w->dirs[w->count].path)
        return cove_fail(e, COVE_LIMIT, "out of memory");
    w->count++;
    return 0;
}

/* Safe: both the number of names and that of directories are bounded, and nothing is read. */
int on_watch_keep(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_kept_dir *args = m->body;
    const char *strings[2];
    struct watcher *w;

    if (tail_strings(m, sizeof(*args), strings, 2) < 0)
        return CUT_OFF;
    w = find(in, strings[0]);
    if (!w && m->fd_count == 0)
        return cove_fail(e, COVE_NOT_FOUND, "there is no watcher '%.60s'", strings[0]);
    if (w && m->fd_count > 0)
        return cove_fail(e, COVE_CONFLICT, "watcher '%.60s' is there already", strings[0]);
    if (!w && !(w = watcher_new(in, strings[0], &m->fds[0], e)))
        return -1;
    if (add_dir(w, args->wd, strings[1], e) < 0)
        return -1;
    conn_send(c, MSG_DONE, m->head.tag, NULL, 0);
    return 0;
}

/* Append one entry; false when it does not fit any more. */
static bool add_entry(const struct kept_dir *d, char *page, size_t *len)
{
    size_t path = strlen(d->path) + 1;
    size_t size = (sizeof(struct box_kept_dir) + path + 1 + 7) & ~(size_t)7;
    struct box_kept_dir entry = { .size = (uint32_t)size, .wd = d->wd };

    if (size > PAGE_BYTES - *len)
        return false;
    memset(page + *len, 0, size);
    memcpy(page + *len, &entry, sizeof(entry));
    memcpy(page + *len + sizeof(entry), d->path, path);
    *len += size;
    return true;
}

/* Safe: one page of a bounded table, and a descriptor that a worker left here. */
int on_watch_kept(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_list *args = m->body;
    struct box_page head = { .next = args->from };
    const char *name;
    struct watcher *w;
    size_t len = 0;

    if (tail_strings(m, sizeof(*args), &name, 1) < 0)
        return CUT_OFF;
    if (find_or_fail(in, name, &w, e) < 0)
        return -1;
    for (; head.next < w->count; head.next++, head.count++)
        if (!add_entry(&w->dirs[head.next], init_page, &len))
            break;
    head.more = head.next < w->count;
    conn_send_page(c, BOX_KEPT_DIRS, m->head.tag, &head, init_page, len, w->fd);
    return 0;
}

int on_watch_drop(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const char *name;
    struct watcher *w;

    if (tail_strings(m, 0, &name, 1) < 0)
        return CUT_OFF;
    if (find_or_fail(in, name, &w, e) < 0)
        return -1;
    watcher_free(in, w);
    conn_send(c, MSG_DONE, m->head.tag, NULL, 0);
    return 0;
}
