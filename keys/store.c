/*
 * Editing the files of keys and operators. The lock is on a file beside each, because the file itself is replaced by
 * rename: a process that waited for a lock on the old inode would edit a file that nobody reads any more.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "keys/keys_private.h"

int lines_read(const char *path, char **ret, struct cove_err *e)
{
    struct cove_err why;
    size_t len;

    if (file_read(path, KEYS_FILE_MAX, ret, &len, &why) == 0)
        return 0;
    if (why.errnum == ENOENT && (*ret = strdup("")))
        return 0;
    if (e)
        *e = why;
    return -1;
}

int lines_lock(const char *path, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;
    char lock[520];

    snprintf(lock, sizeof(lock), "%s.lock", path);
    fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return cove_fail_errno(e, COVE_INVALID, "%s", lock);
    return take_fd(&fd);
}

int keys_load(const char *path, struct keys *ret, struct cove_err *e)
{
    AUTO_FREE char *text = NULL;

    if (lines_read(path, &text, e) < 0)
        return -1;
    return keys_parse(text, ret, e) < 0 ? cove_context(e, "%s", path) : 0;
}

int keys_edit_begin(const char *path, struct keys_edit *ret, struct cove_err *e)
{
    struct keys_edit edit = { .lock_fd = -1 };

    if (!text_copy(edit.path, sizeof(edit.path), path))
        return cove_fail(e, COVE_INVALID, "path too long");
    edit.lock_fd = lines_lock(path, e);
    if (edit.lock_fd < 0)
        return -1;
    if (lines_read(path, &edit.text, e) < 0 || keys_parse(edit.text, &edit.keys, e) < 0) {
        keys_edit_done(&edit);
        return cove_context(e, "%s", path);
    }
    *ret = edit;
    return 0;
}

void keys_edit_done(struct keys_edit *edit)
{
    edit->lock_fd = cove_close(edit->lock_fd);
    free(take_ptr(edit->text));
    keys_done(&edit->keys);
}

/* Copies all lines except that of `drop`. */
static void copy_lines(const char *text, const struct key *drop, struct buf *out)
{
    char hex[2 * KEY_HASH_BYTES + 1] = "";

    if (drop)
        text_hex(drop->hash, KEY_HASH_BYTES, hex);
    while (*text) {
        size_t len = strcspn(text, "\n");
        size_t blanks = strspn(text, " \t");

        if (!drop || strncmp(text + blanks, hex, sizeof(hex) - 1) != 0) {
            buf_add(out, text, len);
            buf_add_char(out, '\n');
        }
        text += len + (text[len] == '\n');
    }
}

/* Owner and mode stay as the operator set them; a new file is root's alone. */
static int write_aside(const char *path, const char *aside, const struct buf *b, struct cove_err *e)
{
    struct stat st = { .st_mode = 0600, .st_uid = geteuid(), .st_gid = getegid() };
    AUTO_CLOSE int fd = -1;

    (void)stat(path, &st);
    unlink(aside);
    fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fchown(fd, st.st_uid, st.st_gid) < 0 || fchmod(fd, st.st_mode & 0666) < 0 ||
        write(fd, b->data ? b->data : "", b->len) != (ssize_t)b->len || fsync(fd) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "%s", aside);
    return 0;
}

int lines_replace(const char *path, const struct buf *b, struct cove_err *e)
{
    char aside[520];
    int rc = 0;

    snprintf(aside, sizeof(aside), "%s.new", path);
    if (b->overflow)
        return cove_fail(e, COVE_TOO_LARGE, "%s: would be too large", path);
    if (write_aside(path, aside, b, e) < 0)
        rc = -1;
    else if (rename(aside, path) < 0)
        rc = cove_fail_errno(e, COVE_INTERNAL, "%s", path);
    if (rc < 0)
        unlink(aside);
    return rc;
}

int keys_edit_commit(struct keys_edit *edit, const struct key *drop, const struct key *add,
                     size_t add_count, struct cove_err *e)
{
    AUTO_BUF struct buf b = BUF(KEYS_FILE_MAX);

    copy_lines(edit->text, drop, &b);
    for (size_t i = 0; i < add_count; i++)
        keys_format(&add[i], &b);
    return lines_replace(edit->path, &b, e);
}

void keys_new(char ret_text[KEY_TEXT_LEN + 1], struct key *ret)
{
    unsigned char secret[20];

    text_random(secret, sizeof(secret));
    memcpy(ret_text, DIALECT_KEY_PREFIX, KEY_PREFIX_LEN);
    text_hex(secret, sizeof(secret), ret_text + KEY_PREFIX_LEN);
    keys_hash(ret_text, ret->hash);
    ret->created_s = clock_unix_ms() / 1000;
}
