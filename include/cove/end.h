/* How a command ended, truthfully: one record that the core carries to every dialect. */
#ifndef COVE_END_H
#define COVE_END_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum end_cause {
    END_OWN,      /* it ended by itself: exit(), or a signal from inside the sandbox */
    END_DEADLINE, /* limit: milliseconds */
    END_MEMORY,   /* limit: bytes */
    END_PIDS,     /* limit: processes */
    END_DISK,     /* limit: bytes */
    END_OUTPUT,   /* limit: bytes */
    END_POLICY,   /* refused at exec time again and again; limit: refusals */
    END_CLIENT,   /* whoever waited for it went away */
    END_KILLED,   /* asked for through the API */
    END_GONE,     /* its sandbox ended (killed, or its init died) */
    END_SERVER,   /* the server was restarted and could not wait for it */
    END_EXPIRED,  /* its sandbox reached the end of its lifetime; limit: milliseconds */
    END_SAVED,    /* its sandbox was paused to storage: files stay, processes end */
    END_CAUSE_COUNT
};

struct cove_end {
    int32_t exit_code; /* valid when signal is 0 */
    int32_t signal;    /* 0, or the signal that ended it */
    uint32_t cause;    /* enum end_cause */
    uint32_t denied;   /* how many execve calls the policy refused on the way */
    uint64_t limit;    /* the figure of the limit that was hit, 0 if none */
    uint64_t started_unix_ms;
    uint64_t ended_unix_ms;
};

/* Did the command end neither by itself nor by a limit of its own, but because its sandbox went away? */
static inline bool end_was_taken_away(uint32_t cause)
{
    return cause == END_GONE || cause == END_SERVER || cause == END_EXPIRED || cause == END_SAVED;
}

/* One number as a shell would show it: the exit code, 128 + signal, 124 for a deadline. */
int end_exit_code(const struct cove_end *end);

/* The cause's name in lower case ("memory"), for JSON and logs. */
const char *end_cause_name(uint32_t cause);

/* "memory limit (512 MiB) reached", "killed by signal 9 (SIGKILL)", "exit code 3", "". */
void end_describe(const struct cove_end *end, char *out, size_t out_size);

/* A record that came from inside a sandbox may hold any bytes: brings its members into the ranges above. */
void end_sanitize(struct cove_end *end);

#endif
