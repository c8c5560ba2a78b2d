/* Finding a sandbox by what an operator types. */
#ifndef CLI_BOXES_H
#define CLI_BOXES_H

#include "cli/cli.h"

const char *box_state_name(uint32_t state);

/* An id (with or without what a dialect puts in front of it), the beginning of one, a project or
 * TENANT/PROJECT; exactly one sandbox must fit. */
int boxes_find(const struct state *s, const char *word, struct box_info *ret, struct cove_err *e);
/* The same, from the configuration on. */
int boxes_open(const char *word, struct cove_config *ret_config, struct box_info *ret,
               struct cove_err *e);

#endif
