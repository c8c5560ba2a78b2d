/* What the files of the saver share. */
#ifndef COVE_SAVER_PRIVATE_H
#define COVE_SAVER_PRIVATE_H

#include <nettle/sha2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/err.h"
#include "cove/saved.h"

struct archive;
struct archive_entry;

/* What a sandbox's own files are called on disk, and what they are called in an archive. */
struct saver_part {
    const char *on_disk, *in_archive;
};
enum { SAVER_PARTS = 2 };
extern const struct saver_part saver_parts[SAVER_PARTS];

#define SAVER_OPAQUE "user.overlay.opaque"

/* Unpacking remembers all directories, because their times and modes are set last; those with paths that are too long for one
 * call it remembers twice. What needs more memory than this could not be unpacked, so it is not packed. */
enum { SAVER_DIRS_BYTES = 384 << 20 };

int saver_fail_archive(struct archive *a, const char *path, struct cove_err *e);
/* Removes from an entry the file flags and the extended attributes that `keep` does not want. keep() sees a copy of
 * the entry that has all of its attributes. */
typedef bool saver_keep_fn(struct archive_entry *all, const char *name, const void *value,
                           size_t size);
void saver_filter_attributes(struct archive_entry *entry, saver_keep_fn *keep);

/* pack.c: the root directory of this process into the archive `out`, then read again and compared. */
int saver_pack(int out, const struct saver_order *order, struct saver_report *ret,
               struct cove_err *e);
/* unpack.c: the archive `in`, which must be what the order expects, into the root directory. */
int saver_unpack(int in, const struct saver_order *order, struct saver_report *ret,
                 struct cove_err *e);
/* digest.c */
int saver_digest(int fd, uint64_t *ret_bytes, char ret[SAVED_DIGEST_TEXT], struct cove_err *e);

struct sha { /* a digest that grows with the bytes that pass */
    struct sha256_ctx ctx;
    uint64_t bytes;
};
void sha_init(struct sha *s);
void sha_add(struct sha *s, const void *bytes, size_t len);
void sha_end(struct sha *s, char ret[SAVED_DIGEST_TEXT]);

/* read_back.c: the digest of an archive as the disk has it, computed behind its writer. */
struct read_back;
int read_back_new(int fd, struct read_back **ret, struct cove_err *e);
void read_back_tell(struct read_back *r, uint64_t written); /* so many bytes are in the file */
/* The writer has finished: writes the rest out to the disk, reads it and returns the digest. */
int read_back_end(struct read_back *r, uint64_t written, char ret[SAVED_DIGEST_TEXT],
                  struct cove_err *e);
void read_back_free(struct read_back *r); /* NULL is fine */

#endif
