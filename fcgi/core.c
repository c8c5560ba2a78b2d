/* What every request of a worker begins and ends with: counters, the task that the keeper sees, memory, audit lines. */
#include "fcgi/core.h"

#include <poll.h>
#include <stdatomic.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/shares.h"
#include "process/audit_send.h"

void core_count(struct core *c, enum state_counter counter, uint64_t n)
{
    if (c && c->state)
        state_count(c->state, c->worker, counter, n);
}

/* `busy` is written last, so whoever sees it set sees the rest; see struct state_task. */
void core_task_begin(struct core *c, const char *request_id, const char *what)
{
    struct state_task *t = c->task;

    c->judged_template[0] = '\0';
    c->template = NULL;
    if (!t)
        return;
    t->box = t->generation = t->proc = 0;
    t->since_ms = clock_boot_ms();
    text_copy(t->request_id, sizeof(t->request_id), request_id);
    text_copy(t->what, sizeof(t->what), what);
    atomic_store_explicit(&t->busy, 1, memory_order_release);
}

static int take_closing(struct core *c)
{
    int fd = c->closing;

    c->closing = 0;
    return fd;
}

void core_task_close_later(struct core *c, int fd)
{
    if (c->closing)
        cove_close(take_closing(c));
    c->closing = fd;
}

void core_task_end(struct core *c)
{
    core_task_close_later(c, 0);
    if (c->task)
        atomic_store_explicit(&c->task->busy, 0, memory_order_release);
}

bool core_client_has_left(int client_fd)
{
    struct pollfd p = { .fd = client_fd, .events = POLLRDHUP };

    return client_fd > 0 && poll(&p, 1, 0) > 0;
}

int core_fail_memory(struct cove_err *e)
{
    return cove_fail(e, COVE_BUSY, "no memory for more output, try again in a second");
}

void core_request_end(struct core *c)
{
    if (c->share_of)
        shares_release(c->tenant_shares, c->share_of, c->share_counts);
    c->share_of = NULL;
    c->bytes = c->worker_bytes;
}

void core_done(struct core *c)
{
    free(c->messages);
    keeper_link_done(&c->keeper);
}

void core_audit(struct core *c, const struct keeper_audit_entry *entry)
{
    struct cove_err e = { 0 };

    if (c->config->audit_file[0] && audit_send(&c->keeper, entry, &e) < 0)
        log_error("audit line lost", &e, LOG_S("tenant", entry->tenant),
                  LOG_S("rule", entry->rule));
}
