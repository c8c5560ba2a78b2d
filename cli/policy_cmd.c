/* cove policy check|test|explain|diff: the deny-list, before and while it is used. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cove/buf.h"
#include "cove/mem.h"
#include "cove/policy.h"

#define DEFAULT_FILE COVE_SYSCONFDIR "/policy.conf"

static const char *const dialects[] = { "execute", "executor", "e2b", "relay", "agent", NULL };

struct options {
    const char *file;
    struct policy_query query;
    bool json, argv;
};

/* Moves optind to the first word that is no option; -1 on a wrong one. */
static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = { { "file", required_argument, NULL, 'f' },
                                           { "dialect", required_argument, NULL, 'd' },
                                           { "tenant", required_argument, NULL, 't' },
                                           { "template", required_argument, NULL, 'm' },
                                           { "json", no_argument, NULL, 'j' },
                                           { "argv", no_argument, NULL, 'a' },
                                           { 0 } };
    int c;

    *o = (struct options){ .file = DEFAULT_FILE };
    optind = 1;
    while ((c = getopt_long(argc, argv, "f:d:t:m:ja", longs, NULL)) != -1) {
        switch (c) {
        case 'f':
            o->file = optarg;
            break;
        case 'd':
            o->query.dialect = optarg;
            break;
        case 't':
            o->query.tenant = optarg;
            break;
        case 'm':
            o->query.template = optarg;
            break;
        case 'j':
            o->json = true;
            break;
        case 'a':
            o->argv = true;
            break;
        default:
            return -1;
        }
    }
    return 0;
}

static int load(const char *path, struct policy **ret, struct cove_err *e)
{
    AUTO_FREE char *bundle = NULL;
    size_t len;

    if (policy_bundle_read(path, &bundle, &len, e) < 0)
        return -1;
    return policy_compile(bundle, len, ret, e);
}

static void add_json(struct buf *b, const char *key, const char *value)
{
    buf_addf(b, "%s\"%s\":", b->len > 1 ? "," : "", key);
    buf_add_json_str(b, value, strlen(value));
}

/* --- check ----------------------------------------------------------------------------------- */

static void show_warning(void *ctx, const struct policy_warning *w)
{
    (void)ctx;
    if (w->rule)
        printf("%s:%u: warning: rule '%s': %s\n", w->file, w->line, w->rule, w->what);
    else
        printf("%s:%u: warning: %s\n", w->file, w->line, w->what);
}

static void show_warning_json(void *ctx, const struct policy_warning *w)
{
    struct buf *b = ctx;

    buf_addf(b, "%s{\"file\":", b->data[b->len - 1] == '[' ? "" : ",");
    buf_add_json_str(b, w->file, strlen(w->file));
    buf_addf(b, ",\"line\":%u", w->line);
    add_json(b, "rule", w->rule ? w->rule : "");
    add_json(b, "warning", w->what);
    buf_add_char(b, '}');
}

static int check_json(const struct policy *p)
{
    struct buf b;

    buf_init(&b, 16 * 1024 * 1024);
    buf_addf(&b, "{\"ok\":true,\"hash\":\"%s\",\"rules\":%zu,\"warnings\":[", policy_hash(p),
             policy_rule_count(p));
    policy_lint(p, dialects, show_warning_json, &b);
    printf("%s]}\n", b.data);
    buf_done(&b);
    return CLI_OK;
}

static int fail_json(const struct cove_err *e)
{
    struct buf b;

    buf_init(&b, 64 * 1024);
    buf_add_str(&b, "{\"ok\":false");
    add_json(&b, "error", e->msg);
    printf("%s}\n", b.data);
    buf_done(&b);
    return CLI_NO;
}

/* A broken file is this command's business, so it is "no", not "could not be done". */
static int check(int argc, char **argv)
{
    struct policy *p = NULL;
    struct cove_err e;
    struct options o;
    size_t warnings;
    int r = CLI_OK;

    if (parse_options(argc, argv, &o) < 0 || argc - optind > 1)
        return cli_usage("cove policy check [FILE] [--json]");
    if (optind < argc)
        o.file = argv[optind];
    if (load(o.file, &p, &e) < 0) {
        if (o.json)
            return fail_json(&e);
        printf("%s\n", e.msg);
        return CLI_NO;
    }
    if (o.json) {
        r = check_json(p);
    } else {
        warnings = policy_lint(p, dialects, show_warning, NULL);
        printf("%s: ok, %zu rules, %zu warnings, %s\n", o.file, policy_rule_count(p), warnings,
               policy_hash(p));
    }
    policy_free(p);
    return r;
}

/* --- test ------------------------------------------------------------------------------------ */

static void show_result(const struct options *o, const char *dialect, const struct policy_result *r)
{
    if (o->json) {
        struct buf b;

        buf_init(&b, 64 * 1024);
        buf_add_char(&b, '{');
        add_json(&b, "dialect", dialect);
        buf_addf(&b, ",\"denied\":%s", r->denied ? "true" : "false");
        if (r->denied) {
            add_json(&b, "rule", r->rule);
            add_json(&b, "form", policy_form_name(r->form));
            add_json(&b, "reason", r->reason);
            add_json(&b, "matched", r->matched);
        }
        printf("%s}\n", b.data);
        buf_done(&b);
    } else if (r->denied) {
        printf("%s: denied by rule '%s', %s form: %s\n    %s\n", dialect, r->rule,
               policy_form_name(r->form), r->matched, r->reason);
    } else {
        printf("%s: allowed\n", dialect);
    }
}

