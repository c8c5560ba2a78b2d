/*
 * PCRE2 with bounds, so that no pattern and no text can hold a worker.
 *
 * PCRE2's match limit counts anew at every place where a match may begin, which is not enough: a
 * pattern that needs a thousand steps at each of a million places never hits it. So a long text is
 * tried in windows of beginnings, and between two windows we look at the thread's own clock. A text
 * that runs over the steps gets MATCH_LIMIT, one that runs over the time MATCH_LATE; the engine turns
 * both into refusals. The clock starts with the matcher, which judges all commands of a request.
 *
 * Patterns and texts are bytes, not UTF-8: a command may be any bytes.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "policy/deny/policy_private.h"

#define SHORT_TEXT                                                                                 \
    1024 /* bytes; up to this length a text is one window, without a look at the clock */
#define SHORT_STEPS 100000 /* PCRE2's limit at one place of a short text */
#define LONG_STEPS                                                                                 \
    8000000 /* the same for a long text: an `rm` with a megabyte of file names must pass */
#define FIRST_WINDOW                                                                               \
    8 /* places in the first window of a long text: few, each may cost LONG_STEPS */
/* after a window that took less time than this, the next one is twice as wide */
#define FAST_WINDOW_NS 2000000
#define MATCH_HEAP_KIB                                                                             \
    8192 /* for matching without the JIT, when the JIT's own stack is too small */
#define PROBE_STEPS   20000   /* regex_is_slow_on() */
#define LOOK_EVERY_NS 5000000 /* of work between two looks whether anybody waits for the verdict */

struct regex {
    pcre2_code *code;
    bool anchored; /* can only match at the beginning */
};

struct matcher {
    pcre2_match_data *data;
    pcre2_match_context *context;
    uint64_t end_ns;  /* of this thread's time: nothing is matched after it */
    uint64_t look_ns; /* when to ask next whether anybody waits for the verdict */
    bool (*gone)(void *arg);
    void *gone_arg;
    bool is_gone;
};

static const uint32_t compile_options = PCRE2_NEVER_UTF | PCRE2_NEVER_UCP |
                                        PCRE2_NEVER_BACKSLASH_C | PCRE2_DOLLAR_ENDONLY |
                                        PCRE2_USE_OFFSET_LIMIT;

int regex_new(const char *pattern, bool caseless, struct regex **ret, size_t *ret_at,
              struct cove_err *e)
{
    struct regex *r = calloc(1, sizeof(*r));
    uint32_t options = 0;
    PCRE2_SIZE at = 0;
    int error;

    if (!r)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    r->code = pcre2_compile((PCRE2_SPTR)pattern, strlen(pattern),
                            compile_options | (caseless ? PCRE2_CASELESS : 0), &error, &at, NULL);
    if (!r->code) {
        char why[120];

        pcre2_get_error_message(error, (PCRE2_UCHAR *)why, sizeof(why));
        regex_free(r);
        *ret_at = at;
        return cove_fail(e, COVE_INVALID, "%s", why);
    }
    pcre2_jit_compile(r->code,
                      PCRE2_JIT_COMPLETE); /* without the JIT matching is slower, not wrong */
    pcre2_pattern_info(r->code, PCRE2_INFO_ALLOPTIONS, &options);
    r->anchored = options & PCRE2_ANCHORED;
    *ret = r;
    return 0;
}

void regex_free(struct regex *r)
{
    if (!r)
        return;
    pcre2_code_free(r->code);
    free(r);
}

static uint64_t thread_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

struct matcher *matcher_new(uint64_t time_ms)
{
    struct matcher *m = calloc(1, sizeof(*m));

    if (!m)
        return NULL;
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    if (!m->data || !m->context) {
        matcher_free(m);
        return NULL;
    }
    pcre2_set_heap_limit(m->context, MATCH_HEAP_KIB);
    m->look_ns = thread_ns() + LOOK_EVERY_NS;
    m->end_ns = thread_ns() + time_ms * 1000000;
    return m;
}

void matcher_free(struct matcher *m)
{
    if (!m)
        return;
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    free(m);
}

void matcher_stop_when(struct matcher *m, bool (*gone)(void *arg), void *arg)
{
    m->gone = gone;
    m->gone_arg = arg;
}

static bool is_late_at(struct matcher *m, uint64_t now_ns)
{
    if (m->gone && !m->is_gone && now_ns > m->look_ns) {
        m->is_gone = m->gone(m->gone_arg);
        m->look_ns = now_ns + LOOK_EVERY_NS;
    }
    return m->is_gone || now_ns > m->end_ns;
}

bool matcher_is_late(struct matcher *m)
{
    return is_late_at(m, thread_ns());
}

bool matcher_is_gone(const struct matcher *m)
{
    return m->is_gone;
}

/* Tries the places from `from` on, `width` of them. */
static enum match match_window(struct matcher *m, const struct regex *r, const char *text,
                               size_t len, size_t from, size_t width)
{
    int rc;

    pcre2_set_offset_limit(m->context, from + width - 1);
    rc = pcre2_match(r->code, (PCRE2_SPTR)text, len, from, 0, m->data, m->context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
        rc = pcre2_match(r->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_JIT, m->data, m->context);
    if (rc >= 0)
        return MATCH_YES;
    return rc == PCRE2_ERROR_NOMATCH ? MATCH_NO : MATCH_LIMIT;
}

/* Windows grow as long as they are cheap, so an ordinary pattern crosses a megabyte in a few. */
static enum match match_long(struct matcher *m, const struct regex *r, const char *text, size_t len)
{
    size_t width = FIRST_WINDOW;

    for (size_t from = 0; from <= len && !(r->anchored && from);) {
        uint64_t start = thread_ns(), end;
        enum match found = match_window(m, r, text, len, from, width);

        if (found != MATCH_NO)
            return found;
        end = thread_ns();
        if (is_late_at(m, end))
            return MATCH_LATE;
        from += width;
        width = end - start < FAST_WINDOW_NS ? width * 2 : FIRST_WINDOW;
    }
    return MATCH_NO;
}

enum match matcher_run(struct matcher *m, const struct regex *r, const char *text, size_t len)
{
    bool is_short = len <= SHORT_TEXT;

    pcre2_set_match_limit(m->context, is_short ? SHORT_STEPS : LONG_STEPS);
    pcre2_set_depth_limit(m->context, is_short ? SHORT_STEPS : LONG_STEPS);
    if (is_short)
        return match_window(m, r, text, len, 0, len + 1);
    return match_long(m, r, text, len);
}

bool regex_is_slow_on(const struct regex *r, const char *text, size_t len)
{
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    int rc = 0;

    if (context && data) {
        pcre2_set_match_limit(context, PROBE_STEPS);
        rc = pcre2_match(r->code, (PCRE2_SPTR)text, len, 0, PCRE2_NO_JIT, data, context);
    }
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    return rc == PCRE2_ERROR_MATCHLIMIT;
}
