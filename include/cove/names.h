/* How long names may be, wherever they stand: in messages, in shared memory, in files. */
#ifndef COVE_NAMES_H
#define COVE_NAMES_H

/* Sizes, with the NUL. */
enum {
    COVE_TENANT_MAX = 64,
    COVE_PROJECT_MAX = 132,
    COVE_TEMPLATE_MAX = 128, /* TENANT/NAME */
    COVE_KEY_ID_MAX = 24,
};

#define COVE_IMAGE_DIR ".image" /* in the root of a sandbox that fetches an image */

#endif
