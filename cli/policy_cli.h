/* What the files of `cove policy` share. */
#ifndef CLI_POLICY_CLI_H
#define CLI_POLICY_CLI_H

#include "cli/cli.h"
#include "cove/policy.h"

struct policy_options {
    const char *file; /* NULL: the instance's own */
    const char *cases;
    struct policy_query query;
    bool json, argv, strict;
};

/* Moves optind to the first word that is no option; -1 on a wrong one. */
int policy_cli_options(int argc, char **argv, struct policy_options *o);

/* The policy in a file; NULL: the instance's own. */
int policy_cli_load(const char *path, struct policy **ret, struct cove_err *e);
/* The policy that workers use, as the keeper published it. */
int policy_cli_running(struct policy **ret, struct cove_err *e);
/* A profile by its name: beside this policy file, beside the instance's, among the installed ones. */
int policy_cli_profile(const char *name, const char *policy_file, char *path, size_t size,
                       struct cove_err *e);

/* With --json: prints a rule. `only_in` tells which of two compared policies has it; NULL: none are compared, and the
 * rule's place in its file is told instead. */
void policy_cli_print_rule(const struct policy_rule_info *r, const char *only_in);
/* The word for one of two compared policies or profiles: '-' is the first, '+' the second. */
const char *policy_cli_side(char sign);

int policy_cli_cases(const struct policy *p, const char *path, const struct policy_query *q,
                     bool as_json);
int policy_cli_check(int argc, char **argv);
int policy_cli_explain(int argc, char **argv);
int policy_cli_diff(int argc, char **argv);
int policy_cli_status(int argc, char **argv);

#endif
