/*
 * Templates that a tenant builds: what cove-builder is asked (cove/build.h). Builds go on without the
 * worker that started them.
 *
 *   COVE_NOT_FOUND  no such build, or another tenant's
 *   COVE_INVALID    the order, or a name, is wrong
 *   COVE_QUOTA      the tenant has too many builds under way
 *   COVE_BUSY       no builder answers, or the server is full
 *   COVE_FORBIDDEN  the key or token is for some projects or one sandbox only
 */
#ifndef COVE_FCGI_CORE_BUILDS_H
#define COVE_FCGI_CORE_BUILDS_H

#include "cove/build.h"
#include "fcgi/core_snapshots.h"

struct core_build {          /* a build that a client asks for */
    const char *name, *tags; /* tags: separated by spaces */
    uint32_t dialect;        /* enum cove_dialect that asks */
    /* cpus of each sandbox of the template; 0 = the template sets no limit of its own */
    uint32_t cpus;
    uint64_t memory_bytes; /* likewise */
};

int core_build_new(struct core *c, const char *tenant, const struct core_build *asked,
                   struct build_info *ret, struct cove_err *e);
/* order: pairs of strings, as cove/build.h says. */
int core_build_start(struct core *c, const char *tenant, const char *id, const struct buf *order,
                     struct cove_err *e);
/* tail gets ret->count entries: struct build_entry and two strings each. */
int core_build_ask(struct core *c, const struct build_ask *ask, struct build_told *ret,
                   struct buf *tail, struct cove_err *e);
/* Takes the next entry out of a tail that core_build_ask() filled; false: there is no further entry. */
bool core_build_next_entry(const char **at, const char *end, struct build_entry *ret,
                           const char **ret_step, const char **ret_message);
/* name: "" = of all templates. */
int core_build_list(struct core *c, const char *tenant, const char *name, struct build_listed *ret,
                    struct cove_err *e);
/* Ends the builds of this name and forgets them. */
int core_build_forget(struct core *c, const char *tenant, const char *name, struct cove_err *e);

/* Were these files uploaded? */
int core_build_has_files(struct core *c, const char *tenant, const char *hash, bool *ret,
                         struct cove_err *e);
/* Bytes written to `fd` become the files of this name with core_build_uploaded(); closing `sock` before
 * that gives them up. No key is checked: the caller has checked a signature. */
struct core_upload {
    int sock, fd;
};
int core_build_upload(struct core *c, const struct build_file *args, struct core_upload *ret,
                      struct cove_err *e);
int core_build_uploaded(struct core_upload *u, struct cove_err *e);
void core_upload_done(struct core_upload *u);

#endif
