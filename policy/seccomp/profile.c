/* Reads a seccomp profile's file into entries, one per syscall. The grammar is described at the head
 * of policy/profiles/default.conf. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/seccomp_profile.h"
#include "cove/text.h"
#include "policy/seccomp/profile_private.h"

#define INCLUDE_DEPTH  4
#define INCLUDES_MAX   64 /* in all: a file that includes itself a few times would never end */
#define LINE_MAX_BYTES 1024

static int read_path(const char *path, unsigned depth, struct profile *p, struct cove_err *e);

static const char *profile_native_arch(void)
{
#if defined(__x86_64__)
    return "x86_64";
#elif defined(__aarch64__)
    return "aarch64";
#else
    return "other";
#endif
}

/* --- words ----------------------------------------------------------------------------------- */

int profile_fail_at(struct profile_reader *r, const char *at, const char *what)
{
    return cove_fail(r->e, COVE_INVALID, "%s:%u:%u: %s", r->path, r->line,
                     (unsigned)(at - r->text) + 1, what);
}

char *profile_take_word(struct profile_reader *r)
{
    char *word;

    r->at += strspn(r->at, " \t\r");
    if (*r->at == '\0' || *r->at == '#')
        return NULL;
    word = r->at;
    r->at += strcspn(r->at, " \t\r");
    if (*r->at)
        *r->at++ = '\0';
    return word;
}

/* --- entries --------------------------------------------------------------------------------- */

static void entry_done(struct profile_entry *entry)
{
    free(entry->name);
    free(entry->condition);
    free(entry->ways);
}

static struct profile_entry *find_entry(const struct profile *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++) {
        if (strcmp(p->entries[i].name, name) == 0)
            return &p->entries[i];
    }
    return NULL;
}

/* When a call is named again, the later line counts. */
static int put_entry(struct profile_reader *r, const struct profile_entry *entry)
{
    struct profile *p = r->p;
    struct profile_entry *earlier = find_entry(p, entry->name);

    if (earlier) {
        entry_done(earlier);
        *earlier = *entry;
        return 0;
    }
    if (p->count == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 512;
        struct profile_entry *more = reallocarray(p->entries, cap, sizeof(*more));

        if (!more)
            return cove_fail(r->e, COVE_INTERNAL, "out of memory");
        p->entries = more;
        p->cap = cap;
    }
    p->entries[p->count++] = *entry;
    return 0;
}

static int add_entry(struct profile_reader *r, enum profile_action action, const char *word)
{
    struct profile_entry entry = {
        .action = action, .otherwise = PROFILE_REFUSE, .optional = *word == '?', .line = r->line
    };

    if (!r->here)
        return 0;
    entry.name = strdup(word + entry.optional);
    entry.condition = strdup("");
    if (!entry.name || !entry.condition || put_entry(r, &entry) < 0) {
        entry_done(&entry);
        return cove_fail(r->e, COVE_INTERNAL, "out of memory");
    }
    return 0;
}

/* Lines for other architectures are read as well, so that their mistakes are found here too. */
static int skip_condition(struct profile_reader *r)
{
    struct profile_entry ignored = { .condition = strdup("") };
    int rc = ignored.condition ? profile_read_condition(r, &ignored)
                               : cove_fail(r->e, COVE_INTERNAL, "out of memory");

    entry_done(&ignored);
    return rc;
}

static int add_condition(struct profile_reader *r, const char *name)
{
    return r->here ? profile_read_condition(r, find_entry(r->p, name)) : skip_condition(r);
}

