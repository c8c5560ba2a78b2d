/* What the deny-list's files share: file.c, parse.c, scope.c, match.c, prefilter.c, settings.c,
 * deny.c. */
#ifndef POLICY_PRIVATE_H
#define POLICY_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/policy.h"

#define POLICY_INCLUDE_DEPTH 8
#define POLICY_NAME_MAX      63
#define POLICY_PATTERN_MAX   4096

/* A mark line in a bundle: MARK, a kind, the number of the next line, a blank, the path. */
#define BUNDLE_MARK '\001'
enum bundle_mark {
    MARK_FILE = '=',  /* a file of its own: its rules hold for all until its first section */
    MARK_ENTER = '+', /* an included file: likewise, and the includer's section waits */
    MARK_LEAVE = '-', /* back in the includer, and in its section */
};

/* --- scope.c: for whom a section holds ------------------------------------------------------- */

enum scope_key { SCOPE_DIALECT, SCOPE_TENANT, SCOPE_TEMPLATE, SCOPE_KEY_COUNT };

struct scope {
    char *head;                   /* as written between the brackets */
    char *lists[SCOPE_KEY_COUNT]; /* items ended by a NUL each, then an empty one; or NULL */
};

/* head is one line without its brackets; *ret_at is where in it the trouble is. */
int scope_parse(const char *head, struct scope *ret, size_t *ret_at, struct cove_err *e);
void scope_done(struct scope *s);
bool scope_holds(const struct scope *s, const struct policy_query *q);
bool scope_holds_dialect(const struct scope *s, const struct policy_query *q); /* whoever it is */
/* does a hold for everything that b holds for? */
bool scope_covers(const struct scope *a, const struct scope *b);

/* --- match.c: PCRE2 with bounds -------------------------------------------------------------- */

struct regex;
struct matcher; /* what one thread needs while it matches */

enum match { MATCH_NO, MATCH_YES, MATCH_LIMIT, MATCH_LATE };

int regex_new(const char *pattern, bool caseless, struct regex **ret, size_t *ret_at,
              struct cove_err *e);
void regex_free(struct regex *r);
/* Does this text take so many steps that a longer one would never end? */
bool regex_is_slow_on(const struct regex *r, const char *text, size_t len);

struct matcher *matcher_new(uint64_t time_ms); /* of this thread's processor time, from now on */
/* Stop as if the time were over once `gone` says that nobody waits for the verdict. */
void matcher_stop_when(struct matcher *m, bool (*gone)(void *arg), void *arg);
bool matcher_is_late(struct matcher *m);
bool matcher_is_gone(const struct matcher *m);
void matcher_free(struct matcher *m);
enum match matcher_run(struct matcher *m, const struct regex *r, const char *text, size_t len);

/* --- prefilter.c: which of thousands of rules can match at all ------------------------------- */

struct prefilter;

struct prefilter *prefilter_new(void);
void prefilter_free(struct prefilter *f);
/* Rules are added in the order 0, 1, 2, ... */
int prefilter_add(struct prefilter *f, const char *pattern, bool caseless);
int prefilter_finish(struct prefilter *f);
size_t prefilter_words(const struct prefilter *f); /* size of the bit set below */
/* Sets the bit of each rule that may match; those not set surely do not. */
void prefilter_run(const struct prefilter *f, const char *text, size_t len, uint64_t *bits);

/* The longest text that each match must contain, without regular expression in it; "" if none. */
void prefilter_literal(const char *pattern, char *out, size_t out_size);

/* --- deny.c ---------------------------------------------------------------------------------- */

struct section {
    struct scope scope;
    const char *file;
    unsigned line;
    int exec_time, audit_all;       /* -1: not said here */
    uint64_t max_text, max_time_ms; /* 0: not said here */
    char *profile;                  /* NULL: not said here */
    /* the file and line that set it; section 0 collects settings of several files */
    const char *profile_file;
    unsigned profile_line;
};

struct rule {
    char *name, *pattern, *reason;
    const char *file;
    unsigned line;
    size_t section;
    bool allow, caseless;
    enum policy_form form;
    struct regex *regex;
};

struct policy {
    struct section *sections; /* [0] holds for all */
    size_t section_count, section_cap;
    struct rule *rules; /* in the order of the files */
    size_t rule_count, rule_cap;
    char **files; /* names, kept once each */
    size_t file_count, file_cap;
    size_t deny_count;
    struct prefilter *prefilter;
    char hash[65];
};

/* --- parse.c: a bundle's text into sections and rules ---------------------------------------- */

int parse_bundle(const char *bundle, size_t len, struct policy *p, struct cove_err *e);

#endif
