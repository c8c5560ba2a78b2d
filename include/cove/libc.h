/*
 * Calls that glibc has and musl has not (yet). cove-init is linked with musl where that is installed, because a static
 * program of musl's starts in a third of the time and writes to fewer pages; everything else is linked with glibc.
 */
#ifndef COVE_LIBC_H
#define COVE_LIBC_H

#include <stdio.h>
#include <sys/mount.h>

#ifdef __GLIBC__
#include <malloc.h>
#else
#include <linux/fs.h>
#include <linux/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline int open_tree(int dir, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, dir, path, flags);
}

static inline int move_mount(int from_dir, const char *from, int to_dir, const char *to,
                             unsigned flags)
{
    return (int)syscall(SYS_move_mount, from_dir, from, to_dir, to, flags);
}

static inline int mount_setattr(int dir, const char *path, unsigned flags, struct mount_attr *attr,
                                size_t size)
{
    return (int)syscall(SYS_mount_setattr, dir, path, flags, attr, size);
}

static inline int renameat2(int from_dir, const char *from, int to_dir, const char *to,
                            unsigned flags)
{
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

static inline int close_range(unsigned first, unsigned last, int flags)
{
    return (int)syscall(SYS_close_range, first, last, flags);
}

/* musl's free() gives memory back by itself. */
static inline int malloc_trim(size_t left)
{
    (void)left;
    return 0;
}
#endif

#endif
