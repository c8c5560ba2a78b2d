/*
 * Spool files: where a worker keeps the bytes of an upload whose sandbox it does not know yet. A worker
 * has a fixed number of them, made before it confines itself: files without a name below state_dir, which
 * end with the worker. Each is empty while no upload uses it.
 */
#ifndef COVE_FCGI_SPOOL_H
#define COVE_FCGI_SPOOL_H

#include <stdint.h>

#include "cove/err.h"
#include "cove/msg.h"

enum { SPOOLS = 4 };

struct spool { /* one upload */
    int slot;  /* -1: none */
    int fd;
    uint64_t written, most;
};

/* dir: where the files are made; it is not needed afterwards. Without it there are no spool files. */
int spool_init(int dir, uint64_t reserve_bytes, struct cove_err *e);

/*
 * COVE_BUSY: all of them are in use, or this tenant has its share. `most` bytes are the upload's own
 * limit; tenant_most (0: none) is what all spool files of the tenant may hold together.
 */
int spool_take(const char *tenant, uint64_t most, uint64_t tenant_most, struct spool *ret,
               struct cove_err *e);
int spool_write(struct spool *s, const char *bytes, size_t len, struct cove_err *e);
void spool_release(struct spool *s); /* may be called for one that was never taken (slot -1) */

#endif
