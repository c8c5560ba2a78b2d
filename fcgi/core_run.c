/* A command in a sandbox, and what is counted and remembered of its end. run.c moves the bytes. */
#include "fcgi/core.h"

#include <string.h>

#include "cove/endings.h"
#include "cove/mem.h"
#include "cove/meters.h"

/* The keeper leaves in shared memory why it ended a sandbox, until the slot is used again. */
static void explain_gone(const struct core_session *s, struct cove_end *end)
{
    struct box_info info;

    state_box_read(s->core->state, s->box.index, &info);
    if (info.generation != s->box.generation ||
        (info.end_cause != END_EXPIRED && info.end_cause != END_SAVED))
        return;
    end->cause = info.end_cause;
    end->limit = info.end_limit;
}

static void count_end(struct core *c, const struct run_result *r)
{
    static const enum state_counter counters[END_CAUSE_COUNT] = {
        [END_DEADLINE] = COUNT_DEADLINES,  [END_MEMORY] = COUNT_OOM,
        [END_PIDS] = COUNT_PIDS_LIMIT,     [END_DISK] = COUNT_DISK_LIMIT,
        [END_OUTPUT] = COUNT_OUTPUT_LIMIT, [END_CLIENT] = COUNT_CLIENT_GONE,
    };
    enum state_counter counter = r->end.cause < END_CAUSE_COUNT ? counters[r->end.cause] : 0;

    core_count(c, COUNT_SPAWNS, 1);
    core_count(c, COUNT_OUTPUT_BYTES, r->output_bytes);
    if (r->end.denied)
        core_count(c, COUNT_DENIALS, r->end.denied);
    if (counter)
        core_count(c, counter, 1);
}

/* Remembers how a command ended, for whoever asks later. Of `bash -c COMMAND` the command is kept, of other programs
 * the name. */
static void remember_end(const struct core_session *s, const struct run_args *args,
                         const struct run_result *result)
{
    const char *const *argv = args->argv;
    bool is_shell = argv[0] && argv[1] && argv[2] && strcmp(argv[1], "-c") == 0;

    if (s->core->meters && argv[0] && !args->own_purpose)
        endings_put(meters_endings(s->core->meters), s->box.id, args->dialect,
                    is_shell ? argv[2] : argv[0], &result->end);
}

int core_run(struct core_session *s, const struct run_args *args, struct run_result *ret,
             struct cove_err *e)
{
    struct run_result result = { 0 };
    struct run_args all = *args;
    AUTO_FREE const char **argv = NULL;

    all.leaving = s->core->leaving;
    all.user = args->user ? args->user : core_default_user(s);
    all.cwd = args->cwd ? args->cwd : core_workdir(s);
    all.base_env = core_base_env(s);
    all.common_env = s->core->config->environment;
    all.argv = core_argv(s, args->argv, &argv);
    if (run_command(&s->conn, &all, &result, e) < 0) {
        if (result.distrust)
            core_session_distrust(s);
        return -1;
    }
    if (result.end.cause == END_GONE && s->core->state)
        explain_gone(s, &result.end);
    count_end(s->core, &result);
    remember_end(s, args, &result);
    if (result.distrust)
        core_session_distrust(s);
    *ret = result;
    return 0;
}
