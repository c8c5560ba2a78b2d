/* cove policy diff: rules and settings that only one of two policies has. */
#include <stdio.h>
#include <string.h>

#include "cli/policy_cli.h"
#include "cove/mem.h"

#define SETTING_MAX 1024

static bool same_rule(const struct policy_rule_info *a, const struct policy_rule_info *b)
{
    return a->allow == b->allow && a->form == b->form && strcmp(a->name, b->name) == 0 &&
           strcmp(a->scope, b->scope) == 0 && strcmp(a->pattern, b->pattern) == 0 &&
           strcmp(a->reason, b->reason) == 0;
}

static bool has_rule(const struct policy *p, const struct policy_rule_info *wanted)
{
    struct policy_rule_info r;

    for (size_t i = 0; i < policy_rule_count(p); i++) {
        policy_rule_get(p, i, &r);
        if (same_rule(&r, wanted))
            return true;
    }
    return false;
}

static bool has_setting(const struct policy *p, const char *wanted)
{
    char line[SETTING_MAX];

    for (size_t i = 0; i < policy_setting_count(p); i++) {
        if (policy_setting_get(p, i, line, sizeof(line)) && strcmp(line, wanted) == 0)
            return true;
    }
    return false;
}

/* Shows what policy a has and policy b has not. */
static size_t show_missing(char sign, const struct policy *a, const struct policy *b)
{
    char line[SETTING_MAX];
    size_t count = 0;

    for (size_t i = 0; i < policy_setting_count(a); i++) {
        if (!policy_setting_get(a, i, line, sizeof(line)) || has_setting(b, line))
            continue;
        printf("%c %s\n", sign, line);
        count++;
    }
    for (size_t i = 0; i < policy_rule_count(a); i++) {
        struct policy_rule_info r;

        policy_rule_get(a, i, &r);
        if (has_rule(b, &r))
            continue;
        printf("%c [%s] %s %s %s /%s/ \"%s\"\n", sign, r.scope, r.allow ? "allow" : "deny", r.name,
               policy_form_name(r.form), r.pattern, r.reason);
        count++;
    }
    return count;
}

/* Two files; or what runs and a file; or what runs and the instance's own file. */
int policy_cli_diff(int argc, char **argv)
{
    struct policy *a = NULL, *b = NULL;
    struct cove_err e;
    int r;

    if (argc > 3 || (argc > 1 && argv[1][0] == '-'))
        return cli_usage("cove policy diff [[FILE] FILE]");
    r = argc == 3 ? policy_cli_load(argv[1], &a, &e) : policy_cli_running(&a, &e);
    if (r == 0)
        r = policy_cli_load(argc > 1 ? argv[argc - 1] : NULL, &b, &e);
    if (r < 0)
        r = cli_fail(&e);
    else
        r = show_missing('-', a, b) + show_missing('+', b, a) ? CLI_NO : CLI_OK;
    policy_free(a);
    policy_free(b);
    return r;
}
