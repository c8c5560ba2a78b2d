/* One PAM conversation: a name and a password in, yes or no out. */
#ifndef COVE_AUTH_PAM_H
#define COVE_AUTH_PAM_H

#include <stdbool.h>

#include "cove/err.h"

struct pam_question {
    const char *service, *dir; /* dir: where service files are */
    const char *user, *password, *remote;
};

/* 0: this is the user, and the account may be used. COVE_UNAUTHORIZED: no. Any other code: PAM
 * could not be asked. */
int pam_ask(const struct pam_question *q, struct cove_err *e);

#endif
