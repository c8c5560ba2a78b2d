/* A policy to check commands with. */
#include "tests/unit/deny_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cove/mem.h"

struct policy *deny_load(const char *path)
{
    struct cove_err e = { 0 };
    struct policy *p = NULL;
    AUTO_FREE char *bundle = NULL;
    size_t len;

    if (policy_bundle_read(path, &bundle, &len, &e) < 0 || policy_compile(bundle, len, &p, &e) < 0)
        fail_msg("%s", e.msg);
    return p;
}

struct policy *deny_compile(const char *text)
{
    struct cove_err e = { 0 };
    struct policy *p = NULL;

    if (policy_compile(text, strlen(text), &p, &e) < 0)
        fail_msg("%s", e.msg);
    return p;
}

struct policy_result deny_check(const struct policy *p, const char *dialect, const char *command)
{
    struct policy_query q = { .dialect = dialect };
    struct policy_result r;

    policy_check(p, &q, command, strlen(command), &r);
    return r;
}

bool deny_is_as_wanted(const struct policy_result *r, const char *rule, enum policy_form form)
{
    if (!rule)
        return !r->denied;
    return r->denied && strcmp(r->rule, rule) == 0 && r->form == form;
}
