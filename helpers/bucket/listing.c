/* What is in the bucket. Keys come sorted, so all that belongs to one saved sandbox comes together. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/text.h"
#include "helpers/bucket/bucket_private.h"

enum { PAGES_MAX = 10000 };

const char *xml_next(const char **at, const char *tag, char *out, size_t size)
{
    char open[64], close[64];
    const char *from, *to;

    snprintf(open, sizeof(open), "<%s>", tag);
    snprintf(close, sizeof(close), "</%s>", tag);
    from = strstr(*at, open);
    to = from ? strstr(from, close) : NULL;
    if (!to)
        return NULL;
    from += strlen(open);
    snprintf(out, size, "%.*s", (int)(to - from), from);
    *at = to + strlen(close);
    return out;
}

struct walk {
    struct s3 *s;
    struct bucket_entry now; /* id "": none yet */
    listed_fn fn;
    void *arg;
};

static int finish_one(struct walk *w, struct cove_err *e)
{
    int rc = w->now.id[0] ? w->fn(w->s, &w->now, w->arg, e) : 0;

    w->now = (struct bucket_entry){ 0 };
    return rc;
}

/* Splits PREFIX/ID/MS/NAME. Other objects in the bucket are not ours. */
static bool split_key(const struct s3 *s, const char *key, struct bucket_entry *ret,
                      const char **ret_name)
{
    const char *prefix = s->place->prefix;
    size_t len = strlen(prefix);
    char *end;

    *ret = (struct bucket_entry){ 0 };
    if (len && (strncmp(key, prefix, len) != 0 || key[len++] != '/'))
        return false;
    key += len;
    if (strcspn(key, "/") != COVE_ID_LEN)
        return false;
    memcpy(ret->id, key, COVE_ID_LEN);
    key += COVE_ID_LEN + 1;
    ret->saved_unix_ms = strtoull(key, &end, 10);
    *ret_name = end + 1;
    return text_is_id(ret->id) && end != key && *end == '/' && ret->saved_unix_ms > 0;
}

static int take_key(struct walk *w, const char *key, uint64_t bytes, uint64_t changed,
                    struct cove_err *e)
{
    struct bucket_entry l;
    const char *name;

    if (!split_key(w->s, key, &l, &name))
        return 0;
    if ((strcmp(l.id, w->now.id) != 0 || l.saved_unix_ms != w->now.saved_unix_ms) &&
        finish_one(w, e) < 0)
        return -1;
    memcpy(w->now.id, l.id, sizeof(l.id));
    w->now.saved_unix_ms = l.saved_unix_ms;
    w->now.bytes += bytes;
    if (changed > w->now.changed_unix_ms)
        w->now.changed_unix_ms = changed;
    w->now.whole |= strcmp(name, SAVED_MANIFEST) == 0;
    w->now.taken |= strcmp(name, BUCKET_TAKEN) == 0;
    return 0;
}

static int take_page(struct walk *w, const char *at, char last[KEY_MAX], struct cove_err *e)
{
    char key[KEY_MAX], when[64], size[32];
    uint64_t changed, bytes;

    while (xml_next(&at, "Key", key, sizeof(key)) &&
           xml_next(&at, "LastModified", when, sizeof(when)) &&
           xml_next(&at, "Size", size, sizeof(size))) {
        text_copy(last, KEY_MAX, key);
        if (text_parse_time(when, &changed) == 0 && text_parse_u64(size, &bytes, NULL) == 0 &&
            take_key(w, key, bytes, changed, e) < 0)
            return -1;
    }
    return 0;
}

/* Pages are asked for by start-after and not by the continuation token, because every kind of store takes it. */
int listing_each(struct s3 *s, const char *id, listed_fn fn, void *arg, struct cove_err *e)
{
    AUTO_BUF struct buf answer = BUF(ANSWER_MAX);
    struct walk w = { .s = s, .fn = fn, .arg = arg };
    char last[KEY_MAX] = "", before[KEY_MAX], prefix[KEY_MAX], from[3 * KEY_MAX],
         escaped[3 * KEY_MAX], query[7 * KEY_MAX];
    struct s3_request r = { .method = "GET", .key = "", .query = query, .answer = &answer };

    snprintf(prefix, sizeof(prefix), "%s%s%s", s->place->prefix, s->place->prefix[0] ? "/" : "",
             id);
    s3_encode(prefix, escaped, sizeof(escaped));
    for (unsigned page = 0; page < PAGES_MAX; page++) {
        memcpy(before, last, sizeof(before));
        s3_encode(last, from, sizeof(from));
        snprintf(query, sizeof(query), "list-type=2&max-keys=1000&prefix=%s%s%s", escaped,
                 last[0] ? "&start-after=" : "", from);
        if (s3_perform(s, &r, e) < 0 || take_page(&w, answer.data ? answer.data : "", last, e) < 0)
            return -1;
        if (!answer.data || !strstr(answer.data, "<IsTruncated>true") || strcmp(last, before) == 0)
            break;
    }
    return finish_one(&w, e);
}
