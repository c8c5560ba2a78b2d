/* Back-off: after each wrong guess the next one has to wait longer. Failures are counted for names and for
 * addresses, in a table that cannot grow. */
#ifndef COVE_AUTH_BACKOFF_H
#define COVE_AUTH_BACKOFF_H

#include <stdint.h>

enum { BACKOFF_SLOTS = 1024, BACKOFF_FREE_TRIES = 3, BACKOFF_MAX_MS = 300000 };

struct backoff_slot {
    char who[96];
    uint32_t failures;
    uint64_t until_ms; /* not asked again before this */
};

struct backoff {
    struct backoff_slot slots[BACKOFF_SLOTS];
};

/* How long to wait, in milliseconds; 0: go ahead. */
uint64_t backoff_wait(const struct backoff *b, const char *who, uint64_t now_ms);
void backoff_failed(struct backoff *b, const char *who, uint64_t now_ms);
void backoff_succeeded(struct backoff *b, const char *who);

#endif
