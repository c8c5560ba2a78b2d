/* A tenant reads the archive of one of its saved sandboxes, which is in the bucket and stays there. The archive
 * comes through a pipe from a process of its own. There are few of them, and one for each tenant. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "cove/log.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/store.h"

static void on_read(struct keeper *k, uint32_t i, const struct bucket_report *report,
                    struct cove_err *err)
{
    k->bucket.readers[i][0] = '\0';
    if (!report) /* the reader has got fewer bytes than were announced */
        log_error("an archive in the bucket was not read whole", err);
}

static int free_reader(const struct keeper *k, const char *tenant, uint32_t *ret,
                       struct cove_err *e)
{
    uint32_t found = BUCKET_READERS;

    for (uint32_t i = 0; i < BUCKET_READERS; i++) {
        if (strcmp(k->bucket.readers[i], tenant) == 0)
            return cove_fail(
                e, COVE_BUSY,
                "this tenant is already reading an archive: try again when it has been read");
        if (!k->bucket.readers[i][0])
            found = i;
    }
    if (found == BUCKET_READERS)
        return cove_fail(e, COVE_BUSY, "too many archives are being read: try again later");
    *ret = found;
    return 0;
}

int bucket_read(struct keeper *k, uint32_t saved, int *ret_fd, struct cove_err *e)
{
    const struct saved_info *info = &k->saved[saved].info;
    struct bucket_task task = { .in = -1, .done = on_read };
    struct job *run;
    int ends[2], rc;

    if (free_reader(k, info->box.tenant, &task.index, e) < 0)
        return -1;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "pipe");
    bucket_order_of(info, BUCKET_GET, &task.order);
    task.out = ends[1];
    rc = bucket_run_start(k, &task, &run, e);
    close(ends[1]);
    if (rc < 0) {
        close(ends[0]);
        return -1;
    }
    text_copy(k->bucket.readers[task.index], sizeof(k->bucket.readers[0]), info->box.tenant);
    *ret_fd = ends[0];
    return 0;
}
