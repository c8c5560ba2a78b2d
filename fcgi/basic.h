/* HTTP Basic: a name and a password, asked of cove-auth, which asks PAM. */
#ifndef COVE_FCGI_BASIC_H
#define COVE_FCGI_BASIC_H

#include <stdbool.h>
#include <stddef.h>

#include "cove/names.h"

struct request;

enum { BASIC_USER_MAX = 64, BASIC_PASSWORD_MAX = 512 };

struct basic {
    char user[BASIC_USER_MAX];
    char password[BASIC_PASSWORD_MAX];
};

/* Is it "Basic <base64 of name:password>"? Bad base64, a NUL, an odd name or an empty password are refused. */
bool basic_decode(const char *header, struct basic *ret);

/* Signs in: *tenant is set if the request carries a name and a password that PAM accepts. If not, *ret_wait_s says
 * for how long PAM will not be asked: there were too many failures. */
bool basic_sign_in(const struct request *req, char tenant[COVE_TENANT_MAX], unsigned *ret_wait_s);

#endif
