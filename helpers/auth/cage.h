/* The cage of one conversation, within the cage of cove-auth (process/confine.c). */
#ifndef COVE_AUTH_CAGE_H
#define COVE_AUTH_CAGE_H

#include "cove/config.h"
#include "cove/err.h"

/* Only for the process that is about to hold a conversation, and ends with it. */
int cage_conversation(const struct cove_config *c, struct cove_err *e);

#endif
