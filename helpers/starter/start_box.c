/* Starts what a template wants in one new sandbox: judges the commands, spawns them, and waits until the sandbox is
 * ready. */
#include "helpers/starter/start_box.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "cove/client.h"
#include "cove/dialect.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "process/policy_live.h"

enum {
    RETRY_FIRST_MS = 20, /* between two tries of the ready command; grows to RETRY_MOST_MS */
    RETRY_MOST_MS = 500,
    END_MS = 2000, /* how long init may take to report the end of a command that it kills */
};

struct start { /* one sandbox */
    const struct cove_config *config;
    const struct starter_box *box;
    const struct manifest *template; /* the template, whose policy applies */
    const struct manifest *own;      /* the snapshot's, if it has one */
    const struct manifest *manifest; /* the one of the two that says what to start */
    struct policy_filter filter;
    struct box_conn conn;
    uint64_t until_ms;
    uint32_t proc; /* of the start command; 0 = none */
};

/* ------------------------------------------------------------------ policy */

/* The tenant that owns the snapshot or TENANT/NAME; "" for an operator's template. */
static void owner_of(const struct start *s, char ret[COVE_TENANT_MAX])
{
    const char *name = s->template->name, *slash = strchr(name, '/');

    if (s->own)
        text_copy(ret, COVE_TENANT_MAX, s->box->tenant);
    else
        snprintf(ret, COVE_TENANT_MAX, "%.*s", slash ? (int)(slash - name) : 0, name);
}

static int judge(const struct policy *policy, const struct policy_query *q, const char *command,
                 struct cove_err *e)
{
    struct policy_result r = { 0 };

    if (!command)
        return 0;
    policy_check(policy, q, command, strlen(command), &r);
    if (!r.denied)
        return 0;
    return cove_fail(e, COVE_NOT_READY, "the policy forbids '%.60s' (%.40s)", command, r.rule);
}

/* Commands of a template are under the policy like those of clients. */
static int get_filter(struct start *s, struct live_ref *policy, struct cove_err *e)
{
    const struct manifest *m = s->manifest, *t = s->template;
    char tenant[COVE_TENANT_MAX];
    struct policy_query q = { .dialect = dialect_name(DIALECT_NONE),
                              .tenant = tenant,
                              .template = t->policy ? t->policy : t->name,
                              .profile = t->seccomp };

    owner_of(s, tenant);
    if (judge(policy_set_policy(policy->value), &q, m->start, e) < 0 ||
        judge(policy_set_policy(policy->value), &q, m->ready, e) < 0)
        return -1;
    for (size_t i = 0; i < m->service_count; i++)
        if (!m->services[i].on_first_use &&
            judge(policy_set_policy(policy->value), &q, m->services[i].command, e) < 0)
            return -1;
    return policy_set_filter(policy->value, &q, &s->filter, e);
}

/* ------------------------------------------------------------------ in the sandbox */

static int spawn(struct start *s, const char *command, const char *label, struct box_spawned *ret,
                 struct cove_err *e)
{
    const struct manifest *m = s->manifest;
    const char *const argv[] = { m->no_bash ? "/bin/sh" : "/bin/bash", "-c", command, NULL };
    struct spawn_args args = {
        .user = m->user ? m->user : s->config->user,
        .cwd = m->workdir,
        .label = label,
        .argv = argv,
        .base_env = (const char *const *)m->env,
        .common_env = s->config->environment,
        .flags = (label ? SPAWN_LOG | SPAWN_RECORD : SPAWN_TIED) |
                 (s->filter.exec_time ? SPAWN_NOTIFY : 0),
        .context = DIALECT_NONE,
        .stdin_fd = -1,
        .stdout_fd = -1,
        .stderr_fd = -1,
        .filter_fd = s->filter.fd,
        .log_bytes = s->box->log_max_bytes,
        .max_open_files = s->box->open_files_max,
        .max_file_bytes = s->box->file_max_bytes,
    };

    return box_spawn(&s->conn, &args, ret, NULL, e);
}

/* An earlier starter may have started the command already: then a process with this label exists. */
static int spawn_labelled(struct start *s, const char *command, const char *label, uint32_t *ret,
                          struct cove_err *e)
{
    struct box_log_opened opened;
    struct box_spawned spawned;
    int ring = -1;

    if (box_log(&s->conn, 0, label, &opened, &ring, e) == 0) {
        cove_close(ring);
        *ret = opened.proc;
        return 0;
    }
    if (e->code != COVE_NOT_FOUND)
        return -1;
    if (spawn(s, command, label, &spawned, e) < 0)
        return cove_context(e, "%s command", label);
    *ret = spawned.proc;
    return 0;
}

static int start_all(struct start *s, struct cove_err *e)
{
    const struct manifest *m = s->manifest;
    char label[32];
    uint32_t proc;

    if (m->start && spawn_labelled(s, m->start, MANIFEST_START, &s->proc, e) < 0)
        return -1;
    for (size_t i = 0; i < m->service_count; i++) {
        snprintf(label, sizeof(label), MANIFEST_SERVICE, m->services[i].port);
        if (!m->services[i].on_first_use &&
            spawn_labelled(s, m->services[i].command, label, &proc, e) < 0)
            return -1;
    }
    return 0;
}

