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
 * new starter hears of all starting sandboxes again: a command that runs there under its label
 * already is not started twice.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "cove/client.h"
#include "cove/config.h"
#include "cove/log.h"
#include "cove/manifest.h"
#include "cove/mem.h"
#include "cove/msg_helpers.h"
#include "cove/state.h"
#include "cove/text.h"
#include "cove/weak.h"
#include "helpers/starter/start_box.h"
#include "process/confine.h"
#include "process/manifests_live.h"
#include "process/policy_live.h"
#include "process/process.h"

enum {
    THREADS_MAX = 32,
    TENANT_THREADS_MAX = 8,
    STACK_BYTES = 256 * 1024,
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
    pthread_mutex_t lock; /* guards the members below, and writing to the keeper */
    pthread_cond_t more;
    struct order_queue waiting, served;
    unsigned idle, threads;
};

/* ------------------------------------------------------------------ threads */

static void report(struct starter *st, const struct starter_box *box, const struct cove_err *err)
{
    struct starter_done done = { .index = box->index, .generation = box->generation, .err = *err };

    text_copy(done.id, sizeof(done.id), box->id);
    pthread_mutex_lock(&st->lock);
    msg_send(PROCESS_KEEPER_FD, &(struct msg_out){ STARTER_DONE, MSG_BODY(done) }, 0, NULL);
    pthread_mutex_unlock(&st->lock);
}

static void serve(struct starter *st, const struct starter_box *box)
{
    struct live_ref *policy = live_get(&st->policy), *manifests = live_get(&st->manifests);
    struct manifest *own = manifest_of_snapshot(st->config.run_dir, box->snapshot);
    struct box_start args = { .config = &st->config, .box = box, .own = own };
    struct cove_err err = { 0 };

    args.template = manifests ? manifests_find(manifests->value, box->template) : NULL;
    if (start_box(&args, policy, &err) < 0) {
        if (err.code != COVE_GONE) /* COVE_GONE: the sandbox was ended, and the reason is known */
            err.code = COVE_NOT_READY;
        cove_context(&err, "template '%.60s'", box->template);
    } else {
        err = (struct cove_err){ 0 };
    }
    live_put(policy);
    live_put(manifests);
    manifest_free(own);
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

/* The thread then looks for its next order, which may be one that waited for this tenant's share. */
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
