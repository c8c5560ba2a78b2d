/* A policy to check commands with. What cannot be read or compiled fails the test. */
#ifndef COVE_TESTS_DENY_FIXTURE_H
#define COVE_TESTS_DENY_FIXTURE_H

#include <stdbool.h>

#include "cove/policy.h"

struct policy *deny_load(const char *path);
struct policy *deny_compile(const char *text);
struct policy_result deny_check(const struct policy *p, const char *dialect, const char *command);
/* Was it refused by this rule (NULL: by none) on this form? */
bool deny_is_as_wanted(const struct policy_result *r, const char *rule, enum policy_form form);

#endif