/* Waits until `proc` has ended. 1: it has ended, 0: the time is over. */
static int await(struct start *s, uint32_t proc, uint64_t until_ms, struct cove_end *ret,
                 struct cove_err *e)
{
    uint64_t now;

    while ((now = clock_boot_ms()) < until_ms) {
        struct box_event event;
        int n = box_next_event(&s->conn, (int)(until_ms - now), &event, e);

        if (n < 0)
            return -1;
        if (n > 0 && event.kind == BOX_EVENT_EXITED && event.exited.proc == proc) {
            *ret = event.exited.end;
            return 1;
        }
    }
    return 0;
}

/* If the start command has failed, the sandbox will never be ready. If it has ended with 0, it may have done all
 * its work. */
static int check_start(struct start *s, struct cove_err *e)
{
    struct box_log_opened opened;
    struct cove_end end = { 0 };
    int ring = -1;

    if (!s->proc || box_log(&s->conn, s->proc, NULL, &opened, &ring, NULL) < 0)
        return 0;
    cove_close(ring);
    if (opened.running)
        return 0;
    if (box_wait(&s->conn, s->proc, NULL, e) < 0 ||
        await(s, s->proc, clock_boot_ms() + END_MS, &end, e) < 0)
        return -1;
    if (end.signal)
        return cove_fail(e, COVE_NOT_READY, "its start command was ended by signal %d", end.signal);
    if (end.exit_code)
        return cove_fail(e, COVE_NOT_READY, "its start command ended with code %d", end.exit_code);
    return 0;
}

static void pause_for(struct start *s, uint64_t *ms)
{
    uint64_t now = clock_boot_ms(), left = s->until_ms > now ? s->until_ms - now : 0;

    poll(NULL, 0, (int)(*ms < left ? *ms : left));
    *ms = *ms * 2 < RETRY_MOST_MS ? *ms * 2 : RETRY_MOST_MS;
}

static int fail_late(const struct start *s, const struct cove_end *last, struct cove_err *e)
{
    unsigned long long seconds = (s->manifest->ready_timeout_ms + 999) / 1000;

    if (last->signal)
        return cove_fail(e, COVE_NOT_READY,
                         "its ready command did not succeed within %llu s (ended by signal %d)",
                         seconds, last->signal);
    return cove_fail(e, COVE_NOT_READY,
                     "its ready command did not succeed within %llu s (exit code %d)", seconds,
                     last->exit_code);
}

static int kill_ready(struct start *s, uint32_t proc)
{
    struct box_signal order = { .proc = proc, .scope = SIGNAL_TREE, .signo = 9 };
    struct cove_end end;

    if (box_signal(&s->conn, &order, NULL, NULL) < 0)
        return -1;
    return await(s, proc, clock_boot_ms() + END_MS, &end, NULL);
}

/* Runs the ready command again and again until it succeeds. It is tied to this conversation: processes that it
 * leaves behind end with it. */
static int await_ready(struct start *s, struct cove_err *e)
{
    struct cove_end end = { 0 };
    uint64_t pause_ms = RETRY_FIRST_MS;

    while (clock_boot_ms() < s->until_ms) {
        struct box_spawned spawned;
        int n;

        if (spawn(s, s->manifest->ready, NULL, &spawned, e) < 0)
            return cove_context(e, "ready command");
        n = await(s, spawned.proc, s->until_ms, &end, e);
        if (n < 0)
            return -1;
        if (n == 0) {
            kill_ready(s, spawned.proc);
            return cove_fail(e, COVE_NOT_READY, "its ready command did not end within %llu s",
                             (unsigned long long)(s->manifest->ready_timeout_ms + 999) / 1000);
        }
        if (check_start(s, e) < 0)
            return -1;
        if (!end.signal && !end.exit_code)
            return 0;
        pause_for(s, &pause_ms);
    }
    return fail_late(s, &end, e);
}

static int start_and_wait(struct start *s, struct live_ref *policy, struct cove_err *e)
{
    if (!policy)
        return cove_fail(e, COVE_BUSY, "no policy is loaded, so nothing may run");
    if (!s->template)
        return cove_fail(e, COVE_NOT_FOUND, "it was removed");
    s->until_ms = clock_boot_ms() + s->manifest->ready_timeout_ms;
    if (get_filter(s, policy, e) < 0 || box_open(s->config->run_dir, s->box->id, &s->conn, e) < 0)
        return -1;
    if (start_all(s, e) < 0)
        return -1;
    return s->manifest->ready ? await_ready(s, e) : 0;
}

int start_box(const struct box_start *args, struct live_ref *policy, struct cove_err *e)
{
    struct start s = { .config = args->config,
                       .box = args->box,
                       .template = args->template,
                       .own = args->own,
                       .manifest = args->own ? args->own : args->template,
                       .conn.sock = -1,
                       .filter.fd = -1 };
    int rc = start_and_wait(&s, policy, e);

    box_close(&s.conn);
    return rc;
}
