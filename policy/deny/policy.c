/* A compiled policy: made of a bundle, freed, and asked for its rules by the operator's tool. Its verdict on a command
 * is deny.c. */
#include <openssl/evp.h>
#include <stdlib.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "policy/deny/policy_private.h"

static int hash_bundle(const char *bundle, size_t len, char out[65])
{
    unsigned char digest[32];

    if (!EVP_Digest(bundle, len, digest, NULL, EVP_sha256(), NULL))
        return -1;
    text_hex(digest, sizeof(digest), out);
    return 0;
}

/* A policy that denies nothing is a mistake: a file cut short must not open the door. */
static int finish(struct policy *p, const char *bundle, size_t len, struct cove_err *e)
{
    if (p->deny_count == 0)
        return cove_fail(e, COVE_INVALID, "%s:1:1: no deny rule in the whole policy",
                         p->files[p->file_count > 1]);
    if (prefilter_finish(p->prefilter) < 0 || hash_bundle(bundle, len, p->hash) < 0)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    return 0;
}

int policy_compile(const char *bundle, size_t len, struct policy **ret, struct cove_err *e)
{
    struct policy *p = calloc(1, sizeof(*p));
    struct cove_err why;
    int r = -1;

    if (p)
        p->prefilter = prefilter_new();
    if (!p || !p->prefilter)
        cove_fail(&why, COVE_INTERNAL, "out of memory");
    else if (len > POLICY_BUNDLE_MAX)
        cove_fail(&why, COVE_TOO_LARGE, "a policy of more than %d bytes", POLICY_BUNDLE_MAX);
    else if (parse_bundle(bundle, len, p, &why) == 0)
        r = finish(p, bundle, len, &why);
    if (r < 0) {
        policy_free(p);
        if (e)
            *e = why;
        return -1;
    }
    *ret = p;
    return 0;
}

void policy_free(struct policy *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->rule_count; i++) {
        free(p->rules[i].name);
        free(p->rules[i].pattern);
        free(p->rules[i].reason);
        regex_free(p->rules[i].regex);
    }
    for (size_t i = 0; i < p->section_count; i++) {
        scope_done(&p->sections[i].scope);
        free(p->sections[i].profile);
    }
    for (size_t i = 0; i < p->file_count; i++)
        free(p->files[i]);
    free(p->rules);
    free(p->sections);
    free(p->files);
    prefilter_free(p->prefilter);
    free(p);
}

const char *policy_hash(const struct policy *p)
{
    return p->hash;
}

const char *policy_form_name(enum policy_form form)
{
    static const char *const names[] = { "none", "raw", "words", "argv", "limit" };

    return (size_t)form < ARRAY_SIZE(names) ? names[form] : names[0];
}

size_t policy_rule_count(const struct policy *p)
{
    return p->rule_count;
}

void policy_rule_get(const struct policy *p, size_t i, struct policy_rule_info *ret)
{
    const struct rule *r = &p->rules[i];

    *ret = (struct policy_rule_info){ .name = r->name,
                                      .scope = p->sections[r->section].scope.head,
                                      .pattern = r->pattern,
                                      .reason = r->reason,
                                      .file = r->file,
                                      .line = r->line,
                                      .allow = r->allow,
                                      .form = r->form };
}

bool policy_rule_holds(const struct policy *p, size_t i, const struct policy_query *q)
{
    return scope_holds(&p->sections[p->rules[i].section].scope, q);
}
