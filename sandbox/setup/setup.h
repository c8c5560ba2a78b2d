/* The set-up of a sandbox: what cove-init does before it is init. */
#ifndef COVE_SETUP_H
#define COVE_SETUP_H

#include <stdint.h>

#include "cove/err.h"

/* Does everything from the first instruction inside the new namespaces to the sandbox as its commands see it. The disk limit is 0
   where statfs() shows it. */
int setup_enter(uint64_t *ret_disk_bytes, struct cove_err *e);

#endif
