/* Any bytes as a policy: compiled, and if that works, used and linted. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cove/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ignore(void *ctx, const struct policy_warning *w)
{
    (void)ctx;
    (void)w;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const dialects[] = { "execute", NULL };
    struct policy_query q = { .dialect = "execute", .tenant = "acme" };
    struct policy_result r;
    struct policy *p = NULL;
    struct cove_err e;

    if (policy_compile((const char *)data, size, &p, &e) < 0) {
        if (e.msg[0] == '\0')
            abort(); /* a refusal always says why */
        return 0;
    }
    policy_check(p, &q, "ls -l; rm -rf /", 15, &r);
    policy_lint(p, dialects, ignore, NULL);
    (void)policy_profile(p, &q);
    policy_free(p);
    return 0;
}
