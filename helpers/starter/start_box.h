/* What a template starts in one new sandbox (start_box.c). */
#ifndef COVE_STARTER_START_BOX_H
#define COVE_STARTER_START_BOX_H

#include "cove/config.h"
#include "cove/manifest.h"
#include "cove/msg_helpers.h"
#include "process/live.h"

struct box_start {
    const struct cove_config *config;
    const struct starter_box *box;
    const struct manifest *template; /* the template, whose policy applies; NULL: it was removed */
    /* the snapshot's, which says what to start; NULL: the template does */
    const struct manifest *own;
};

/* Returns when the sandbox may be handed out. policy NULL: none is loaded. */
int start_box(const struct box_start *args, struct live_ref *policy, struct cove_err *e);

#endif
