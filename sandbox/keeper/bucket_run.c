/* One process of cove-bucket: the order that it gets, how it is started, and what it reports (cove/bucket.h). */
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/box/bucket_start.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/store.h"

void bucket_order_of(const struct saved_info *info, uint32_t work, struct bucket_order *ret)
{
    *ret = (struct bucket_order){ .work = work,
                                  .saved_unix_ms = info->saved_unix_ms,
                                  .bytes = info->stored_bytes };
    memcpy(ret->digest, info->stored_digest, sizeof(ret->digest));
    text_copy(ret->id, sizeof(ret->id), info->box.id);
    text_copy(ret->name, sizeof(ret->name), saved_archive_name(info));
}

struct bucket_run {
    struct job job;
    uint32_t index;
    bucket_done done;
};

static void on_ended(struct keeper *k, struct job *j, int status)
{
    const struct bucket_run *run = container_of(j, struct bucket_run, job);
    struct bucket_report report;
    struct cove_err err = { 0 };
    int rc = bucket_hear(j->sock, &report, &err);

    (void)status;
    run->done(k, run->index, rc == 0 ? &report : NULL, &err);
}

int bucket_run_start(struct keeper *k, const struct bucket_task *task, struct job **ret,
                     struct cove_err *e)
{
    AUTO_FREE struct bucket_run *run = calloc(1, sizeof(*run));
    AUTO_CLOSE int credentials = -1;
    AUTO_CLOSE int ca = -1;
    struct bucket_order order = task->order;
    struct bucket_args args = { .exe = k->bucket_exe,
                                .uid = k->worker_uid,
                                .gid = k->worker_gid,
                                .in = task->in,
                                .out = task->out,
                                .order = &order,
                                .notes = task->notes };
    struct boxed b;

    if (!run)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    *run = (struct bucket_run){ .job = { .ended = on_ended },
                                .index = task->index,
                                .done = task->done };
    if (bucket_fill_order(&k->config, k->state_dir, &order, e) < 0 ||
        bucket_open_credentials(&k->config, &credentials, e) < 0 ||
        bucket_open_ca(&k->config, &ca, e) < 0)
        return -1; /* cppcheck-suppress memleak ; run frees itself */
    args.credentials = credentials;
    args.ca = ca;
    if (bucket_start(&args, &b, e) < 0 || job_watch(k, &run->job, &b, e) < 0)
        return -1;
    *ret = &run->job;
    take_ptr(run);
    return 0;
}
