/*
 * Notes: short texts that one worker leaves for another, in shared memory (a part of the meters' file).
 * A request of a session may reach any worker process. If it concerns another request of that session (cancel
 * it, watch a file in it, the session is over), the worker leaves a note, and the thread that serves the other
 * request looks for it.
 *
 * A note has a time after which it is gone. One tenant has a bounded number of notes. A worker that dies
 * at any instruction leaves at most a note that nobody finds until its time is over. A worker that was
 * taken over can write any note: the worst effect of one is that a call ends early, or that the session's owner
 * hears of a file's change.
 */
#ifndef COVE_NOTES_H
#define COVE_NOTES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "cove/err.h"

enum {
    NOTES_MAX = 4096,
    NOTES_PER_TENANT = 64,
    NOTE_TEXT_MAX = 216, /* with its NUL */
};

struct note {
    _Atomic uint64_t until_ms; /* CLOCK_BOOTTIME; in the past: free */
    _Atomic uint64_t about;    /* hash of kind and session; 0: is being written */
    _Atomic uint64_t tenant;   /* hash */
    _Atomic uint64_t check;    /* hash of the text: a text that is being changed does not fit */
    _Atomic uint64_t reserved;
    char text[NOTE_TEXT_MAX];
};

struct notes {
    _Atomic uint64_t turn; /* grows with every change, so that whoever waits need not search */
    struct note items[NOTES_MAX];
};

/* Leaves a note, or prolongs the one that says the same. COVE_LIMIT: this tenant has too many. */
int notes_put(struct notes *n, const char *kind, const char *tenant, const char *session,
              const char *text, uint64_t for_ms, struct cove_err *e);
bool notes_has(struct notes *n, const char *kind, const char *session, const char *text);
void notes_drop(struct notes *n, const char *kind, const char *session, const char *text);
/* Calls `each` for all notes of that kind; with for_ms > 0 they live on for at least that long. */
void notes_each(struct notes *n, const char *kind, const char *session, uint64_t for_ms,
                void (*each)(void *arg, const char *text), void *arg);
uint64_t notes_turn(const struct notes *n);

#endif
