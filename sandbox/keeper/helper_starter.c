/*
 * The starter runs what a template wants to have run in a new sandbox before the sandbox is handed out (start
 * command, services, ready command). The keeper must never wait for an init, so it names the sandbox to this
 * helper and is told the result later. Until then the sandbox counts as being built: a claim waits for it, and
 * in the pool it is not warm yet.
 */
#include <string.h>

#include "cove/log.h"
#include "cove/msg_helpers.h"
#include "cove/text.h"
#include "sandbox/keeper/helpers.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/quota.h"

/* How much longer than the template's own time the starter may take. */
enum { OVERTIME_MS = 15000 };

static void tell(struct keeper *k, uint32_t i)
{
    const struct box *b = &k->boxes[i];
    struct starter_box m = {
        .index = i,
        .generation = b->info.generation,
        .log_max_bytes = b->limits.log_max_bytes,
        .open_files_max = b->limits.open_files_max,
        .file_max_bytes = b->limits.file_max_bytes,
    };

    text_copy(m.id, sizeof(m.id), b->info.id);
    text_copy(m.template, sizeof(m.template), b->info.template);
    text_copy(m.snapshot, sizeof(m.snapshot), b->info.snapshot);
    text_copy(m.tenant, sizeof(m.tenant), b->info.tenant);
    helper_tell(&k->helpers[HELPER_STARTER], STARTER_BOX, &m, sizeof(m), NULL, 0);
}

static void started(struct keeper *k)
{
    for (uint32_t i = 0; i < state_box_count(k->state); i++)
        if (k->boxes[i].starting)
            tell(k, i);
}

static void fail_start(struct keeper *k, uint32_t i, const struct cove_err *err)
{
    struct box *b = &k->boxes[i];

    b->starting = false;
    log_error("sandbox not started", err, LOG_S("sandbox", b->info.id),
              LOG_S("template", b->info.template));
    waiters_fail(k, i, err);
    demand_forget(k, b->info.template); /* the pool waits for the next claim of it */
    k->pool_retry_ms = clock_boot_ms() + STARTER_RETRY_MS;
    death_begin(k, i, END_GONE, 0);
}

bool starter_begin(struct keeper *k, uint32_t i, struct cove_err *e)
{
    struct box *b = &k->boxes[i];
    const struct manifest *m = snapshot_manifest_of_box(k, &b->info);

    if (!m || !manifest_has_start(m))
        return false;
    b->starting = true;
    b->start_by_ms = clock_boot_ms() + m->ready_timeout_ms + OVERTIME_MS;
    if (!k->start_due_ms || b->start_by_ms < k->start_due_ms)
        k->start_due_ms = b->start_by_ms;
    if (network_apply_settings(k, i, e) < 0) {
        fail_start(k, i, e);
        return true;
    }
    if (k->helpers[HELPER_STARTER].pid)
        tell(k, i);
    else
        supervisor_start(k); /* the new starter is told of this sandbox */
    return true;
}

static void fail_late(struct keeper *k, uint32_t i)
{
    struct cove_err err = { 0 };

    cove_fail(&err, COVE_NOT_READY, "template '%.60s': its sandbox did not start in time",
              k->boxes[i].info.template);
    fail_start(k, i, &err);
}

/* Looks at all sandboxes, but only when the time of at least one of them may be over. */
uint64_t starter_tick(struct keeper *k, uint64_t now, uint64_t next)
{
    uint64_t due = UINT64_MAX;

    if (!k->start_due_ms || now < k->start_due_ms)
        return k->start_due_ms ? earliest_ms(next, k->start_due_ms) : next;
    for (uint32_t i = 0; i < state_box_count(k->state); i++) {
        struct box *b = &k->boxes[i];

        if (b->starting && b->info.state == BOX_BUILDING && now >= b->start_by_ms)
            fail_late(k, i);
        else if (b->starting && b->info.state == BOX_BUILDING)
            due = earliest_ms(due, b->start_by_ms);
    }
    k->start_due_ms = due == UINT64_MAX ? 0 : due;
    return earliest_ms(next, due);
}

static const struct msg_rule asks[] = { { STARTER_DONE, sizeof(struct starter_done), 0, 0, 0 },
                                        { 0 } };

/* Safe: a sandbox that is waiting for this word is handed out, or ended; no other one. */
static int answer(struct keeper *k, const struct msg *m, struct cove_err *e)
{
    struct starter_done done;
    struct box *b;

    (void)e;
    memcpy(&done, m->body, sizeof(done));
    done.id[sizeof(done.id) - 1] = '\0';
    if (done.index >= state_box_count(k->state))
        return cove_fail(e, COVE_INVALID, "no such sandbox");
    b = &k->boxes[done.index];
    if (!b->starting || b->info.state != BOX_BUILDING || b->info.generation != done.generation ||
        strcmp(b->info.id, done.id) != 0)
        return 0; /* the sandbox ended meanwhile */
    if (done.err.code != COVE_OK) {
        cove_err_sanitize(&done.err);
        fail_start(k, done.index, &done.err);
        return 0;
    }
    b->starting = false;
    creation_hand_out(k, done.index);
    return 0;
}

/* Is there a template that starts something? Most servers have none and need no starter. */
static bool wanted(const struct keeper *k)
{
    for (size_t i = 0; i < k->manifests.count; i++)
        if (!k->manifests.items[i]->damaged && manifest_has_start(k->manifests.items[i]))
            return true;
    for (uint32_t i = 0; i < k->snapshots.count; i++)
        if (k->snapshots.items[i].manifest && manifest_has_start(k->snapshots.items[i].manifest))
            return true;
    return false;
}

const struct helper_kind starter_kind = {
    .name = "starter",
    .program = "cove-starter",
    .takeover = DIES_WITH_KEEPER,
    .has_socket = true,
    .queue_bytes = 4 << 20,
    .wanted = wanted,
    .started = started,
    .asks = asks,
    .answer = answer,
};
