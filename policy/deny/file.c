/* Reading a policy: policy.conf, what it includes, and policy.d/ beside it, as one text. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "policy/deny/policy_private.h"

static int bundle_file(struct buf *out, const char *path, enum bundle_mark mark, unsigned depth,
                       struct cove_err *e);

static int read_all(int fd, const char *path, struct buf *content, struct cove_err *e)
{
    for (;;) {
        char *room = buf_reserve(content, 16 * 1024);
        ssize_t n;

        if (!room)
            return cove_fail(e, COVE_TOO_LARGE, "%s: larger than %d bytes", path,
                             POLICY_BUNDLE_MAX);
        n = read(fd, room, 16 * 1024);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cove_fail_errno(e, COVE_INVALID, "%s", path);
        if (n == 0)
            return 0;
        content->len += (size_t)n;
    }
}

/* O_NONBLOCK: a FIFO put in the file's place must not make us wait for a writer. */
static int open_regular(const char *path, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0)
        return cove_fail_errno(e, errno == ENOENT ? COVE_NOT_FOUND : COVE_INVALID, "%s", path);
    if (!S_ISREG(st.st_mode))
        return cove_fail(e, COVE_INVALID, "%s: not a regular file", path);
    *ret = take_fd(&fd);
    return 0;
}

static void position(const char *content, size_t at, unsigned *ret_line, unsigned *ret_column)
{
    *ret_line = *ret_column = 1;
    for (size_t i = 0; i < at; i++) {
        *ret_column = content[i] == '\n' ? 1 : *ret_column + 1;
        *ret_line += content[i] == '\n';
    }
}

/* Refuses control characters, other encodings, and a last line without its line feed. */
static int check_content(const char *path, const struct buf *content, struct cove_err *e)
{
    const char *what = NULL;
    unsigned line, column;
    size_t at = 0;

    while (at < content->len && !what) {
        unsigned char c = (unsigned char)content->data[at];
        size_t seq = text_utf8_seq(content->data + at, content->len - at);

        if (seq == 0)
            what = "not UTF-8 text";
        else if ((c < ' ' && c != '\n' && c != '\t' && c != '\r') || c == 127)
            what = "a control character: is this a binary file?";
        else
            at += seq;
    }
    if (!what && content->len && content->data[content->len - 1] != '\n')
        what = "the last line has no end: is the file half-written?";
    if (!what)
        return 0;
    position(content->data, at, &line, &column);
    return cove_fail(e, COVE_INVALID, "%s:%u:%u: %s", path, line, column, what);
}

static int read_file(const char *path, struct buf *content, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;

    if (open_regular(path, &fd, e) < 0 || read_all(fd, path, content, e) < 0)
        return -1;
    return check_content(path, content, e);
}

/* `include FILE`: the name, or NULL. It may be quoted; a comment may follow. */
static bool include_name(const char *line, size_t len, char *name, size_t size)
{
    size_t i = strspn(line, " \t"), n = 0; /* ends at the newline at the latest */
    char quote = '\0';

    if (len - i < 9 || memcmp(line + i, "include", 7) != 0 || !strchr(" \t", line[i + 7]))
        return false;
    for (i += 7; i < len && strchr(" \t", line[i]); i++)
        ;
    if (i < len && line[i] == '"')
        quote = line[i++];
    while (i + n < len && n + 1 < size &&
           (quote ? line[i + n] != quote : !strchr(" \t\r#", line[i + n])))
        n++;
    memcpy(name, line + i, n);
    name[n] = '\0';
    return n > 0;
}

/* Relative names are relative to the file that says include. */
static void resolve(const char *from, const char *name, char *out, size_t size)
{
    const char *slash = strrchr(from, '/');

    if (name[0] == '/' || !slash)
        snprintf(out, size, "%s", name);
    else
        snprintf(out, size, "%.*s/%s", (int)(slash - from), from, name);
}

static int add_mark(struct buf *out, enum bundle_mark mark, unsigned line, const char *path,
                    struct cove_err *e)
{
    if (buf_addf(out, "%c%c%u %s\n", BUNDLE_MARK, mark, line, path) < 0)
        return cove_fail(e, COVE_TOO_LARGE, "%s: the whole policy is larger than %d bytes", path,
                         POLICY_BUNDLE_MAX);
    return 0;
}

