/*
 * Which machine a saved sandbox in the bucket belongs to. Several machines may share a bucket, and only one of
 * them may wake a sandbox: the one that the object `taken` beside its archive names.
 */
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/bucket/bucket_private.h"

/* A bucket without conditional writes shows other machines' writes within this time. */
enum { SETTLE_MS = 3000 };

int owner_read(struct s3 *s, const struct bucket_order *o, char ret[BUCKET_OWNER_TEXT],
               struct cove_err *e)
{
    AUTO_BUF struct buf text = BUF(BUCKET_NOTE_MAX);
    char key[KEY_MAX];
    bool there;

    ret[0] = '\0';
    object_key(s, o, BUCKET_TAKEN, key);
    if (object_read(s, key, &text, &there, e) < 0)
        return -1;
    if (there)
        text_copy(ret, BUCKET_OWNER_TEXT, text.data && text.data[0] ? text.data : "?");
    return 0;
}

int owner_write(struct s3 *s, const struct bucket_order *o, struct cove_err *e)
{
    char key[KEY_MAX];

    object_key(s, o, BUCKET_TAKEN, key);
    return object_put_text(s, key, o->owner, NULL, e);
}

int owner_fail(struct cove_err *e)
{
    return cove_fail(e, COVE_CONFLICT, "the saved sandbox was woken on another machine");
}

int owner_release(struct s3 *s, const struct bucket_order *o, struct cove_err *e)
{
    char owner[BUCKET_OWNER_TEXT], key[KEY_MAX];

    object_key(s, o, BUCKET_TAKEN, key);
    if (owner_read(s, o, owner, e) < 0)
        return -1;
    return o->force || strcmp(owner, o->owner) == 0 ? object_remove(s, key, e) : 0;
}

/*
 * Writes `taken` on condition that it does not exist, twice: a bucket that honours the condition refuses
 * the second write. *ret_decided false: this bucket takes every write, the condition says nothing.
 */
static int write_taken(struct s3 *s, const struct bucket_order *o, const char *key,
                       bool *ret_decided, struct cove_err *e)
{
    static const char condition[] = "If-None-Match: *";
    struct cove_err why = { 0 };

    *ret_decided = true;
    if (object_put_text(s, key, o->owner, condition, &why) == 0) {
        *ret_decided =
            object_put_text(s, key, o->owner, condition, &why) < 0 && why.code == COVE_CONFLICT;
        return 0;
    }
    if (why.code == COVE_CONFLICT)
        return 0; /* `taken` is there; the caller reads whom it names */
    if (why.code != COVE_UNSUPPORTED) {
        *e = why;
        return -1;
    }
    *ret_decided = false;
    return owner_write(s, o, e);
}

int owner_check(struct s3 *s, const struct bucket_order *o, struct cove_err *e)
{
    char owner[BUCKET_OWNER_TEXT];

    if (owner_read(s, o, owner, e) < 0)
        return -1;
    return strcmp(owner, o->owner) == 0 ? 0 : owner_fail(e);
}

/*
 * A bucket without conditional writes keeps the last write. Every machine that saw no `taken` has written it
 * within half of SETTLE_MS, or gives up; so the machine that `taken` names after all of SETTLE_MS is the only
 * one that goes on.
 */
int owner_take(struct s3 *s, const struct bucket_order *o, uint64_t *ret_settled_ms,
               struct cove_err *e)
{
    char owner[BUCKET_OWNER_TEXT], key[KEY_MAX];
    uint64_t looked_ms = clock_boot_ms();
    bool decided;

    *ret_settled_ms = 0;
    object_key(s, o, BUCKET_TAKEN, key);
    if (owner_read(s, o, owner, e) < 0)
        return -1;
    if (owner[0])
        return strcmp(owner, o->owner) == 0 ? 0 : owner_fail(e);
    if (write_taken(s, o, key, &decided, e) < 0)
        return -1;
    if (decided)
        return owner_check(s, o, e);
    *ret_settled_ms = clock_boot_ms() + SETTLE_MS;
    if (clock_boot_ms() <= looked_ms + SETTLE_MS / 2)
        return 0;
    owner_release(s, o, NULL);
    return cove_fail(e, COVE_BUSY, "the bucket was too slow to tell who wakes the sandbox");
}
