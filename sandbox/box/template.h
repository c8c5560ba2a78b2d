/* Templates: the read-only layers below a sandbox's own files. */
#ifndef COVE_BOX_TEMPLATE_H
#define COVE_BOX_TEMPLATE_H

#include "cove/err.h"

/* Make the template `base` below state_dir if it is not there or was made by another version. */
int template_make_base(int state_dir_fd, struct cove_err *e);
void template_sweep_old(int state_dir_fd); /* while no sandbox lives */

struct template
{             /* an opened one */
    int root; /* the directory that becomes / */
    int usr;  /* the directory that becomes /usr, -1 if root has its own */
};

int template_open(int state_dir_fd, const char *name, struct template *ret, struct cove_err *e);
void template_close(struct template *t);

#endif
