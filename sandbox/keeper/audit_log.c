/*
 * The audit log as the keeper keeps it: within the bounds that the configuration sets, so that a client that
 * is refused in a loop fills neither the disk nor the log. The operator is warned when a bound is reached.
 */
#include "cove/log.h"
#include "sandbox/keeper/keeper_private.h"

enum { BURST = 100, SOURCES_PER_TENANT = 10, FLUSH_EVERY_MS = 1000, WARN_EVERY_MS = 60000 };

int audit_log_open(struct keeper *k, struct cove_err *e)
{
    const struct cove_config *c = &k->config;
    const struct audit_options options = {
        .max_bytes = c->audit_file_max_bytes,
        .total_bytes = c->audit_total_max_bytes,
        .keep = (unsigned)c->audit_files_max,
        .source = { BURST, (unsigned)c->audit_rate },
        .tenant = { BURST * SOURCES_PER_TENANT, (unsigned)c->audit_rate * SOURCES_PER_TENANT },
        .ran = { (unsigned)c->audit_ran_rate, (unsigned)c->audit_ran_rate },
        .already_redacted = true, /* by the worker or judge that sent the line */
    };

    if (k->audit)
        audit_close(k->audit);
    k->audit = NULL;
    k->audit_told = (struct audit_counts){ 0 };
    return c->audit_file[0] ? audit_open(c->audit_file, &options, &k->audit, e) : 0;
}

/* At most once a minute: a warning per line would be the flood again, in another file. */
static void warn(struct keeper *k, uint64_t now)
{
    struct audit_counts c;

    audit_get_counts(k->audit, &c);
    if (now < k->audit_warn_ms || (c.suppressed == k->audit_told.suppressed &&
                                   c.removed_files == k->audit_told.removed_files))
        return;
    log_event(LOG_LEVEL_WARN,
              "the audit log has reached a limit (audit_rate, audit_ran_rate, audit_total_max)",
              LOG_N("lines_only_counted", c.suppressed - k->audit_told.suppressed),
              LOG_N("old_files_removed", c.removed_files - k->audit_told.removed_files),
              LOG_N("bytes_removed", c.removed_bytes - k->audit_told.removed_bytes));
    k->audit_told = c;
    k->audit_warn_ms = now + WARN_EVERY_MS;
}

void audit_log_tick(struct keeper *k, uint64_t now)
{
    struct cove_err err = { 0 };

    if (!k->audit || now < k->audit_next_ms)
        return;
    k->audit_next_ms = now + FLUSH_EVERY_MS;
    if (audit_flush(k->audit, &err) < 0)
        log_error("audit line lost", &err);
    warn(k, now);
}
