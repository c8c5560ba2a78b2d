/*
 * Marks: pairs that clients keep with a file, as extended attributes "user.PREFIX.KEY", which any program inside
 * can read and change as well. They are set and read with root's rights, because a client that asks for them
 * may write the file anyway.
 */
#include "config.h" /* _GNU_SOURCE */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>

#include "sandbox/init/init_private.h"

enum { NAMES_BYTES = 16 * 1024, NAME_MAX_BYTES = 256, VALUE_MAX_BYTES = 4096 };

/* Opens a file or a directory; of a link, its target. */
static int open_target(const char *path, char ret_link[PATH_OF_FD], struct cove_err *e)
{
    int fd = path[0] == '/' ? path_open(path, O_PATH) : (errno = ENOENT, -1);
    struct stat st;

    if (fd >= 0 && (fstat(fd, &st) < 0 || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))) {
        cove_close(fd);
        fd = -1;
        errno = EPERM;
    }
    if (fd < 0)
        return file_fail(e, path);
    path_of_fd(fd, ret_link);
    return fd;
}

/* Returns KEY of "user.PREFIX.KEY"; NULL: the attribute is another one. */
static const char *key_of(const char *name, const char *prefix)
{
    size_t len = strlen(prefix);

    return strncmp(name, "user.", 5) == 0 && strncmp(name + 5, prefix, len) == 0 &&
                   name[5 + len] == '.'
               ? name + 5 + len + 1
               : NULL;
}

static ssize_t read_names(const char *link, char names[NAMES_BYTES])
{
    ssize_t n = listxattr(link, names, NAMES_BYTES - 1);

    names[n > 0 ? n : 0] = '\0';
    return n > 0 ? n : 0; /* a file system without attributes has none */
}

static void remove_all(const char *link, const char *prefix)
{
    static LARGE char names[NAMES_BYTES];
    ssize_t n = read_names(link, names);

    for (const char *name = names; name < names + n; name += strlen(name) + 1)
        if (key_of(name, prefix))
            removexattr(link, name);
}

static int set_one(const char *link, const char *prefix, const char *key, const char *value,
                   struct cove_err *e)
{
    char name[NAME_MAX_BYTES];

    if ((size_t)snprintf(name, sizeof(name), "user.%s.%s", prefix, key) >= sizeof(name))
        return cove_fail(e, COVE_INVALID, "'%.60s': the name is too long", key);
    if (setxattr(link, name, value, strlen(value), 0) == 0 || errno == ENOTSUP)
        return 0;
    return file_fail(e, key);
}

/* Safe: a bounded number of attributes of a file inside. */
int on_mark(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    const struct box_file *args = m->body;
    const char *strings[3 + 2 * MAX_MARKS];
    AUTO_CLOSE int fd = -1;
    char link[PATH_OF_FD];

    (void)in;
    if (args->mode > MAX_MARKS || tail_strings(m, sizeof(*args), strings, 3 + 2 * args->mode) < 0)
        return CUT_OFF;
    fd = open_target(strings[1], link, e);
    if (fd < 0)
        return -1;
    remove_all(link, strings[2]);
    for (uint32_t i = 0; i < args->mode; i++)
        if (set_one(link, strings[2], strings[3 + 2 * i], strings[4 + 2 * i], e) < 0)
            return -1;
    conn_send(c, MSG_DONE, m->head.tag, NULL, 0);
    return 0;
}

/* Append key and value, if they are text and fit. */
static void add_mark(const char *link, const char *name, const char *key, char *page, size_t *len)
{
    char value[VALUE_MAX_BYTES + 1];
    ssize_t n = getxattr(link, name, value, VALUE_MAX_BYTES);
    size_t key_len = strlen(key) + 1;

    if (n < 0 || memchr(value, '\0', (size_t)n) || *len + key_len + (size_t)n + 1 > PAGE_BYTES)
        return;
    value[n] = '\0';
    memcpy(page + *len, key, key_len);
    memcpy(page + *len + key_len, value, (size_t)n + 1);
    *len += key_len + (size_t)n + 1;
}

/* Safe: the answer is one page at most. */
int on_marks(struct init *in, struct conn *c, struct msg *m, struct cove_err *e)
{
    static LARGE char names[NAMES_BYTES];
    const char *strings[3], *key;
    AUTO_CLOSE int fd = -1;
    char link[PATH_OF_FD];
    size_t len = 0;
    ssize_t n;

    (void)in;
    if (tail_strings(m, sizeof(struct box_file), strings, 3) < 0)
        return CUT_OFF;
    fd = open_target(strings[1], link, e);
    if (fd < 0)
        return -1;
    n = read_names(link, names);
    for (const char *name = names; name < names + n; name += strlen(name) + 1)
        if ((key = key_of(name, strings[2])))
            add_mark(link, name, key, init_page, &len);
    conn_send_tail(c, BOX_MARKED, m->head.tag, NULL, 0, init_page, len);
    return 0;
}
