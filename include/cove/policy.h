/*
 * Policy: text in, verdict out. No I/O but reading the policy's own files, no globals; a compiled
 * policy is immutable and may be used by many threads at once. It is a guardrail, not the wall.
 */
#ifndef COVE_POLICY_H
#define COVE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/err.h"

struct policy;

/* Who asks. NULL means "not said": it matches * and lists that only leave others out (!execute). */
struct policy_query {
    const char *dialect;
    const char *tenant;
    const char *template;
    const char *profile; /* a seccomp profile that the template names; NULL: the policy's choice */
    /* Called every few milliseconds of judging: has the client that wants the verdict left? NULL: no. */
    bool (*gone)(void *arg);
    void *gone_arg;
};

enum policy_form {
    POLICY_FORM_NONE,
    POLICY_FORM_RAW,   /* the text as sent, or as given to `sh -c` and its like */
    POLICY_FORM_WORDS, /* a command's words after shell lexing, joined by single blanks */
    POLICY_FORM_ARGV,  /* the same at exec time: the real argv of an execve */
    POLICY_FORM_LIMIT, /* no rule matched: a bound was reached, and text that cannot be judged is denied */
};

struct policy_result {
    bool denied;
    enum policy_form form;
    char rule[64];     /* the rule's name; "limit", "max-text", "max-time": a bound denied */
    char reason[200];  /* shown to the caller */
    char matched[256]; /* the form that matched, shortened, valid UTF-8 */
    char lifted[64];   /* a deny rule that matched as well, but an exception lifted it */
    bool gone;         /* judging was broken off, because nobody waits for the verdict */
};

/* Bounds on the text that is judged; going over one is a verdict of its own (POLICY_FORM_LIMIT). */
#define POLICY_COMMAND_MAX (1024 * 1024)      /* bytes of one command text */
#define POLICY_TEXT_MAX    (64 * 1024 * 1024) /* the largest max-text a policy may set */
#define POLICY_RULES_MAX   20000
#define POLICY_BUNDLE_MAX  (8 * 1024 * 1024)

/*
 * A bundle is the policy as one text: policy.conf, what it includes and policy.d/ flattened, with
 * marks that keep file and line. The keeper reads and validates a bundle, workers compile the very
 * same bytes, so all of them run what was validated. *ret is malloc()ed.
 */
int policy_bundle_read(const char *path, char **ret, size_t *ret_len, struct cove_err *e);

/* The files that a bundle was made of, one after the other: *at is 0 at first. False after the
 * last. */
bool policy_bundle_file(const char *bundle, size_t len, size_t *at, char *out, size_t size);

/* Compile a bundle. A message of an error has the shape "FILE:LINE:COLUMN: rule 'NAME': what". */
int policy_compile(const char *bundle, size_t len, struct policy **ret, struct cove_err *e);
void policy_free(struct policy *p);

/* SHA-256 of the bundle in hex; what `cove policy` and /metrics show beside the generation. */
const char *policy_hash(const struct policy *p);

/* Before a command runs: raw text first, then each command found by shell lexing. Never fails. */
void policy_check(const struct policy *p, const struct policy_query *q, const char *command,
                  size_t len, struct policy_result *ret);

/*
 * All commands of a request, with one bound on their text and one on the time for judging them
 * (max-text and max-time of the policy): many commands cost no more than one. Returns the place of
 * the first one that is denied, or count.
 */
size_t policy_check_all(const struct policy *p, const struct policy_query *q,
                        const char *const commands[], size_t count, struct policy_result *ret);

/* At exec time: the real argv, and for `sh -c TEXT` also what that text would run. */
void policy_check_argv(const struct policy *p, const struct policy_query *q,
                       const char *const argv[], size_t argc, struct policy_result *ret);

/* Settings of the sections that hold for this query; of several, the last one in the file. */
bool policy_exec_time(const struct policy *p, const struct policy_query *q);
const char *policy_profile(const struct policy *p, const struct policy_query *q);
bool policy_audit_all(const struct policy *p, const struct policy_query *q); /* not only refusals */

struct policy_limits { /* of one request, all its commands together */
    uint64_t text_bytes;
    uint64_t time_ms; /* of the judging thread's processor time */
};
void policy_get_limits(const struct policy *p, const struct policy_query *q,
                       struct policy_limits *ret);

/* Every `seccomp = NAME` of the policy, with its place in the file, so that a caller can check that the profile
 * exists. */
struct policy_choice {
    const char *profile;
    const char *file;
    unsigned line;
};
bool policy_choice_get(const struct policy *p, size_t i, struct policy_choice *ret);

const char *policy_form_name(enum policy_form form); /* "raw", "words", "argv", "limit", "none" */

/* --- for the operator's tool ----------------------------------------------------------------- */

struct policy_rule_info { /* pointers live as long as the policy */
    const char *name;
    const char *scope; /* the section's head as written, "*" for rules that hold for all */
    const char *pattern;
    const char *reason;
    const char *file;
    unsigned line;
    bool allow;
    enum policy_form form; /* RAW or WORDS */
};

size_t policy_rule_count(const struct policy *p);
void policy_rule_get(const struct policy *p, size_t i, struct policy_rule_info *ret);
bool policy_rule_holds(const struct policy *p, size_t i, const struct policy_query *q);

/* The settings of sections, each as a line: "[e2b] exec-time = on". False: there is none at this place. */
size_t policy_setting_count(const struct policy *p);
bool policy_setting_get(const struct policy *p, size_t i, char *out, size_t size);

/* Each form that policy_check() would look at, and the verdict on that form alone. */
typedef void (*policy_explain_fn)(void *ctx, const char *text, size_t len,
                                  const struct policy_result *verdict);
void policy_explain(const struct policy *p, const struct policy_query *q, const char *command,
                    size_t len, policy_explain_fn fn, void *ctx);

/*
 * Warnings: rules that can never match, match everything, are shadowed or may run for very long,
 * and sections that name a dialect not in the NULL-terminated list. Returns how many there were.
 */
struct policy_warning {
    const char *file;
    unsigned line;
    const char *rule; /* NULL: about the section */
    const char *what;
};
typedef void (*policy_warn_fn)(void *ctx, const struct policy_warning *w);
size_t policy_lint(const struct policy *p, const char *const dialects[], policy_warn_fn fn,
                   void *ctx);

#endif
