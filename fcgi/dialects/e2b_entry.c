/* One file or directory as clients see it: EntryInfo. */
#include <string.h>
#include <sys/stat.h>

#include "fcgi/dialects/e2b_filesystem.h"

enum { LINKS_MAX = 40 };

static const struct {
    uint32_t mask, bits;
    char letter;
} letters[] = {
    /* in the order in which Go's file modes are printed */
    { S_IFMT, S_IFDIR, 'd' },  { S_IFMT, S_IFLNK, 'L' },  { S_IFMT, S_IFBLK, 'D' },
    { S_IFMT, S_IFIFO, 'p' },  { S_IFMT, S_IFSOCK, 'S' }, { S_ISUID, S_ISUID, 'u' },
    { S_ISGID, S_ISGID, 'g' }, { S_IFMT, S_IFCHR, 'c' },  { S_ISVTX, S_ISVTX, 't' },
};

/* "-rw-r--r--", "drwxr-xr-x", "dtrwxrwxrwx" */
static char *permissions(struct arena *a, uint32_t mode)
{
    char text[ARRAY_SIZE(letters) + 12];
    size_t n = 0;

    if (S_ISCHR(mode)) /* a character device is both 'D' and 'c' */
        text[n++] = 'D';
    for (size_t i = 0; i < ARRAY_SIZE(letters); i++)
        if ((mode & letters[i].mask) == letters[i].bits)
            text[n++] = letters[i].letter;
    if (n == 0)
        text[n++] = '-';
    for (int i = 8; i >= 0; i--)
        text[n++] = mode & (1U << i) ? "xwr"[i % 3] : '-';
    return arena_strndup(a, text, n);
}

static Filesystem__FileType type_of(uint32_t mode)
{
    if (S_ISREG(mode))
        return FILESYSTEM__FILE_TYPE__FILE_TYPE_FILE;
    if (S_ISDIR(mode))
        return FILESYSTEM__FILE_TYPE__FILE_TYPE_DIRECTORY;
    return FILESYSTEM__FILE_TYPE__FILE_TYPE_UNSPECIFIED;
}

static const char *join_target(struct arena *a, const char *link, const char *target)
{
    const char *slash = strrchr(link, '/');

    return *target == '/'
               ? target
               : arena_printf(a, "%.*s/%s", slash ? (int)(slash - link) : 0, link, target);
}

/*
 * Where a link leads, and what is there; a link to nothing keeps its own path. Directories above the
 * last component may be links themselves: init follows them, the text shows them as they are.
 */
static const char *follow(struct envd *d, const char *path, const char *target, struct box_stat *st)
{
    struct arena *a = &d->req->arena;
    const char *at = envd_clean(a, join_target(a, path, target));
    struct cove_err ignored;

    for (int i = 0; i < LINKS_MAX; i++) {
        char next[MSG_PATH_MAX];

        if (box_file_stat_link(&d->session.conn, "root", at, st, next, &ignored) < 0)
            break;
        if (!S_ISLNK(st->mode))
            return at;
        at = envd_clean(a, join_target(a, at, arena_strdup(a, next)));
    }
    st->mode = 0;
    return path;
}

/* Adds the metadata of a file or directory. Metadata that cannot be read is left out. */
void entry_add_metadata(struct envd *d, Filesystem__EntryInfo *entry)
{
    struct arena *a = &d->req->arena;
    struct pair pairs[BOX_MARKS_MAX];
    struct cove_err ignored;
    size_t count = 0;

    if (!entry->has_type || entry->symlink_target ||
        box_marks(&d->session.conn, entry->path, ENVD_METADATA, pairs, &count, &ignored) < 0 ||
        count == 0)
        return;
    entry->metadata = arena_alloc(a, count * sizeof(*entry->metadata));
    for (size_t i = 0; i < count; i++) {
        Filesystem__MetadataEntry *item = arena_alloc(a, sizeof(*item));

        filesystem__metadata_entry__init(item);
        item->key = arena_strdup(a, pairs[i].name);
        item->value = arena_strdup(a, pairs[i].value);
        entry->metadata[entry->n_metadata++] = item;
    }
}

Filesystem__EntryInfo *entry_make(struct envd *d, const char *path, const struct box_stat *st,
                                  const char *target)
{
    struct arena *a = &d->req->arena;
    Filesystem__EntryInfo *entry = arena_alloc(a, sizeof(*entry));
    Filesystem__Timestamp *time = arena_alloc(a, sizeof(*time));
    struct box_stat end = *st;
    const char *slash = strrchr(path, '/');

    filesystem__entry_info__init(entry);
    filesystem__timestamp__init(time);
    if (S_ISLNK(st->mode))
        entry->symlink_target = (char *)follow(d, path, target, &end);
    entry->name = arena_strdup(a, slash && slash[1] ? slash + 1 : path);
    entry->path = (char *)path;
    entry->type = type_of(end.mode);
    entry->has_type = entry->type != FILESYSTEM__FILE_TYPE__FILE_TYPE_UNSPECIFIED;
    entry->size = (int64_t)st->bytes;
    entry->has_size = entry->size != 0;
    entry->mode = end.mode & 0777;
    entry->has_mode = entry->mode != 0;
    entry->permissions = permissions(a, st->mode);
    entry->owner = (char *)core_user_name(&d->users, a, st->uid);
    entry->group = (char *)core_group_name(&d->users, a, st->gid);
    time->seconds = st->mtime_ns / 1000000000;
    time->nanos = (int32_t)(st->mtime_ns % 1000000000);
    time->has_seconds = time->has_nanos = 1;
    entry->modified_time = time;
    return entry;
}

int entry_stat(struct envd *d, const char *path, Filesystem__EntryInfo **ret, struct cove_err *e)
{
    char target[MSG_PATH_MAX];
    struct box_stat st;

    if (box_file_stat_link(&d->session.conn, "root", path, &st, target, e) < 0)
        return -1;
    *ret = entry_make(d, path, &st, arena_strdup(&d->req->arena, target));
    entry_add_metadata(d, *ret);
    return 0;
}
