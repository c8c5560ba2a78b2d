/* cove policy explain: the rules and settings that apply, or the verdict on each form of a command. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "cli/json.h"
#include "cli/policy_cli.h"
#include "cove/dialect.h"

struct rule_json {
    const char *only_in; /* of two compared policies; NULL: none are compared */
    const char *rule;
    bool allow;
    const char *form, *pattern, *reason, *scope;
    const char *file; /* NULL: not told */
    int64_t line;
};

static const struct json_field rule_fields[] = {
    JSON_STR(struct rule_json, only_in, "only_in", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct rule_json, rule, "rule", JSON_ALWAYS, JSON_ANY),
    JSON_BOOL(struct rule_json, allow, "allow", JSON_ALWAYS),
    JSON_STR(struct rule_json, form, "form", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct rule_json, pattern, "pattern", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct rule_json, reason, "reason", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct rule_json, scope, "scope", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct rule_json, file, "file", JSON_OPTIONAL, JSON_ANY),
    JSON_INT(struct rule_json, line, "line", JSON_OPTIONAL, 0, INT64_MAX),
    JSON_END,
};

void policy_cli_print_rule(const struct policy_rule_info *r, const char *only_in)
{
    struct rule_json out = {
        .only_in = only_in,
        .rule = r->name,
        .allow = r->allow,
        .form = policy_form_name(r->form),
        .pattern = r->pattern,
        .reason = r->reason,
        .scope = r->scope,
        .file = only_in ? NULL : r->file,
        .line = only_in ? 0 : r->line,
    };

    cli_json_print(rule_fields, &out);
}

const char *policy_cli_side(char sign)
{
    return sign == '-' ? "first" : "second";
}

struct explained {
    bool json, denied;
};

struct form_json {
    struct json_text text;
    const char *form;
    bool denied;
    const char *rule, *reason; /* NULL: not denied */
    const char *lifted;        /* NULL: denied, or no exception was used */
};

static const struct json_field form_fields[] = {
    JSON_TEXT(struct form_json, text, "text", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct form_json, form, "form", JSON_ALWAYS, JSON_ANY),
    JSON_BOOL(struct form_json, denied, "denied", JSON_ALWAYS),
    JSON_STR(struct form_json, rule, "rule", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct form_json, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct form_json, lifted, "lifted", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static void show_form_json(const char *text, size_t len, const struct policy_result *r)
{
    struct form_json out = {
        .text = { text, len },
        .form = policy_form_name(r->form),
        .denied = r->denied,
        .rule = r->denied ? r->rule : NULL,
        .reason = r->denied ? r->reason : NULL,
        .lifted = !r->denied && r->lifted[0] ? r->lifted : NULL,
    };

    cli_json_print(form_fields, &out);
}

static void show_form(void *ctx, const char *text, size_t len, const struct policy_result *r)
{
    struct explained *x = ctx;
    int shown = len > 500 ? 500 : (int)len;

    x->denied |= r->denied;
    if (x->json) {
        show_form_json(text, len, r);
        return;
    }
    printf("%-6s %.*s%s\n", r->denied ? "" : policy_form_name(r->form), shown, text,
           len > 500 ? "..." : "");
    if (r->denied)
        printf("       ^ denied by rule '%s', %s form: %s\n", r->rule, policy_form_name(r->form),
               r->reason);
    else if (r->lifted[0])
        printf("       ^ rule '%s' matches, an exception lifts it\n", r->lifted);
}

static void show_rule(const struct policy_rule_info *r, bool as_json)
{
    if (as_json)
        policy_cli_print_rule(r, NULL);
    else
        printf("%s %s %s /%s/\n    %s\n    [%s] %s:%u\n", r->allow ? "allow" : "deny", r->name,
               policy_form_name(r->form), r->pattern, r->reason, r->scope, r->file, r->line);
}

static void list_rules(const struct policy *p, const struct policy_query *q, bool as_json)
{
    for (size_t i = 0; i < policy_rule_count(p); i++) {
        struct policy_rule_info r;

        if (!policy_rule_holds(p, i, q))
            continue;
        policy_rule_get(p, i, &r);
        show_rule(&r, as_json);
    }
}

struct settings_json {
    const char *dialect, *exec_time, *seccomp, *audit;
};

static const struct json_field settings_fields[] = {
    JSON_STR(struct settings_json, dialect, "dialect", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct settings_json, exec_time, "exec_time", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct settings_json, seccomp, "seccomp", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct settings_json, audit, "audit", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

static void show_settings(const struct policy *p, const struct policy_query *q, bool as_json)
{
    struct settings_json s = {
        .dialect = q->dialect,
        .exec_time = policy_exec_time(p, q) ? "on" : "off",
        .seccomp = policy_profile(p, q),
        .audit = policy_audit_all(p, q) ? "all commands" : "refusals",
    };

    if (as_json)
        cli_json_print(settings_fields, &s);
    else
        printf("dialect %s: exec-time %s, seccomp profile %s, audit of %s\n", s.dialect,
               s.exec_time, s.seccomp, s.audit);
}

/* Without a command: shows the rules that apply. With one: shows each form of the command and its verdict. */
int policy_cli_explain(int argc, char **argv)
{
    struct explained x = { 0 };
    struct policy *p = NULL;
    struct cove_err e;
    struct policy_options o;

    if (policy_cli_options(argc, argv, &o) < 0 || argc - optind > 1)
        return cli_usage("cove policy explain [COMMAND] [--dialect D] [--tenant T] [--template T] "
                         "[--file F] [--json]");
    x.json = o.json;
    if (!o.query.dialect)
        o.query.dialect = dialect_name(DIALECT_SHOWN);
    if (policy_cli_load(o.file, &p, &e) < 0)
        return cli_fail(&e);
    show_settings(p, &o.query, o.json);
    if (optind == argc)
        list_rules(p, &o.query, o.json);
    else
        policy_explain(p, &o.query, argv[optind], strlen(argv[optind]), show_form, &x);
    policy_free(p);
    return x.denied ? CLI_NO : CLI_OK;
}
