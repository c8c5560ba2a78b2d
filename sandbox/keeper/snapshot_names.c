/*
 * Names and tags of snapshots. NAME:TAG belongs to one snapshot of a tenant at a time, NAME alone is
 * NAME:default. A snapshot that loses its last tag is removed. The results of build steps are under COVE_BUILD_CACHE,
 * with a tag each; when there are too many, those that were used longest ago are removed.
 */
#include <string.h>

#include "cove/log.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"

enum { CACHED_MAX = 24 }; /* results of build steps that one tenant keeps */

bool snapshot_is_own_name(const char *name)
{
    return name[0] == '.';
}

bool snapshot_is_tag(const char *tag)
{
    size_t len = strspn(tag, "abcdefghijklmnopqrstuvwxyz0123456789._-");

    return len > 0 && tag[len] == '\0' && len < COVE_TAG_MAX;
}

/* ------------------------------------------------------------------ the list of tags */

/* Where the tag stands in the list; NULL: it is not there. */
static char *find_tag(char *tags, const char *tag, size_t len)
{
    for (char *at = tags; at && *at; at = strchr(at, ' '), at += at != NULL)
        if (strcspn(at, " ") == len && strncmp(at, tag, len) == 0)
            return at;
    return NULL;
}

static bool has_tag(const struct snapshot *s, const char *tag, size_t len)
{
    return find_tag((char *)s->info.tags, tag, len) != NULL;
}

static int add_tag(struct snapshot *s, const char *tag, struct cove_err *e)
{
    size_t len = strlen(s->info.tags), more = strlen(tag);

    if (has_tag(s, tag, more))
        return 0;
    if (len + 1 + more >= sizeof(s->info.tags))
        return cove_fail(e, COVE_LIMIT, "this template has as many tags as fit: remove one first");
    if (len)
        s->info.tags[len++] = ' ';
    memcpy(s->info.tags + len, tag, more + 1);
    return 0;
}

static void cut_tag(struct snapshot *s, const char *tag)
{
    size_t len = strlen(tag);
    char *at = find_tag(s->info.tags, tag, len);

    if (!at)
        return;
    memmove(at, at + len + (at[len] == ' '), strlen(at + len + (at[len] == ' ')) + 1);
    len = strlen(s->info.tags);
    if (len && s->info.tags[len - 1] == ' ')
        s->info.tags[len - 1] = '\0';
}

/* ------------------------------------------------------------------ finding by name */

static bool has_name(const struct snapshot *s, const char *tenant, const char *name, size_t len)
{
    return !s->removed && strcmp(s->info.tenant, tenant) == 0 && s->info.name[0] &&
           strlen(s->info.name) == len && strncmp(s->info.name, name, len) == 0;
}

bool snapshot_is_named(const struct snapshot *s, const char *tenant, const char *word)
{
    size_t len = strcspn(word, ":");
    const char *tag = word[len] ? word + len + 1 : COVE_TAG_DEFAULT;

    if (!s->removed && strcmp(s->info.tenant, tenant) == 0 && strcmp(tag, COVE_TAG_DEFAULT) == 0 &&
        strlen(s->info.id) == len && strncmp(s->info.id, word, len) == 0)
        return true;
    return has_name(s, tenant, word, len) && has_tag(s, tag, strlen(tag));
}

/* ------------------------------------------------------------------ giving one */

static void lose_tag(struct keeper *k, struct snapshot *s, const char *tag)
{
    struct cove_err err = { 0 };

    cut_tag(s, tag);
    if (!s->info.tags[0])
        snapshots_mark_removed(k, s);
    else if (snapshots_save(k, s, &err) < 0)
        log_error("a snapshot's record was not written", &err, LOG_S("snapshot", s->info.id));
}

static void take_from_others(struct keeper *k, const struct snapshot *winner, const char *tag)
{
    for (uint32_t i = 0; i < k->snapshots.count; i++) {
        struct snapshot *s = &k->snapshots.items[i];

        if (s != winner &&
            has_name(s, winner->info.tenant, winner->info.name, strlen(winner->info.name)) &&
            has_tag(s, tag, strlen(tag)))
            lose_tag(k, s, tag);
    }
}

