/*
 * A sandbox may have chosen the text of a command in an audit line, and finding secrets in it takes
 * about 30 patterns. That is done here, in a process without privileges; the keeper, which is
 * root, gets text that it only has to copy.
 */
#include "process/audit_send.h"

#include <pthread.h>
#include <string.h>

#include "cove/audit.h"
#include "cove/mem.h"

static struct redactor *redactor; /* compiled once, then only read */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_redactor(void)
{
    redactor_new(&redactor, NULL);
}

int audit_redact(const char *command, size_t len, char **ret, struct cove_err *e)
{
    pthread_once(&once, make_redactor);
    if (!redactor)
        return cove_fail(e, COVE_INTERNAL, "the patterns of secrets do not compile");
    return redactor_command(redactor, command, len, ret, e);
}

int audit_send(struct keeper_link *k, const struct keeper_audit_entry *entry, struct cove_err *e)
{
    struct keeper_audit_entry clean = *entry;
    const char *command = entry->command ? entry->command : "";
    AUTO_FREE char *text = NULL;

    clean.command_bytes = strlen(command);
    if (audit_redact(command, clean.command_bytes, &text, e) < 0)
        return -1;
    clean.command = text;
    return keeper_audit(k, &clean, e);
}
