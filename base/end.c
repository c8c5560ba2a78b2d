#include "config.h" /* _GNU_SOURCE */

#include "cove/end.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cove/text.h"

enum { EXIT_DEADLINE = 124, EXIT_SIGNAL = 128 }; /* as timeout(1) and the shells have it */

static const uint64_t last_unix_ms = 253402300799999; /* the end of the year 9999 */

static void format_count(uint64_t count, char out[32])
{
    snprintf(out, 32, "%llu", (unsigned long long)count);
}

/* The words for each cause of an end. A cause that is a limit is told as "words (figure) reached". */
static const struct cause {
    const char *name, *words;
    void (*format)(uint64_t limit, char out[32]);
} causes[END_CAUSE_COUNT] = {
    [END_OWN] = { "own", "", NULL },
    [END_DEADLINE] = { "deadline", "deadline", text_format_ms },
    [END_MEMORY] = { "memory", "memory limit", text_format_bytes },
    [END_PIDS] = { "pids", "process limit", format_count },
    [END_DISK] = { "disk", "disk limit", text_format_bytes },
    [END_OUTPUT] = { "output", "output limit", text_format_bytes },
    [END_POLICY] = { "policy", "limit of refusals by the policy", format_count },
    [END_CLIENT] = { "client", "killed because the client went away", NULL },
    [END_KILLED] = { "killed", "killed on request", NULL },
    [END_GONE] = { "gone", "the sandbox ended", NULL },
    [END_SERVER] = { "server", "killed because the server restarts", NULL },
    [END_EXPIRED] = { "expired", "lifetime of the sandbox", text_format_ms },
    [END_SAVED] = { "saved", "ended because its sandbox was paused to storage", NULL },
};

int end_exit_code(const struct cove_end *end)
{
    if (end->cause == END_DEADLINE)
        return EXIT_DEADLINE;
    return end->signal ? EXIT_SIGNAL + end->signal : end->exit_code;
}

const char *end_cause_name(uint32_t cause)
{
    return causes[cause < END_CAUSE_COUNT ? cause : END_OWN].name;
}

static void describe_own(const struct cove_end *end, char *out, size_t out_size)
{
    const char *name = end->signal ? sigabbrev_np(end->signal) : NULL;

    if (name)
        snprintf(out, out_size, "killed by signal %d (SIG%s)", end->signal, name);
    else if (end->signal) /* a real-time signal has no name of its own */
        snprintf(out, out_size, "killed by signal %d", end->signal);
    else if (end->exit_code)
        snprintf(out, out_size, "exit code %d", end->exit_code);
    else
        snprintf(out, out_size, "%s", "");
}

void end_describe(const struct cove_end *end, char *out, size_t out_size)
{
    const struct cause *cause = &causes[end->cause < END_CAUSE_COUNT ? end->cause : END_OWN];
    char figure[32];

    if (cause == &causes[END_OWN]) {
        describe_own(end, out, out_size);
    } else if (!cause->format) {
        snprintf(out, out_size, "%s", cause->words);
    } else if (end->limit == 0) {
        snprintf(out, out_size, "%s reached", cause->words);
    } else {
        cause->format(end->limit, figure);
        snprintf(out, out_size, "%s (%s) reached", cause->words, figure);
    }
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

void end_sanitize(struct cove_end *end)
{
    if (end->cause >= END_CAUSE_COUNT)
        end->cause = END_OWN;
    if (end->signal < 0 || end->signal > SIGRTMAX)
        end->signal =
            SIGKILL; /* the sender says that the process was killed: keep that, with a signal that exists */
    end->exit_code = end->signal ? 0 : end->exit_code & 0xFF;
    end->started_unix_ms = at_most(end->started_unix_ms, last_unix_ms);
    end->ended_unix_ms = at_most(end->ended_unix_ms, last_unix_ms);
    if (end->ended_unix_ms && end->ended_unix_ms < end->started_unix_ms)
        end->ended_unix_ms = end->started_unix_ms;
}
