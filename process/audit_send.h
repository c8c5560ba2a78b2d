/* Audit lines of a process without privileges: secrets are taken out here, before the keeper sees the
 * line. */
#ifndef COVE_PROCESS_AUDIT_SEND_H
#define COVE_PROCESS_AUDIT_SEND_H

#include "cove/client.h"

/* entry->command is the whole command; command_bytes is set here. */
int audit_send(struct keeper_link *k, const struct keeper_audit_entry *entry, struct cove_err *e);

/* Makes the text that audit lines have of a command: its beginning, without secrets. */
int audit_redact(const char *command, size_t len, char **ret, struct cove_err *e);

#endif
