/*
 * The starter: runs what a template wants to have run in its sandboxes before they are handed out.
 *
 * privilege  own user (the workers'), no capabilities, no new ones
 * does       start command and services (as recorded processes with a log), then the ready command until
 *            it succeeds or the template's time is over; tells the keeper how it went
 * never      runs anything itself, opens anything of a sandbox, hears of a client
 *
 * The keeper names each sandbox on fd 4. A sandbox's init may be slow, and a ready command may take
 * minutes: each sandbox has a thread of its own while it starts. Those beyond THREADS_MAX wait for one,
 * and those of a tenant beyond TENANT_THREADS_MAX wait for one of that tenant's, so that a template whose
 * ready command never succeeds delays the sandboxes of its own tenant only.
 * The starter dies with its keeper, because sandboxes that are not handed out die with it, too. A
 * starter that was replaced hears of all starting sandboxes again: what runs there under its label
 * already is not started twice.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "cove/client.h"
#include "cove/config.h"
#include "cove/dialect.h"
#include "cove/log.h"
#include "cove/manifest.h"
#include "cove/mem.h"
#include "cove/msg_helpers.h"
#include "cove/state.h"
#include "cove/text.h"
#include "cove/weak.h"
#include "process/confine.h"
#include "process/manifests_live.h"
#include "process/policy_live.h"
#include "process/process.h"

enum {
    THREADS_MAX = 32,
    TENANT_THREADS_MAX = 8,
    STACK_BYTES = 256 * 1024,
    RETRY_FIRST_MS = 20, /* between two tries of the ready command; grows to RETRY_MOST_MS */
    RETRY_MOST_MS = 500,
    END_MS = 2000, /* init has this long to tell of an end that it brings about itself */
};

struct order { /* a sandbox that waits for a thread, or has one */
    TAILQ_ENTRY(order) link;
    struct starter_box box;
};

TAILQ_HEAD(order_queue, order);

struct starter {
    struct cove_config config;
    struct state *state;
    struct live policy, manifests;
    pthread_mutex_t lock; /* of what follows, and of writing to the keeper */
    pthread_cond_t more;
    struct order_queue waiting, served;
    unsigned idle, threads;
};

struct start { /* one sandbox */
    struct starter *starter;
    const struct starter_box *box;
    const struct manifest *template; /* whose policy holds */
    struct manifest *own;            /* the snapshot's, if it has one */
    const struct manifest *manifest; /* that says what to start: one of the two */
    struct policy_filter filter;
    struct box_conn conn;
    uint64_t until_ms;
    uint32_t proc; /* of the start command; 0 = none */
};

/* ------------------------------------------------------------------ policy */

/* Whose it is: the owner of the snapshot, or of TENANT/NAME; an operator's template belongs to nobody. */
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

/* What a template starts is under the policy like what clients run. */
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
        .user = m->user ? m->user : s->starter->config.user,
        .cwd = m->workdir,
        .label = label,
        .argv = argv,
        .base_env = (const char *const *)m->env,
        .common_env = s->starter->config.environment,
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

/* A starter before this one may have started it: then its log is there. */
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

/* A start command that has failed will not get ready. One that has ended well may have done all there is
 * to do. */
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

/* The ready command, again and again until it succeeds. It is tied to this conversation: what it
 * leaves behind ends with it. */
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
        if (!end.signal && !end.exit_code)
            return 0;
        if (check_start(s, e) < 0)
            return -1;
        pause_for(s, &pause_ms);
    }
    return fail_late(s, &end, e);
}

static int start_box(struct start *s, struct live_ref *policy, struct cove_err *e)
{
    if (!policy)
        return cove_fail(e, COVE_BUSY, "no policy is loaded, so nothing may run");
    if (!s->template)
        return cove_fail(e, COVE_NOT_FOUND, "it was removed");
    s->until_ms = clock_boot_ms() + s->manifest->ready_timeout_ms;
    if (get_filter(s, policy, e) < 0 ||
        box_open(s->starter->config.run_dir, s->box->id, &s->conn, e) < 0)
        return -1;
    if (start_all(s, e) < 0)
        return -1;
    return s->manifest->ready ? await_ready(s, e) : 0;
}

/* ------------------------------------------------------------------ threads */

static void report(struct starter *st, const struct starter_box *box, const struct cove_err *err)
{
    struct starter_done done = { .index = box->index, .generation = box->generation, .err = *err };

    text_copy(done.id, sizeof(done.id), box->id);
    pthread_mutex_lock(&st->lock);
    msg_send(PROCESS_KEEPER_FD, STARTER_DONE, 0, &done, sizeof(done), NULL, 0, NULL, 0, 0, NULL);
    pthread_mutex_unlock(&st->lock);
}

static void serve(struct starter *st, const struct starter_box *box)
{
    struct live_ref *policy = live_get(&st->policy), *manifests = live_get(&st->manifests);
    struct start s = { .starter = st, .box = box, .conn.sock = -1, .filter.fd = -1 };
    struct cove_err err = { 0 };

    s.template = manifests ? manifests_find(manifests->value, box->template) : NULL;
    s.own = manifest_of_snapshot(st->config.run_dir, box->snapshot);
    s.manifest = s.own ? s.own : s.template;
    if (start_box(&s, policy, &err) < 0) {
        if (err.code != COVE_GONE) /* whoever ended the sandbox knows why */
            err.code = COVE_NOT_READY;
        cove_context(&err, "template '%.60s'", box->template);
    } else {
        err = (struct cove_err){ 0 };
    }
    box_close(&s.conn);
    live_put(policy);
    live_put(manifests);
    manifest_free(s.own);
    report(st, box, &err);
}

