/* Finding a sandbox by what an operator types. */
#ifndef CLI_BOXES_H
#define CLI_BOXES_H

#include "cli/cli.h"

const char *box_state_name(uint32_t state);

/* The sandbox that `word` means: an id (with or without what a dialect puts in front of it), the beginning
 * of one, a project or TENANT/PROJECT. Exactly one sandbox must fit. */
int boxes_open(const char *word, struct cove_config *ret_config, struct box_info *ret,
               struct cove_err *e);

#endif
