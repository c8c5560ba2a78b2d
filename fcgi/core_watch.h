/*
 * Watching a directory of a sandbox, with all below it if asked for. init makes the inotify watches,
 * the worker reads the events. A watch lives as long as its struct; one with a name is kept by init,
 * and any worker can go on with it.
 *
 *     core_watch_open(&w, "/home/user/dir", CORE_WATCH_RECURSIVE, e)
 *     ... w.fd is readable ...
 *     core_watch_read(&w, each, arg, e)
 *     core_watch_done(&w)
 *
 * A new directory below is watched from then on, and entries that are in it already are reported as made.
 * Several events may come for one change. Events that were lost are an error: COVE_LIMIT.
 */
#ifndef COVE_FCGI_CORE_WATCH_H
#define COVE_FCGI_CORE_WATCH_H

#include "fcgi/core.h"

enum { CORE_WATCH_DIRS_MAX = 8000, CORE_WATCH_NAME_MAX = 63 };

enum core_watch_flags { CORE_WATCH_RECURSIVE = 1 << 0 };

enum core_change {
    CHANGE_CREATED,
    CHANGE_WRITTEN,
    CHANGE_REMOVED,
    CHANGE_MOVED,
    CHANGE_ATTRIBUTES
};

/* `name` is below the watched directory: "sub/file", or "." for that directory itself. */
typedef void (*core_watch_fn)(void *arg, enum core_change change, const char *name);

struct core_watch_dir {
    int32_t wd;
    /* the directory's path below the root, "" for the root itself; NULL: it was moved away, and its events are
     * ignored */
    char *name;
};

struct core_watch {
    struct core_session *session;
    char root[MSG_PATH_MAX];
    unsigned flags;
    char kept[CORE_WATCH_NAME_MAX + 1]; /* "" = not kept */
    int fd;                             /* inotify, non-blocking */
    struct core_watch_dir *dirs;
    size_t count, room, last;
};

/* COVE_NOT_FOUND, or COVE_INVALID: no directory. */
int core_watch_open(struct core_watch *w, struct core_session *s, const char *path, unsigned flags,
                    struct cove_err *e);
/* The same, and init keeps the watch under this name. */
int core_watch_keep(struct core_watch *w, struct core_session *s, const char *path, unsigned flags,
                    const char *name, struct cove_err *e);
/* Goes on with a watch that init has kept. COVE_NOT_FOUND: there is none of this name. */
int core_watch_resume(struct core_watch *w, struct core_session *s, const char *name,
                      unsigned flags, struct cove_err *e);
void core_watch_done(struct core_watch *w);

/* Reads at most `most` events of the kernel. 1: there may be more; 0: that was all; -1: COVE_NOT_FOUND when the
 * watched directory is gone (which was reported before), COVE_LIMIT when events were lost. */
int core_watch_read(struct core_watch *w, unsigned most, core_watch_fn each, void *arg,
                    struct cove_err *e);

#endif
