/* Any bytes as a command: lexed, and judged by a policy with one rule of each kind. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cove/policy.h"
#include "policy/shell/lexer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What lexer.c promises of a line: \S+( \S+)*, no NUL, never empty. */
static bool check_line(void *ctx, enum lexer_kind kind, const char *text, size_t len)
{
    (void)ctx;
    if (kind == LEXER_SCRIPT)
        return true;
    if (len == 0 || text[0] == ' ' || text[len - 1] == ' ' || memchr(text, '\0', len))
        abort();
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\n' || text[i] == '\t' || (text[i] == ' ' && text[i + 1] == ' '))
            abort();
    }
    return true;
}

static struct policy *make_policy(void)
{
    static const char text[] = "deny a words /^rm( \\S+)* -rf/ \"r\"\ndeny b raw /:\\(\\)/ \"r\"\n";
    struct policy *p = NULL;

    if (policy_compile(text, sizeof(text) - 1, &p, NULL) < 0)
        abort();
    return p;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct policy *policy;
    struct policy_query q = { .dialect = "execute" };
    struct policy_result r;
    char *text = malloc(size + 1); /* of exactly this size: reading over it is noticed */

    if (!text)
        return 0;
    memcpy(text, data, size);
    if (!policy)
        policy = make_policy();
    lexer_text(text, size, check_line, NULL);
    policy_check(policy, &q, text, size, &r);
    text[size] = '\0';
    policy_check_argv(policy, &q, (const char *const[]){ "sh", "-c", text }, 3, &r);
    free(text);
    return 0;
}
