/* What the files of `cove store` share. */
#ifndef CLI_STORE_H
#define CLI_STORE_H

#include <stdbool.h>

#include "cove/bucket.h"
#include "cove/config.h"
#include "cove/err.h"
#include "cove/saved.h"

struct store_place {
    struct cove_config config;
    int state_dir;
    int dir; /* <state_dir>/saved */
    /* --json: a list, with an object for each sandbox; NULL: for people */
    struct json_writer *json;
};

struct store_entry {
    const char *name; /* of its directory */
    struct saved_info info;
    bool whole; /* info was read */
    enum saved_place place;
    struct cove_err why;
};

/* store_entries.c */
int store_place_open(struct store_place *p, struct cove_err *e);
/* Fills in what can be found out about the directory `name`, which need not be whole. */
void store_entry_read(const struct store_place *p, const char *name, struct store_entry *ret);
typedef int (*store_entry_fn)(struct store_place *p, const struct store_entry *entry, void *arg,
                              struct cove_err *e);
int store_entries_each(struct store_place *p, store_entry_fn fn, void *arg, struct cove_err *e);
/* Finds a saved sandbox that is whole. */
int store_entry_find(struct store_place *p, const char *id, struct saved_info *ret,
                     struct cove_err *e);
/* Is the archive of this saved sandbox in the bucket? */
bool store_is_in_bucket(const struct store_place *p, const char *id);
/* Is this a sandbox that is not here and may be in the bucket, where another machine has put it? */
bool store_is_elsewhere(const struct store_place *p, const char *id);

/* store_bucket.c */
/* Writes the archive of a saved sandbox in the bucket to `out` (-1: nowhere) and compares it with its
 * digest. */
int store_bucket_get(struct store_place *p, const struct saved_info *s, int out,
                     struct cove_err *e);
/* Prints the manifest of a saved sandbox that is in the bucket and not on this machine. */
int store_bucket_show(struct store_place *p, const char *id, struct cove_err *e);
int store_bucket_ls(struct store_place *p, struct cove_err *e);
/* Takes over a sandbox that another machine has saved: it becomes a saved sandbox of this machine. */
int store_bucket_adopt(struct store_place *p, const char *id, bool force, struct cove_err *e);
/* Removes everything that the bucket has of this sandbox. */
int store_bucket_rm(struct store_place *p, const char *id, struct cove_err *e);
int store_bucket_gc(struct store_place *p, struct cove_err *e);
struct store_news { /* what was done with one sandbox, or found out about it */
    const char *id;
    const char *state, *file, *why; /* one of them; the others are NULL */
};

/* Prints a line `ID: WORDS`, or with --json an object. */
void store_tell(const struct store_place *p, const struct store_news *news);

#endif