/* May the tenant of this order have one more thread? Orders for the pool are no tenant's, and always may. */
static bool has_share_locked(const struct starter *st, const struct order *asks)
{
    unsigned count = 0;
    const struct order *o;

    TAILQ_FOREACH(o, &st->served, link)
    count += strcmp(o->box.tenant, asks->box.tenant) == 0;
    return !asks->box.tenant[0] || count < TENANT_THREADS_MAX || weak("places");
}

/* The one that has waited longest, of those whose tenant may have one more thread. */
static struct order *next_order_locked(struct starter *st)
{
    struct order *o;

    TAILQ_FOREACH(o, &st->waiting, link)
    if (has_share_locked(st, o))
        return o;
    return NULL;
}

/* How many could begin at once. An idle thread that was signalled and does not run yet still counts as idle. */
static unsigned count_ready_locked(const struct starter *st)
{
    unsigned count = 0;
    const struct order *o;

    TAILQ_FOREACH(o, &st->waiting, link)
    count += has_share_locked(st, o);
    return count;
}

static struct order *take_order(struct starter *st)
{
    struct order *o;

    pthread_mutex_lock(&st->lock);
    st->idle++;
    while (!(o = next_order_locked(st)))
        pthread_cond_wait(&st->more, &st->lock);
    st->idle--;
    TAILQ_REMOVE(&st->waiting, o, link);
    TAILQ_INSERT_TAIL(&st->served, o, link);
    pthread_mutex_unlock(&st->lock);
    return o;
}

/* The thread itself looks for the next one, which may be one that waited for this tenant's share. */
static void end_order(struct starter *st, struct order *o)
{
    pthread_mutex_lock(&st->lock);
    TAILQ_REMOVE(&st->served, o, link);
    pthread_mutex_unlock(&st->lock);
    free(o);
}

static void *run_thread(void *arg)
{
    struct starter *st = arg;

    for (;;) {
        struct order *o = take_order(st);

        serve(st, &o->box);
        end_order(st, o);
    }
    return NULL;
}

static void start_thread(struct starter *st)
{
    pthread_attr_t attr;
    pthread_t thread;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attr, run_thread, st) == 0)
        st->threads++;
    else
        log_event(LOG_LEVEL_ERROR, "no thread for a sandbox that starts",
                  LOG_N("threads", st->threads));
    pthread_attr_destroy(&attr);
}

static void put_order(struct starter *st, const struct starter_box *box)
{
    struct order *o = calloc(1, sizeof(*o));

    if (!o)
        abort();
    o->box = *box;
    o->box.id[sizeof(o->box.id) - 1] = '\0';
    o->box.template[sizeof(o->box.template) - 1] = '\0';
    o->box.snapshot[sizeof(o->box.snapshot) - 1] = '\0';
    o->box.tenant[sizeof(o->box.tenant) - 1] = '\0';
    pthread_mutex_lock(&st->lock);
    TAILQ_INSERT_TAIL(&st->waiting, o, link);
    if (count_ready_locked(st) > st->idle && st->threads < THREADS_MAX)
        start_thread(st);
    pthread_cond_signal(&st->more);
    pthread_mutex_unlock(&st->lock);
}

/* ------------------------------------------------------------------ main */

static int setup(struct starter *st, struct cove_err *e)
{
    char path[128];

    if (process_start("cove-starter", &st->config, e) < 0)
        return -1;
    TAILQ_INIT(&st->waiting);
    TAILQ_INIT(&st->served);
    pthread_mutex_init(&st->lock, NULL);
    pthread_cond_init(&st->more, NULL);
    snprintf(path, sizeof(path), "%s/state", st->config.run_dir);
    if (state_attach(path, &st->state, e) < 0)
        return -1;
    live_init(&st->policy, &policy_kind, st->state, st->config.run_dir, "policy");
    live_init(&st->manifests, &manifests_kind, st->state, st->config.run_dir, "manifests");
    return confine(CONFINE_STARTER, st->config.run_dir, e);
}

static int run(struct starter *st)
{
    static const struct msg_rule taken[] = { { STARTER_BOX, sizeof(struct starter_box), 0, 0, 0 },
                                             { MSG_DONE, 0, 0, 0, 0 },
                                             { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
                                             { 0 } };

    for (;;) {
        struct cove_err e = { 0 };
        struct starter_box box;
        char buf[1024];
        struct msg m;

        if (msg_recv(PROCESS_KEEPER_FD, buf, sizeof(buf), taken, 0, &m, &e) != 1)
            return 0; /* the keeper is gone */
        if (m.head.type != STARTER_BOX)
            continue;
        memcpy(&box, m.body, sizeof(box));
        put_order(st, &box);
    }
}

int main(void)
{
    static struct starter starter;
    struct cove_err e = { 0 };

    log_init("starter", LOG_LEVEL_INFO);
    if (setup(&starter, &e) < 0) {
        log_error("starter not started", &e);
        return 1;
    }
    return run(&starter);
}
