/* For whom a section holds: [execute], [dialect=executor,e2b tenant=acme template=*],
 * [dialect=!execute] */
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "policy/deny/policy_private.h"

static const char *const key_names[SCOPE_KEY_COUNT] = { "dialect", "tenant", "template" };

static int key_of(const char *name, size_t len)
{
    for (int k = 0; k < SCOPE_KEY_COUNT; k++) {
        if (strlen(key_names[k]) == len && memcmp(key_names[k], name, len) == 0)
            return k;
    }
    return -1;
}

/* "a,b" -> "a\0b\0\0" */
static char *split_list(const char *value, size_t len)
{
    char *list = calloc(1, len + 2);

    if (!list)
        return NULL;
    memcpy(list, value, len);
    for (size_t i = 0; i < len; i++) {
        if (list[i] == ',')
            list[i] = '\0';
    }
    return list;
}

static bool bad_list(const char *value, size_t len)
{
    bool item = false;

    for (size_t i = 0; i < len; i++) {
        if (value[i] == ',' && !item)
            return true;
        item = value[i] != ',' && (value[i] != '!' || item);
    }
    return !item;
}

/* One `key=a,b`, or a bare word, which is a dialect. */
static int parse_term(const char *term, size_t len, struct scope *s, struct cove_err *e)
{
    const char *equals = memchr(term, '=', len);
    const char *value = equals ? equals + 1 : term;
    size_t value_len = len - (size_t)(value - term);
    int key = equals ? key_of(term, (size_t)(equals - term)) : SCOPE_DIALECT;

    if (key < 0)
        return cove_fail(e, COVE_INVALID, "section: '%.*s' is not one of dialect, tenant, template",
                         (int)(equals - term), term);
    if (s->lists[key])
        return cove_fail(e, COVE_INVALID, "section: %s is said twice", key_names[key]);
    if (bad_list(value, value_len))
        return cove_fail(e, COVE_INVALID, "section: %s: an empty item", key_names[key]);
    s->lists[key] = split_list(value, value_len);
    return s->lists[key] ? 0 : cove_fail(e, COVE_INTERNAL, "out of memory");
}

int scope_parse(const char *head, struct scope *ret, size_t *ret_at, struct cove_err *e)
{
    struct scope s = { .head = strdup(head) };
    size_t i = strspn(head, " \t");

    if (head[i] == '\0') {
        scope_done(&s);
        return cove_fail(e, COVE_INVALID, "section: empty; [*] holds for all");
    }
    while (head[i]) {
        size_t len = strcspn(head + i, " \t");

        if (parse_term(head + i, len, &s, e) < 0) {
            scope_done(&s);
            *ret_at = i;
            return -1;
        }
        i += len;
        i += strspn(head + i, " \t");
    }
    *ret = s;
    return 0;
}

void scope_done(struct scope *s)
{
    free(s->head);
    for (int k = 0; k < SCOPE_KEY_COUNT; k++)
        free(s->lists[k]);
    *s = (struct scope){ 0 };
}

/*
 * An item is a name, a pattern with * and ?, or one of these after a ! to leave someone out. A list
 * that only leaves out starts from everybody. What is not said is like a name that nobody has.
 */
static bool list_holds(const char *list, const char *value)
{
    bool holds = true, first_positive = true;

    if (!list)
        return true;
    for (const char *item = list; *item; item += strlen(item) + 1) {
        bool not = *item == '!';
        bool match = value ? fnmatch(item + not, value, 0) == 0 : strcmp(item + not, "*") == 0;

        if (not &&match)
            return false;
        if (!not ) {
            holds = (first_positive ? false : holds) || match;
            first_positive = false;
        }
    }
    return holds;
}

bool scope_holds(const struct scope *s, const struct policy_query *q)
{
    return list_holds(s->lists[SCOPE_DIALECT], q->dialect) &&
           list_holds(s->lists[SCOPE_TENANT], q->tenant) &&
           list_holds(s->lists[SCOPE_TEMPLATE], q->template);
}

bool scope_holds_dialect(const struct scope *s, const struct policy_query *q)
{
    return list_holds(s->lists[SCOPE_DIALECT], q->dialect);
}

static bool same_list(const char *a, const char *b)
{
    while (*a && strcmp(a, b) == 0) {
        a += strlen(a) + 1;
        b += strlen(b) + 1;
    }
    return !*a && !*b;
}

bool scope_covers(const struct scope *a, const struct scope *b)
{
    for (int k = 0; k < SCOPE_KEY_COUNT; k++) {
        if (!a->lists[k] || strcmp(a->lists[k], "*") == 0)
            continue;
        if (!b->lists[k] || !same_list(a->lists[k], b->lists[k]))
            return false;
    }
    return true;
}