static void drop_oldest_cached(struct keeper *k, const char *tenant)
{
    struct snapshot *oldest = NULL;
    unsigned count = 0;

    for (uint32_t i = 0; i < k->snapshots.count; i++) {
        struct snapshot *s = &k->snapshots.items[i];

        if (!has_name(s, tenant, COVE_BUILD_CACHE, strlen(COVE_BUILD_CACHE)))
            continue;
        count++;
        if (!oldest || s->used_ms < oldest->used_ms ||
            (s->used_ms == oldest->used_ms &&
             s->info.created_unix_ms < oldest->info.created_unix_ms))
            oldest = s;
    }
    if (count > CACHED_MAX)
        snapshots_mark_removed(k, oldest);
}

int snapshot_take_tag(struct keeper *k, struct snapshot *s, const char *name, const char *tag,
                      struct cove_err *e)
{
    const struct snapshot before = *s;

    text_copy(s->info.name, sizeof(s->info.name), name);
    s->info.flags &= ~(uint32_t)CAPTURE_PASSING;
    if (add_tag(s, tag, e) < 0 || snapshots_save(k, s, e) < 0) {
        s->info = before.info;
        return -1;
    }
    take_from_others(k, s, tag);
    if (strcmp(name, COVE_BUILD_CACHE) == 0) {
        s->used_ms = clock_boot_ms();
        drop_oldest_cached(k, s->info.tenant);
    }
    return 0;
}

static int remove_tag(struct keeper *k, const struct keeper_snapshot_tag *args,
                      struct keeper_snapshot *ret, struct cove_err *e)
{
    for (uint32_t i = 0; i < k->snapshots.count; i++) {
        struct snapshot *s = &k->snapshots.items[i];

        if (!has_name(s, args->tenant, args->name, strlen(args->name)) ||
            !has_tag(s, args->tag, strlen(args->tag)))
            continue;
        lose_tag(k, s, args->tag);
        *ret = s->info;
        return 0;
    }
    return cove_fail(e, COVE_NOT_FOUND, "tag '%.60s' does not exist for template '%.60s'",
                     args->tag, args->name);
}

int snapshot_change_tag(struct keeper *k, const struct keeper_snapshot_tag *args,
                        struct keeper_snapshot *ret, struct cove_err *e)
{
    struct snapshot *s;

    if (!snapshot_is_tag(args->tag) || snapshot_is_own_name(args->name) ||
        !snapshot_is_tag(args->name) || text_is_id(args->name))
        return cove_fail(e, COVE_INVALID,
                         "a name and a tag are 1 to %d lower-case letters, digits, '.', '_', '-'",
                         COVE_TAG_MAX - 1);
    if (args->remove)
        return remove_tag(k, args, ret, e);
    s = snapshots_find(k, args->tenant, args->which);
    if (!s)
        return cove_fail(e, COVE_NOT_FOUND, "template '%.60s' not found", args->which);
    if (s->info.name[0] && strcmp(s->info.name, args->name) != 0)
        return cove_fail(e, COVE_CONFLICT, "this build belongs to template '%.60s'", s->info.name);
    if (args->build[0])
        text_copy(s->info.build, sizeof(s->info.build), args->build);
    if (snapshot_take_tag(k, s, args->name, args->tag, e) < 0)
        return -1;
    *ret = s->info;
    return 0;
}

/* ------------------------------------------------------------------ after a restart */

/* Two snapshots have the same tag: a keeper died after it gave the tag to the newer one and before it took
 * it from the older one. */
static void settle(struct keeper *k, struct snapshot *a, struct snapshot *b)
{
    struct snapshot *newer = a->info.created_unix_ms < b->info.created_unix_ms ? b : a;
    char tags[COVE_TAGS_MAX], *rest = tags, *tag;

    text_copy(tags, sizeof(tags), newer->info.tags);
    while ((tag = strsep(&rest, " ")))
        if (*tag && has_tag(newer == a ? b : a, tag, strlen(tag)))
            lose_tag(k, newer == a ? b : a, tag);
}

void snapshot_drop_outdated(struct keeper *k)
{
    for (uint32_t i = 0; i < k->snapshots.count; i++) {
        struct snapshot *s = &k->snapshots.items[i];

        for (uint32_t j = i + 1; j < k->snapshots.count && !s->removed && s->info.name[0]; j++)
            if (has_name(&k->snapshots.items[j], s->info.tenant, s->info.name,
                         strlen(s->info.name)))
                settle(k, s, &k->snapshots.items[j]);
    }
}
