/*
 * Secrets in commands, before they get into a log. Each row is a pattern whose first group stays
 * and whose rest is replaced. Redaction may take away too much; it must not leave a secret of these
 * kinds.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "cove/audit.h"
#include "cove/dialect.h"
#include "cove/mem.h"
#include "policy/audit/audit_private.h"

#define REDACTED "$1[redacted]"

static const char *const patterns[] = {
    /* Authorization: Bearer TOKEN, Basic, Token; X-API-Key: KEY and its like */
    "(?i)(\\b(?:bearer|basic|token)\\s+)[A-Za-z0-9._~+/=-]{6,}",
    "(?i)(\\bauthorization\\s*[:=]\\s*)[^\\s\"']+(?=[\"']|$|\\s)",
    "(?i)(\\b[\\w-]*(?:key|token|secret|passw)[\\w-]*[\"']?\\s*:\\s*[\"']?)[^\\s\"',}]+",
    "(?i)(\\b(?:set-)?cookie\\s*:\\s*)[^\"'\\r\\n]+",
    /* --password=x, --token x, mysql -px; PGPASSWORD=x, AWS_SECRET_ACCESS_KEY=x */
    "(?i)(--?[a-z0-9-]*(?:pass|password|passwd|passphrase|secret|token|auth|api-?key|private-?key)"
    "(?:=|\\s+))(?:\"[^\"]*\"|'[^']*'|\\S+)",
    "(?i)(\\b\\w*(?:pass|secret|token|api_?key|private_?key|access_?key|credential|_key|_pat)\\w*"
    "\\s*=\\s*)(?:\"[^\"]*\"|'[^']*'|[^\\s;&|]+)",
    "(?i)(\\bset\\s+\\S*(?:secret|token|passw|_key|auth)\\S*\\s+)(?:\"[^\"]*\"|'[^']*'|\\S+)",
    "(?i)([?&](?:key|sig|signature|code|auth)=)[^&\\s\"']+",
    /* sshpass -p x, docker login -p x, redis-cli -a x, openssl -passin pass:x, and by echo */
    "(\\bsshpass\\s+-p\\s*)(?:\"[^\"]*\"|'[^']*'|\\S+)",
    "(\\b(?:login|useradd|usermod)\\b[^;|&]*\\s-p\\s*)(?:\"[^\"]*\"|'[^']*'|\\S+)",
    "(\\bredis-cli\\b[^;|&]*\\s-a\\s*)(?:\"[^\"]*\"|'[^']*'|\\S+)",
    "(\\bpass:)[^\\s\"']+",
    "(\\bvault\\s+login\\s+)[^\\s-][^\\s]*",
    "(\\bhtpasswd\\s+-\\w*b\\w*\\s+\\S+\\s+\\S+\\s+)\\S+",
    "(\\becho\\s+(?:-n\\s+)?)(?:\"[^\"]*\"|'[^']*'|\\S+)(?=\\s*\\|[^;]*(?:--password-stdin|"
    "\\bchpasswd\\b|"
    "--with-token))",
    "(?i)(\"\\w*(?:password|passwd|secret|token|api_?key|private_?key)\\w*\"\\s*:\\s*\")[^\"]*",
    "(\\bmysql(?:dump|admin)?\\b[^;|&]*\\s-p)[^\\s;|&]+",
    "(\\bcurl\\b[^;|&]*\\s(?:-u|--user)[= ]?\\s*)(?:\"[^\"]*\"|'[^']*'|\\S+)",
    /* https://user:password@host */
    "(\\b[a-zA-Z][a-zA-Z0-9+.-]*://)[^\\s/@\"']+(?=@)",
    /* keys that can be recognised by their form: cove's own, GitHub, GitLab, Slack, Stripe, OpenAI, AWS, Google, JWT */
    "()\\b" DIALECT_KEY_PREFIX "[A-Za-z0-9]{6,}",
    "()\\b(?:gh[pousr]_|github_pat_|glpat-)[A-Za-z0-9_-]{6,}",
    "()\\bxox[abprs]-[A-Za-z0-9-]{6,}",
    "()\\b(?:hf|npm|dop_v1|doo_v1|dckr_pat|shpat|glsa|sntrys|pypi)[_-][A-Za-z0-9_-]{16,}",
    "()\\bSG\\.[A-Za-z0-9_-]{10,}\\.[A-Za-z0-9_-]{10,}",
    "()\\bya29\\.[A-Za-z0-9_-]{10,}",
    "()\\b[srp]k[-_](?:live|test|proj|ant)?[-_]?[A-Za-z0-9_-]{16,}",
    "()\\b(?:AKIA|ASIA)[A-Z0-9]{16}\\b",
    "()\\bAIza[A-Za-z0-9_-]{30,}",
    "()\\beyJ[A-Za-z0-9_-]{6,}\\.[A-Za-z0-9_-]{6,}\\.[A-Za-z0-9_-]*",
    "(-----BEGIN [A-Z ]*PRIVATE KEY-----)(?s:.*?)(?=-----END|$)",
};