static int add_line(struct buf *out, const char *path, unsigned number, const char *line,
                    size_t len, unsigned depth, struct cove_err *e)
{
    char name[PATH_MAX / 2], included[PATH_MAX];

    if (!include_name(line, len, name, sizeof(name))) {
        if (buf_add(out, line, len) < 0 || buf_add_char(out, '\n') < 0)
            return cove_fail(e, COVE_TOO_LARGE, "%s: the whole policy is larger than %d bytes",
                             path, POLICY_BUNDLE_MAX);
        return 0;
    }
    if (depth == POLICY_INCLUDE_DEPTH)
        return cove_fail(e, COVE_INVALID, "%s:%u:1: include: more than %d deep: is it a loop?",
                         path, number, POLICY_INCLUDE_DEPTH);
    resolve(path, name, included, sizeof(included));
    if (bundle_file(out, included, MARK_ENTER, depth + 1, e) < 0)
        return depth == 0 ? cove_context(e, "%s:%u:1: include", path, number) : -1;
    return add_mark(out, MARK_LEAVE, number + 1, path, e);
}

static int add_lines(struct buf *out, const char *path, const struct buf *content, unsigned depth,
                     struct cove_err *e)
{
    const char *line = content->data, *end = content->len ? line + content->len : line;

    for (unsigned number = 1; line < end; number++) {
        size_t len = (size_t)((const char *)memchr(line, '\n', (size_t)(end - line)) - line);

        if (add_line(out, path, number, line, len, depth, e) < 0)
            return -1;
        line += len + 1;
    }
    return 0;
}

static int bundle_file(struct buf *out, const char *path, enum bundle_mark mark, unsigned depth,
                       struct cove_err *e)
{
    struct buf content;
    int r;

    buf_init(&content, POLICY_BUNDLE_MAX);
    r = read_file(path, &content, e);
    if (r == 0)
        r = add_mark(out, mark, 1, path, e);
    if (r == 0)
        r = add_lines(out, path, &content, depth, e);
    buf_done(&content);
    return r;
}

/* --- policy.d -------------------------------------------------------------------------------- */

static int is_conf(const struct dirent *d)
{
    size_t n = strlen(d->d_name);

    return d->d_name[0] != '.' && n > 5 && strcmp(d->d_name + n - 5, ".conf") == 0;
}

/* Files are sorted by their bytes, not by the locale, so that the order is the same on every machine. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* policy.conf -> policy.d */
static bool dropin_dir(const char *path, char *out, size_t size)
{
    size_t n = strlen(path);

    if (n < 5 || strcmp(path + n - 5, ".conf") != 0 || n >= size)
        return false;
    snprintf(out, size, "%.*s.d", (int)(n - 5), path);
    return true;
}

static int bundle_dir(struct buf *out, const char *dir, struct cove_err *e)
{
    struct dirent **names = NULL;
    int count = scandir(dir, &names, is_conf, by_name), r = 0;

    if (count < 0)
        return errno == ENOENT ? 0 : cove_fail_errno(e, COVE_INVALID, "%s", dir);
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX + NAME_MAX + 2];

        snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
        if (r == 0)
            r = bundle_file(out, path, MARK_FILE, 0, e);
        free(names[i]);
    }
    free(names);
    return r;
}

int policy_bundle_read(const char *path, char **ret, size_t *ret_len, struct cove_err *e)
{
    struct buf out;
    char dir[PATH_MAX];

    buf_init(&out, POLICY_BUNDLE_MAX);
    if (bundle_file(&out, path, MARK_FILE, 0, e) < 0 ||
        (dropin_dir(path, dir, sizeof(dir)) && bundle_dir(&out, dir, e) < 0)) {
        buf_done(&out);
        return -1;
    }
    *ret = out.data;
    *ret_len = out.len;
    return 0;
}

/* Marks of the first two kinds name a file; "SOH kind line blank path newline". */
bool policy_bundle_file(const char *bundle, size_t len, size_t *at, char *out, size_t size)
{
    while (*at < len) {
        const char *line = bundle + *at, *end = memchr(line, '\n', len - *at), *path;
        size_t n = end ? (size_t)(end - line) : len - *at;

        *at += n + 1;
        if (n < 4 || line[0] != BUNDLE_MARK || line[1] == MARK_LEAVE)
            continue;
        path = memchr(line, ' ', n);
        if (!path || (size_t)(line + n - path) > size)
            continue;
        memcpy(out, path + 1, (size_t)(line + n - path) - 1);
        out[line + n - path - 1] = '\0';
        return true;
    }
    return false;
}