static bool test_dialect(const struct policy *p, const struct options *o, const char *dialect,
                         int argc, char **argv)
{
    struct policy_query q = o->query;
    struct policy_result r;

    q.dialect = dialect;
    if (o->argv)
        policy_check_argv(p, &q, (const char *const *)argv, (size_t)argc, &r);
    else
        policy_check(p, &q, argv[0], strlen(argv[0]), &r);
    show_result(o, dialect, &r);
    return r.denied;
}

static int test(int argc, char **argv)
{
    struct policy *p = NULL;
    bool denied = false;
    struct cove_err e;
    struct options o;

    if (parse_options(argc, argv, &o) < 0 || optind >= argc || (!o.argv && argc - optind != 1))
        return cli_usage("cove policy test COMMAND | --argv -- PROGRAM ARG... [--dialect D] "
                         "[--tenant T] [--template T] [--file F] [--json]");
    if (load(o.file, &p, &e) < 0)
        return cli_fail(&e);
    if (o.query.dialect)
        denied = test_dialect(p, &o, o.query.dialect, argc - optind, argv + optind);
    for (size_t i = 0; dialects[i] && !o.query.dialect; i++)
        denied |= test_dialect(p, &o, dialects[i], argc - optind, argv + optind);
    policy_free(p);
    return denied ? CLI_NO : CLI_OK;
}

/* --- explain --------------------------------------------------------------------------------- */

static void show_form(void *ctx, const char *text, size_t len, const struct policy_result *r)
{
    int shown = len > 500 ? 500 : (int)len;

    if (r->denied)
        *(bool *)ctx = true;
    printf("%-6s %.*s%s\n", r->denied ? "" : policy_form_name(r->form), shown, text,
           len > 500 ? "..." : "");
    if (r->denied)
        printf("       ^ denied by rule '%s', %s form: %s\n", r->rule, policy_form_name(r->form),
               r->reason);
}

static void list_rules(const struct policy *p, const struct policy_query *q)
{
    for (size_t i = 0; i < policy_rule_count(p); i++) {
        struct policy_rule_info r;

        if (!policy_rule_holds(p, i, q))
            continue;
        policy_rule_get(p, i, &r);
        printf("%s %s %s /%s/\n    %s\n    [%s] %s:%u\n", r.allow ? "allow" : "deny", r.name,
               policy_form_name(r.form), r.pattern, r.reason, r.scope, r.file, r.line);
    }
}

/* Without a command: which rules hold. With one: each form of it, and its verdict. */
static int explain(int argc, char **argv)
{
    struct policy *p = NULL;
    bool denied = false;
    struct cove_err e;
    struct options o;

    if (parse_options(argc, argv, &o) < 0 || argc - optind > 1)
        return cli_usage("cove policy explain [COMMAND] [--dialect D] [--tenant T] [--template T] "
                         "[--file F]");
    if (!o.query.dialect)
        o.query.dialect = "execute";
    if (load(o.file, &p, &e) < 0)
        return cli_fail(&e);
    printf("dialect %s: exec-time %s, seccomp profile %s, audit of %s\n", o.query.dialect,
           policy_exec_time(p, &o.query) ? "on" : "off", policy_profile(p, &o.query),
           policy_audit_all(p, &o.query) ? "all commands" : "refusals");
    if (optind == argc)
        list_rules(p, &o.query);
    else
        policy_explain(p, &o.query, argv[optind], strlen(argv[optind]), show_form, &denied);
    policy_free(p);
    return denied ? CLI_NO : CLI_OK;
}

/* --- diff ------------------------------------------------------------------------------------ */

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

/* The rules of a that b does not have. */
static size_t show_missing(char sign, const struct policy *a, const struct policy *b)
{
    size_t count = 0;

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

static size_t show_settings(const struct policy *a, const struct policy *b)
{
    size_t count = 0;

    for (size_t i = 0; dialects[i]; i++) {
        struct policy_query q = { .dialect = dialects[i] };
        bool exec_a = policy_exec_time(a, &q), exec_b = policy_exec_time(b, &q);

        if (exec_a != exec_b)
            printf("~ [%s] exec-time = %s -> %s\n", dialects[i], exec_a ? "on" : "off",
                   exec_b ? "on" : "off");
        if (strcmp(policy_profile(a, &q), policy_profile(b, &q)) != 0)
            printf("~ [%s] seccomp = %s -> %s\n", dialects[i], policy_profile(a, &q),
                   policy_profile(b, &q));
        count += exec_a != exec_b || strcmp(policy_profile(a, &q), policy_profile(b, &q)) != 0;
    }
    return count;
}

static int diff(int argc, char **argv)
{
    struct policy *a = NULL, *b = NULL;
    struct cove_err e;
    size_t count = 0;
    int r;

    if (argc != 3)
        return cli_usage("cove policy diff FILE FILE");
    if (load(argv[1], &a, &e) < 0 || load(argv[2], &b, &e) < 0) {
        r = cli_fail(&e);
    } else {
        count += show_missing('-', a, b);
        count += show_missing('+', b, a);
        count += show_settings(a, b);
        r = count ? CLI_NO : CLI_OK;
    }
    policy_free(a);
    policy_free(b);
    return r;
}

static const struct cli_command commands[] = {
    { "check", check, "[FILE] [--json]" },
    { "test", test, "COMMAND [--dialect D] [--tenant T] [--template T] [--file F] [--json]" },
    { "explain", explain, "[COMMAND] [--dialect D] [--tenant T] [--template T] [--file F]" },
    { "diff", diff, "FILE FILE" },
    { "log", cli_policy_log, "[--file F] [-n N] [--json]" },
    { "seccomp", cli_policy_seccomp, "show PROFILE | diff PROFILE PROFILE" },
    { NULL },
};

int cli_policy(int argc, char **argv)
{
    return cli_dispatch("cove policy", commands, argc, argv);
}