static int on_names(struct profile_reader *r, enum profile_action action)
{
    char *word, *last = NULL;
    unsigned count = 0;

    while ((word = profile_take_word(r))) {
        if (strcmp(word, "if") == 0) {
            if (count != 1 || action != PROFILE_ALLOW)
                return profile_fail_at(r, word, "a condition belongs to one name behind allow");
            if (strncmp(last + (*last == '?'), "execve", 6) == 0)
                return profile_fail_at(r, word, "no condition on execve: the judge looks at it");
            return add_condition(r, last + (*last == '?'));
        }
        if (word[strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_?")] != '\0')
            return profile_fail_at(r, word, "not the name of a syscall");
        if (add_entry(r, action, word) < 0)
            return -1;
        last = word;
        count++;
    }
    return count ? 0 : profile_fail_at(r, r->at, "names of syscalls are missing");
}

/* --- lines ----------------------------------------------------------------------------------- */

static int on_allow(struct profile_reader *r)
{
    return on_names(r, PROFILE_ALLOW);
}

static int on_refuse(struct profile_reader *r)
{
    return on_names(r, PROFILE_REFUSE);
}

static int on_enosys(struct profile_reader *r)
{
    return on_names(r, PROFILE_ENOSYS);
}

/* also NAME if ...: one more condition under which a call is allowed. */
static int on_also(struct profile_reader *r)
{
    char *begin = r->at, *name = profile_take_word(r), *word = profile_take_word(r);
    const struct profile_entry *entry;

    if (!name || !word || strcmp(word, "if") != 0)
        return profile_fail_at(r, begin, "also takes one name and a condition");
    name += *name == '?';
    entry = find_entry(r->p, name);
    if (r->here && (!entry || entry->way_count == 0))
        return profile_fail_at(r, name, "no earlier line allows this call under a condition");
    return add_condition(r, name);
}

static int on_arch(struct profile_reader *r)
{
    char *native = profile_take_word(r), *compat;

    if (!native)
        return profile_fail_at(r, r->at, "an architecture is missing");
    while ((compat = profile_take_word(r))) {
        if (strcmp(native, profile_native_arch()) != 0)
            continue;
        if (r->p->compat_count == PROFILE_COMPAT_MAX ||
            !text_copy(r->p->compat[r->p->compat_count], sizeof(r->p->compat[0]), compat))
            return profile_fail_at(r, compat, "too many architectures");
        r->p->compat_count++;
    }
    return 0;
}

static int on_include(struct profile_reader *r)
{
    char *name = profile_take_word(r), path[PATH_MAX];
    const char *slash = strrchr(r->path, '/');

    if (!name || name[0] == '.' || strchr(name, '/'))
        return profile_fail_at(r, name ? name : r->at,
                               "include takes the name of a file, without a folder");
    if (r->depth == INCLUDE_DEPTH)
        return profile_fail_at(r, name, "included too deep: is it a loop?");
    if (r->p->includes++ == INCLUDES_MAX)
        return profile_fail_at(r, name, "too many includes: is it a loop?");
    snprintf(path, sizeof(path), "%.*s%s", slash ? (int)(slash - r->path) + 1 : 0, r->path, name);
    if (access(path, F_OK) < 0) /* an operator's profile goes on from one that was installed */
        snprintf(path, sizeof(path), "%s/%s", COVE_DATADIR "/profiles", name);
    return read_path(path, r->depth + 1, r->p, r->e);
}

static int on_section(struct profile_reader *r, const char *head)
{
    size_t len = strlen(head);

    if (len < 3 || head[len - 1] != ']')
        return profile_fail_at(r, head, "a section is [x86_64], [aarch64] or [*]");
    r->here = strcmp(head, "[*]") == 0 || (strlen(profile_native_arch()) == len - 2 &&
                                           memcmp(head + 1, profile_native_arch(), len - 2) == 0);
    return 0;
}

static const struct {
    const char *word;
    int (*met)(struct profile_reader *r);
} verbs[] = {
    { "allow", on_allow },   { "also", on_also }, { "refuse", on_refuse },
    { "enosys", on_enosys }, { "arch", on_arch }, { "include", on_include },
};

static int on_line(struct profile_reader *r)
{
    char *word = profile_take_word(r);

    if (!word)
        return 0;
    if (word[0] == '[')
        return on_section(r, word);
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
        if (strcmp(verbs[i].word, word) == 0)
            return verbs[i].met(r);
    }
    return profile_fail_at(r, word,
                           "neither allow, also, refuse, enosys, arch, include nor a [section]");
}

static int read_lines(struct profile_reader *r, FILE *f)
{
    char line[LINE_MAX_BYTES];

    for (r->line = 1; fgets(line, sizeof(line), f); r->line++) {
        size_t len = strlen(line);

        r->text = r->at = line;
        if (len == 0 || line[len - 1] != '\n')
            return profile_fail_at(r, line + len,
                                   "the line is too long, has a NUL in it, or has no end");
        line[len - 1] = '\0';
        if (on_line(r) < 0)
            return -1;
    }
    return ferror(f) ? cove_fail_errno(r->e, COVE_INVALID, "%s", r->path) : 0;
}

static int read_path(const char *path, unsigned depth, struct profile *p, struct cove_err *e)
{
    struct profile_reader r = { .p = p, .path = path, .depth = depth, .here = true, .e = e };
    FILE *f = fopen(path, "re");
    struct stat st;
    int result;

    if (!f)
        return cove_fail_errno(e, COVE_NOT_FOUND, "seccomp profile %s", path);
    if (fstat(fileno(f), &st) < 0 || !S_ISREG(st.st_mode))
        result = cove_fail(e, COVE_INVALID, "%s: not a regular file", path);
    else
        result = read_lines(&r, f);
    fclose(f);
    return result;
}

int profile_read(const char *path, struct profile *ret, struct cove_err *e)
{
    struct profile p = { 0 };

    if (read_path(path, 0, &p, e) < 0) {
        profile_done(&p);
        return -1;
    }
    if (p.count == 0) /* a file cut short: every call would answer ENOSYS */
        return cove_fail(e, COVE_INVALID, "%s:1:1: the profile names no syscall", path);
    *ret = p;
    return 0;
}

void profile_done(struct profile *p)
{
    for (size_t i = 0; i < p->count; i++)
        entry_done(&p->entries[i]);
    free(p->entries);
    *p = (struct profile){ 0 };
}
