/* The policy's test bench: type a command, see the verdict, and which rule matched in which form. Nothing
 * runs, and nothing is written to the audit log. */
#include <string.h>

#include "cove/dialect.h"
#include "cove/policy.h"
#include "fcgi/dialects/console.h"
#include "process/live.h"
#include "process/policy_live.h"

enum { COMMAND_MAX = 64 * 1024, FORMS_MAX = 200 };

struct test_args {
    const char *command, *dialect, *template;
};

static const struct json_field test_fields[] = {
    JSON_STR(struct test_args, command, "command", JSON_REQUIRED, COMMAND_MAX),
    JSON_STR(struct test_args, dialect, "dialect", JSON_OPTIONAL, 32),
    JSON_STR(struct test_args, template, "template", JSON_OPTIONAL, COVE_TEMPLATE_MAX - 1),
    JSON_END,
};

struct verdict {
    struct json_text text; /* of one form of the command */
    bool denied;
    const char *rule, *reason, *form, *matched, *lifted;
    const char *policy; /* of the whole command: the hash of the rules that were asked */
};

static const struct json_field verdict_fields[] = {
    JSON_TEXT(struct verdict, text, "text", JSON_OPTIONAL, JSON_ANY),
    JSON_BOOL(struct verdict, denied, "denied", JSON_REQUIRED),
    JSON_STR(struct verdict, rule, "rule", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct verdict, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct verdict, form, "form", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct verdict, matched, "matched", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct verdict, lifted, "lifted", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct verdict, policy, "policy", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

static const char *or_null(const char *text)
{
    return *text ? text : NULL;
}

static struct verdict verdict_of(const struct policy_result *r)
{
    return (struct verdict){
        .denied = r->denied,
        .rule = or_null(r->rule),
        .reason = or_null(r->reason),
        .form = r->denied || *r->rule ? policy_form_name(r->form) : NULL,
        .matched = or_null(r->matched),
        .lifted = or_null(r->lifted),
    };
}

struct forms {
    struct json_writer *json;
    size_t count;
};

static void put_form(void *arg, const char *text, size_t len, const struct policy_result *r)
{
    struct verdict v = verdict_of(r);
    struct forms *f = arg;

    if (f->count++ >= FORMS_MAX)
        return;
    v.text = (struct json_text){ text, len };
    json_put_object(f->json, NULL, verdict_fields, &v);
}

static void put_verdict(struct reply *rep, const struct policy *policy,
                        const struct policy_query *q, const char *command)
{
    struct forms forms = { .json = &rep->json };
    struct policy_result result;
    struct verdict v;

    policy_check(policy, q, command, strlen(command), &result);
    v = verdict_of(&result);
    v.policy = policy_hash(policy);
    json_open(&rep->json, NULL, '{');
    json_put_members(&rep->json, verdict_fields, &v);
    json_open(&rep->json, "forms", '[');
    policy_explain(policy, q, command, strlen(command), put_form, &forms);
    json_close(&rep->json, ']');
    json_close(&rep->json, '}');
}

int console_policy_test(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct test_args args = { .dialect = "execute" };
    struct policy_query q = { .tenant = req->tenant };
    struct live_ref *ref;

    req->note.operation = "policy-test";
    if (request_json(req, test_fields, &args, e) < 0)
        return -1;
    if (dialect_number(args.dialect) == DIALECT_NONE)
        return cove_fail(e, COVE_INVALID, "dialect: there is no '%.32s'", args.dialect);
    q.dialect = args.dialect;
    q.template = args.template && *args.template ? args.template : req->core->config->template;
    ref = live_get(req->core->policy);
    if (!ref)
        return cove_fail(e, COVE_BUSY, "no policy is loaded");
    put_verdict(rep, policy_set_policy(ref->value), &q, args.command);
    live_put(ref);
    return 0;
}
