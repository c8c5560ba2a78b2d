/*
 * Meters: what workers measure and share among themselves, in <run_dir>/meters. Requests by dialect
 * and status, how long they took, and how fast each tenant and key is calling. Nothing the keeper
 * does depends on it, and a worker that dies at any instruction leaves it whole: no word depends on
 * another.
 */
#ifndef COVE_METERS_H
#define COVE_METERS_H

#include <stdint.h>
#include <sys/types.h>

#include "cove/endings.h"
#include "cove/err.h"
#include "cove/notes.h"
#include "cove/replay.h"

enum { METER_DIALECTS = 8, METER_STATUS_MAX = 600, METER_BUCKETS = 14 };

extern const uint32_t meter_bounds_ms[METER_BUCKETS]; /* the last is followed by infinity */

struct meters; /* a mapping */

/* For the keeper: makes the file if there is none of this version. The keeper does not map it. */
int meters_make(const char *path, gid_t worker_gid, struct cove_err *e);
int meters_attach(const char *path, struct meters **ret, struct cove_err *e);
void meters_close(struct meters *m);

/* Notes that workers leave for each other (cove/notes.h). */
struct notes *meters_notes(struct meters *m);
/* Streams that a client may pick up again (cove/replay.h). */
struct replays *meters_replays(struct meters *m);
/* How the latest commands of sandboxes ended (cove/endings.h). */
struct endings *meters_endings(struct meters *m);

/* Counts a request that was answered. dialect: enum cove_dialect. */
void meters_request(struct meters *m, uint32_t dialect, int status, uint64_t duration_ms);

/*
 * May `who` call once more, at `per_second`? A second's worth may come at once. Returns 0, or how many
 * milliseconds to wait; a refused call does not count.
 */
uint64_t meters_admit(struct meters *m, const char *kind, const char *who, uint64_t per_second,
                      uint64_t now_us);

uint64_t meters_replies(const struct meters *m, uint32_t dialect, int status);
struct meter_histogram {
    uint64_t buckets[METER_BUCKETS + 1]; /* not cumulative */
    uint64_t sum_ms;
};
void meters_histogram(const struct meters *m, uint32_t dialect, struct meter_histogram *ret);

#endif
