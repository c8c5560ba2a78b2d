/*
 * The judge: answers for every execve of commands that run under exec-time policy.
 *
 * privilege  own user (the workers'), no capabilities, no new ones
 * does       holds one conversation with each sandbox's init, matches the real argv against the policy
 * never      runs anything, opens anything of a sandbox
 *
 * The keeper names each sandbox on fd 4 as soon as it runs; the judge connects to it and says
 * BOX_JUDGE. From then on init asks (BOX_EXEC_ASK) and waits, the judge answers. One thread, one
 * event loop: a verdict takes microseconds. When the keeper dies the judge goes on; the next keeper
 * starts another, init turns to that one and hangs up on this one, which then ends.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/msg_helpers.h"
#include "cove/text.h"
#include "helpers/judge/judge_private.h"
#include "process/confine.h"
#include "process/manifests_live.h"
#include "process/policy_live.h"
#include "process/process.h"

/* ------------------------------------------------------------------ conversations */

static void conversation_close(struct judge *j, struct conversation *talk)
{
    LIST_REMOVE(talk, link);
    watch_close(&talk->watch);
    free(talk);
    if (LIST_EMPTY(&j->conversations) && !watch_is_on(&j->orders))
        loop_stop(&j->loop); /* neither a keeper nor a sandbox is left */
}

static void conversation_ready(struct watch *w, uint32_t events)
{
    static const struct msg_rule taken[] = {
        { MSG_DONE, 0, 0, 0, 0 },
        { BOX_EXEC_ASK, sizeof(struct box_exec_ask), MSG_MAX_BYTES, 0, 1 },
        { 0 },
    };
    struct judge *j = container_of(w->loop, struct judge, loop);
    struct conversation *talk = container_of(w, struct conversation, watch);
    struct cove_err e = { 0 };
    struct msg m;
    int rc = msg_recv(w->fd, j->buf, sizeof(j->buf), taken, MSG_DONTWAIT, &m, &e);

    (void)events;
    if (rc < 0 && e.code == COVE_BUSY)
        return;
    if (rc == 1 && m.head.type == BOX_EXEC_ASK)
        verdict_answer(j, talk, &m);
    if (rc == 1)
        msg_close_fds(&m);
    /* 0 or -1: the sandbox has ended, another judge took over, or init sent nonsense. */
    if (rc != 1)
        conversation_close(j, talk);
}

static void attach(struct judge *j, const struct judge_box *box)
{
    struct conversation *talk = calloc(1, sizeof(*talk));
    struct box_conn c = { .sock = -1 };
    struct cove_err e = { 0 };

    if (!talk)
        return;
    talk->index = box->index;
    text_copy(talk->id, sizeof(talk->id), box->id);
    if (box_open(j->config.run_dir, talk->id, &c, &e) < 0 ||
        msg_send(c.sock, &(struct msg_out){ BOX_JUDGE, .tag = 1 }, MSG_DONTWAIT, &e) < 0 ||
        watch_start(&j->loop, &talk->watch, c.sock, EPOLLIN, conversation_ready) < 0) {
        box_close(&c); /* the sandbox died meanwhile */
        free(talk);
        return;
    }
    LIST_INSERT_HEAD(&j->conversations, talk, link);
}

static void orders_ready(struct watch *w, uint32_t events)
{
    static const struct msg_rule taken[] = { { JUDGE_BOX, sizeof(struct judge_box), 0, 0, 0 },
                                             { 0 } };
    struct judge *j = container_of(w->loop, struct judge, loop);
    char buf[256];
    struct judge_box box;
    struct cove_err e = { 0 };
    struct msg m;
    int rc = msg_recv(w->fd, buf, sizeof(buf), taken, MSG_DONTWAIT, &m, &e);

    (void)events;
    if (rc < 0 && e.code == COVE_BUSY)
        return;
    if (rc != 1) { /* the keeper is gone */
        watch_close(w);
        if (LIST_EMPTY(&j->conversations))
            loop_stop(&j->loop);
        return;
    }
    memcpy(&box, m.body, sizeof(box));
    box.id[sizeof(box.id) - 1] = '\0';
    if (box.index < state_box_count(j->state))
        attach(j, &box);
}

/* ------------------------------------------------------------------ main */

/* The judge starts only with a policy; from then on a newer one that cannot be read leaves the old one
 * in force (process/live.c). */
static int setup_policy(struct judge *j, struct cove_err *e)
{
    struct live_ref *ref;

    live_init(&j->manifests, &manifests_kind, j->state, j->config.run_dir, "manifests");
    live_init(&j->policy, &policy_kind, j->state, j->config.run_dir, "policy");
    ref = live_get(&j->policy);
    if (!ref)
        return cove_fail(e, COVE_INTERNAL, "there is no policy to judge by");
    live_put(ref);
    return 0;
}

static int setup(struct judge *j, struct cove_err *e)
{
    char path[128];

    if (process_start("cove-judge", &j->config, e) < 0)
        return -1;
    j->keeper = KEEPER_LINK(j->config.run_dir);
    snprintf(path, sizeof(path), "%s/state", j->config.run_dir);
    if (state_attach(path, &j->state, e) < 0 || setup_policy(j, e) < 0 ||
        loop_init(&j->loop, e) < 0)
        return -1;
    if (watch_start(&j->loop, &j->orders, PROCESS_KEEPER_FD, EPOLLIN, orders_ready) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "the keeper's connection");
    return confine(CONFINE_JUDGE, j->config.run_dir, e);
}

int main(void)
{
    static struct judge judge;
    struct cove_err e = { 0 };

    log_init("judge", LOG_LEVEL_INFO);
    if (setup(&judge, &e) < 0) {
        log_error("judge not started", &e);
        return 1;
    }
    loop_run(&judge.loop);
    loop_done(&judge.loop);
    return 0;
}
