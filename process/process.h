/* The first steps of every unprivileged process of ours. */
#ifndef COVE_PROCESS_H
#define COVE_PROCESS_H

#include "cove/config.h"
#include "cove/err.h"

enum {
    PROCESS_CONFIG_FD = 3, /* where the keeper puts the configuration, as bytes */
    PROCESS_KEEPER_FD = 4, /* a helper's connection to the keeper */
};

/*
 * Reads the configuration, sets the log's level, ignores SIGPIPE, and keeps other processes of this user from
 * reading our memory. `name` is shown by ps.
 */
int process_start(const char *name, struct cove_config *ret, struct cove_err *e);

void process_raise_file_limit(void); /* as many descriptors as this process may have */

#endif
