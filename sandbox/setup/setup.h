/* The set-up of a sandbox: what cove-init does before it is init. */
#ifndef COVE_SETUP_H
#define COVE_SETUP_H

#include "cove/err.h"

/* Does everything from the first instruction inside the new namespaces to the sandbox as its commands see it. */
int setup_enter(struct cove_err *e);

#endif
