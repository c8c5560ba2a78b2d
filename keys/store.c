/*
 * Editing the file of keys. The lock is on a file beside it, because the file itself is replaced by
 * rename: whoever waits for a lock on the old inode would edit what nobody reads any more.
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

/* A file that is not there is empty. */
static int read_all(const char *path, char **ret, struct cove_err *e)
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

int keys_load(const char *path, struct keys *ret, struct cove_err *e)
{
    AUTO_FREE char *text = NULL;

    if (read_all(path, &text, e) < 0)
        return -1;
    return keys_parse(text, ret, e) < 0 ? cove_context(e, "%s", path) : 0;
}

int keys_edit_begin(const char *path, struct keys_edit *ret, struct cove_err *e)
{
    struct keys_edit edit = { .lock_fd = -1 };
    char lock[520];

    if (!text_copy(edit.path, sizeof(edit.path), path))
        return cove_fail(e, COVE_INVALID, "path too long");
    snprintf(lock, sizeof(lock), "%s.lock", path);
    edit.lock_fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (edit.lock_fd < 0 || flock(edit.lock_fd, LOCK_EX) < 0) {
        cove_fail_errno(e, COVE_INVALID, "%s", lock);
        keys_edit_done(&edit);
        return -1;
    }
    if (read_all(path, &edit.text, e) < 0 || keys_parse(edit.text, &edit.keys, e) < 0) {
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

/* All lines but that of `drop`. */
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

int keys_edit_commit(struct keys_edit *edit, const struct key *drop, const struct key *add,
                     size_t add_count, struct cove_err *e)
{
    char aside[520];
    struct buf b;
    int rc = 0;

    buf_init(&b, KEYS_FILE_MAX);
    copy_lines(edit->text, drop, &b);
    for (size_t i = 0; i < add_count; i++)
        keys_format(&add[i], &b);
    snprintf(aside, sizeof(aside), "%s.new", edit->path);
    if (b.overflow)
        rc = cove_fail(e, COVE_TOO_LARGE, "%s: would be larger than %d bytes", edit->path,
                       (int)KEYS_FILE_MAX);
    else if (write_aside(edit->path, aside, &b, e) < 0)
        rc = -1;
    else if (rename(aside, edit->path) < 0)
        rc = cove_fail_errno(e, COVE_INTERNAL, "%s", edit->path);
    if (rc < 0)
        unlink(aside);
    buf_done(&b);
    return rc;
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