struct redactor {
    pcre2_code *codes[ARRAY_SIZE(patterns)];
};

int redactor_new(struct redactor **ret, struct cove_err *e)
{
    struct redactor *r = calloc(1, sizeof(*r));

    for (size_t i = 0; r && i < ARRAY_SIZE(patterns); i++) {
        PCRE2_SIZE at;
        int error;

        r->codes[i] = pcre2_compile((PCRE2_SPTR)patterns[i], PCRE2_ZERO_TERMINATED, PCRE2_NEVER_UTF,
                                    &error, &at, NULL);
        if (!r->codes[i]) {
            redactor_free(r);
            return cove_fail(e, COVE_INTERNAL, "redaction pattern %zu: error at %zu", i, at);
        }
        pcre2_jit_compile(r->codes[i], PCRE2_JIT_COMPLETE);
    }
    if (!r)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    *ret = r;
    return 0;
}

void redactor_free(struct redactor *r)
{
    for (size_t i = 0; r && i < ARRAY_SIZE(patterns); i++)
        pcre2_code_free(r->codes[i]);
    free(r);
}

/* Applies one pattern to the text in *b, which is replaced by the result. */
static int substitute(const pcre2_code *code, pcre2_match_context *context, struct buf *b)
{
    PCRE2_SIZE len = b->len + b->len / 2 + 64;
    char *out = malloc(len);
    int rc = -1;

    for (int tries = 0; out && tries < 2; tries++) {
        char *more;

        rc = pcre2_substitute(code, (PCRE2_SPTR)b->data, b->len, 0,
                              PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_OVERFLOW_LENGTH, NULL,
                              context, (PCRE2_SPTR)REDACTED, PCRE2_ZERO_TERMINATED,
                              (PCRE2_UCHAR *)out, &len);
        if (rc != PCRE2_ERROR_NOMEMORY)
            break;
        more = realloc(out, len);
        if (!more)
            break;
        out = more;
    }
    if (rc > 0) {
        buf_clear(b);
        buf_add(b, out, len);
    }
    free(out);
    return rc < 0 || b->overflow ? -1 : 0;
}

int redactor_run(const struct redactor *r, const char *text, size_t len, struct buf *out)
{
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    int failed = !context || buf_add(out, text, len) < 0;

    if (context)
        pcre2_set_match_limit(context, 100000);
    for (size_t i = 0; i < ARRAY_SIZE(patterns) && !failed && out->len; i++)
        failed = substitute(r->codes[i], context, out) < 0;
    pcre2_match_context_free(context);
    if (failed) { /* a text that could not be searched for secrets is not shown at all */
        buf_clear(out);
        return buf_add_str(out, "[redacted]");
    }
    return 0;
}

int redactor_command(const struct redactor *r, const char *text, size_t len, char **ret,
                     struct cove_err *e)
{
    size_t start = len < AUDIT_COMMAND_MAX ? len : AUDIT_COMMAND_MAX;
    struct buf clean;
    int rc;

    buf_init(&clean, 2 * AUDIT_COMMAND_MAX);
    rc = redactor_run(r, text, start, &clean);
    if (rc == 0)
        *ret = strndup(clean.data ? clean.data : "",
                       audit_fitting(clean.data, clean.len, AUDIT_COMMAND_MAX));
    buf_done(&clean);
    return rc < 0 || !*ret ? cove_fail(e, COVE_INTERNAL, "out of memory") : 0;
}
