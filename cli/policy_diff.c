/* cove policy diff: rules and settings that only one of two policies has. */
#include <stdio.h>
#include <string.h>

#include "cli/json.h"
#include "cli/policy_cli.h"

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

struct setting_json {
    const char *only_in, *setting;
};

static const struct json_field setting_fields[] = {
    JSON_STR(struct setting_json, only_in, "only_in", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct setting_json, setting, "setting", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

static void show_setting(char sign, const char *line, bool as_json)
{
    if (as_json)
        cli_json_print(setting_fields, &(struct setting_json){ policy_cli_side(sign), line });
    else
        printf("%c %s\n", sign, line);
}

static void show_rule(char sign, const struct policy_rule_info *r, bool as_json)
{
    if (as_json)
        policy_cli_print_rule(r, policy_cli_side(sign));
    else
        printf("%c [%s] %s %s %s /%s/ \"%s\"\n", sign, r->scope, r->allow ? "allow" : "deny",
               r->name, policy_form_name(r->form), r->pattern, r->reason);
}

/* Shows what policy a has and policy b has not. */
static size_t show_missing(char sign, const struct policy *a, const struct policy *b, bool as_json)
{
    char line[SETTING_MAX];
    size_t count = 0;

    for (size_t i = 0; i < policy_setting_count(a); i++) {
        if (!policy_setting_get(a, i, line, sizeof(line)) || has_setting(b, line))
            continue;
        show_setting(sign, line, as_json);
        count++;
    }
    for (size_t i = 0; i < policy_rule_count(a); i++) {
        struct policy_rule_info r;

        policy_rule_get(a, i, &r);
        if (has_rule(b, &r))
            continue;
        show_rule(sign, &r, as_json);
        count++;
    }
    return count;
}

/* Compares two files; or the running policy and a file; or the running policy and the instance's own file. */
int policy_cli_diff(int argc, char **argv)
{
    struct policy *a = NULL, *b = NULL;
    bool as_json = cli_take_json(&argc, argv);
    struct cove_err e;
    int r;

    if (argc > 3 || (argc > 1 && argv[1][0] == '-'))
        return cli_usage("cove policy diff [[FILE] FILE] [--json]");
    r = argc == 3 ? policy_cli_load(argv[1], &a, &e) : policy_cli_running(&a, &e);
    if (r == 0)
        r = policy_cli_load(argc > 1 ? argv[argc - 1] : NULL, &b, &e);
    if (r < 0)
        r = cli_fail(&e);
    else
        r = show_missing('-', a, b, as_json) + show_missing('+', b, a, as_json) ? CLI_NO : CLI_OK;
    policy_free(a);
    policy_free(b);
    return r;
}
