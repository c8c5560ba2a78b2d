/*
 * For tests: with COVE_FAULT=NAME in its environment the keeper kills itself when it comes to the point
 * of that name. Nothing else reads the variable, and only who starts the keeper can set it.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sandbox/keeper/keeper_private.h"

void fault_point(const char *name)
{
    const char *wanted = getenv("COVE_FAULT");

    if (wanted && strcmp(wanted, name) == 0)
        kill(getpid(), SIGKILL);
}
