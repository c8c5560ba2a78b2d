/* A seccomp profile's file into entries, one per syscall. The grammar stands in
 * profiles/default.conf. */
#include <asm/ioctls.h>
#include <errno.h>
#include <limits.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/seccomp_profile.h"
#include "cove/text.h"
#include "policy/seccomp/profile_private.h"

#define INCLUDE_DEPTH  4
#define INCLUDES_MAX   64 /* in all: a file that includes itself a few times would never end */
#define LINE_MAX_BYTES 1024

struct reader {
    struct profile *p;
    const char *path;
    unsigned line, depth;
    bool here; /* the section holds on this architecture */
    char *text, *at;
    struct cove_err *e;
};

static int read_path(struct reader *outer, const char *path, unsigned depth, struct profile *p,
                     struct cove_err *e);

static const struct {
    const char *name;
    uint32_t value;
} constants[] = {
    { "AF_UNIX", AF_UNIX },
    { "AF_INET", AF_INET },
    { "AF_INET6", AF_INET6 },
    { "AF_NETLINK", AF_NETLINK },
    { "AF_PACKET", AF_PACKET },
    { "AF_VSOCK", AF_VSOCK },
    { "AF_ALG", AF_ALG },
    { "CLONE_NEWNS", CLONE_NEWNS },
    { "CLONE_NEWCGROUP", CLONE_NEWCGROUP },
    { "CLONE_NEWUTS", CLONE_NEWUTS },
    { "CLONE_NEWIPC", CLONE_NEWIPC },
    { "CLONE_NEWUSER", CLONE_NEWUSER },
    { "CLONE_NEWPID", CLONE_NEWPID },
    { "CLONE_NEWNET", CLONE_NEWNET },
    { "TIOCSTI", TIOCSTI },
    { "TIOCLINUX", TIOCLINUX },
    { "SECCOMP_FILTER_FLAG_NEW_LISTENER", SECCOMP_FILTER_FLAG_NEW_LISTENER },
};

const char *profile_native_arch(void)
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

static int fail_at(struct reader *r, const char *at, const char *what)
{
    return cove_fail(r->e, COVE_INVALID, "%s:%u:%u: %s", r->path, r->line,
                     (unsigned)(at - r->text) + 1, what);
}

static char *take_word(struct reader *r)
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

static bool parse_value(const char *word, size_t len, uint32_t *ret)
{
    char text[40], *end;
    unsigned long v;

    if (len == 0 || len >= sizeof(text))
        return false;
    memcpy(text, word, len);
    text[len] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(constants); i++) {
        if (strcmp(constants[i].name, text) == 0) {
            *ret = constants[i].value;
            return true;
        }
    }
    if (text[0] < '0' || text[0] > '9')
        return false;
    v = strtoul(text, &end, 0);
    *ret = (uint32_t)v;
    return *end == '\0' && v <= UINT32_MAX;
}

/* A,B or A|B: each value into the entry. */
static int parse_values(struct reader *r, struct profile_entry *entry, char *list, char separator)
{
    char stops[] = { separator, '\0' };

    for (char *at = list;; at++) {
        size_t len = strcspn(at, stops);

        if (entry->value_count == PROFILE_VALUES_MAX)
            return fail_at(r, at, "too many values");
        if (!parse_value(at, len, &entry->values[entry->value_count++]))
            return fail_at(r, at, "neither a number nor a name that is known here");
        at += len;
        if (*at == '\0')
            return 0;
    }
}

/* --- entries --------------------------------------------------------------------------------- */

static void entry_done(struct profile_entry *entry)
{
    free(entry->name);
    free(entry->condition);
}

/* The same call again: the later line counts. */
static int put_entry(struct reader *r, const struct profile_entry *entry)
{
    struct profile *p = r->p;

    for (size_t i = 0; i < p->count; i++) {
        if (strcmp(p->entries[i].name, entry->name) == 0) {
            entry_done(&p->entries[i]);
            p->entries[i] = *entry;
            return 0;
        }
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

/* if argN == A,B    if argN != A,B    if argN & A|B == 0; the words behind `if`. */
static int parse_condition(struct reader *r, struct profile_entry *entry)
{
    char *begin = r->at, *arg = take_word(r), *op = take_word(r), *values = take_word(r);

    if (!arg || strlen(arg) != 4 || memcmp(arg, "arg", 3) != 0 || arg[3] < '0' || arg[3] > '5')
        return fail_at(r, arg ? arg : begin, "after if comes arg0 to arg5");
    entry->arg = (unsigned)(arg[3] - '0');
    if (!op || !values)
        return fail_at(r, arg, "the condition has no end");
    if (strcmp(op, "==") == 0)
        entry->test = TEST_ONE_OF;
    else if (strcmp(op, "!=") == 0)
        entry->test = TEST_NOT;
    else if (strcmp(op, "&") == 0)
        entry->test = TEST_NO_BIT;
    else
        return fail_at(r, op, "neither == nor != nor &");
    if (parse_values(r, entry, values, entry->test == TEST_NO_BIT ? '|' : ',') < 0)
        return -1;
    if (entry->test == TEST_NO_BIT) {
        char *equals = take_word(r), *zero = take_word(r);

        if (!equals || !zero || strcmp(equals, "==") != 0 || strcmp(zero, "0") != 0)
            return fail_at(r, values, "a mask must be compared with == 0");
        for (size_t i = 1; i < entry->value_count; i++)
            entry->values[0] |= entry->values[i];
        entry->value_count = 1;
    }
    return 0;
}

/* What stands behind `if`, without a comment and trailing blanks. */
static char *condition_text(const char *at)
{
    size_t len;

    at += strspn(at, " \t");
    len = strcspn(at, "#\r");
    while (len && strchr(" \t", at[len - 1]))
        len--;
    return strndup(at, len);
}

static int add_entry(struct reader *r, enum profile_action action, const char *word)
{
    struct profile_entry entry = { .action = action, .optional = *word == '?', .line = r->line };

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

static struct profile_entry *find_entry(struct profile *p, const char *name)
{
    for (size_t i = 0; i < p->count; i++) {
        if (strcmp(p->entries[i].name, name) == 0)
            return &p->entries[i];
    }
    return NULL;
}

/* `if` was met behind a single name. */
static int add_condition(struct reader *r, const char *name)
{
    struct profile_entry ignored = { 0 }, *entry = r->here ? find_entry(r->p, name) : &ignored;
    char *text = condition_text(r->at);

    if (!text || parse_condition(r, entry) < 0) {
        free(text);
        return text ? -1 : cove_fail(r->e, COVE_INTERNAL, "out of memory");
    }
    free(entry->condition);
    entry->condition = text;
    if (!r->here)
        entry_done(&ignored);
    return take_word(r) ? fail_at(r, r->at, "something behind the condition") : 0;
}

static int on_names(struct reader *r, enum profile_action action)
{
    char *word, *last = NULL;
    unsigned count = 0;

    while ((word = take_word(r))) {
        if (strcmp(word, "if") == 0) {
            if (count != 1 || action != PROFILE_ALLOW)
                return fail_at(r, word, "a condition belongs to one name behind allow");
            if (strncmp(last + (*last == '?'), "execve", 6) == 0)
                return fail_at(r, word, "no condition on execve: its arguments are the judge's");
            return add_condition(r, last + (*last == '?'));
        }
        if (word[strspn(word, "abcdefghijklmnopqrstuvwxyz0123456789_?")] != '\0')
            return fail_at(r, word, "not the name of a syscall");
        if (add_entry(r, action, word) < 0)
            return -1;
        last = word;
        count++;
    }
    return count ? 0 : fail_at(r, r->at, "names of syscalls are missing");
}

/* --- lines ----------------------------------------------------------------------------------- */

static int on_allow(struct reader *r)
{
    return on_names(r, PROFILE_ALLOW);
}

static int on_refuse(struct reader *r)
{
    return on_names(r, PROFILE_REFUSE);
}

static int on_enosys(struct reader *r)
{
    return on_names(r, PROFILE_ENOSYS);
}

static int on_arch(struct reader *r)
{
    char *native = take_word(r), *compat;

    if (!native)
        return fail_at(r, r->at, "an architecture is missing");
    while ((compat = take_word(r))) {
        if (strcmp(native, profile_native_arch()) != 0)
            continue;
        if (r->p->compat_count == PROFILE_COMPAT_MAX ||
            !text_copy(r->p->compat[r->p->compat_count], sizeof(r->p->compat[0]), compat))
            return fail_at(r, compat, "too many architectures");
        r->p->compat_count++;
    }
    return 0;
}

static int on_include(struct reader *r)
{
    char *name = take_word(r), path[PATH_MAX];
    const char *slash = strrchr(r->path, '/');

    if (!name || name[0] == '.' || strchr(name, '/'))
        return fail_at(r, name ? name : r->at,
                       "include takes the name of a file, without a folder");
    if (r->depth == INCLUDE_DEPTH)
        return fail_at(r, name, "included too deep: is it a loop?");
    if (r->p->includes++ == INCLUDES_MAX)
        return fail_at(r, name, "too many includes: is it a loop?");
    snprintf(path, sizeof(path), "%.*s%s", slash ? (int)(slash - r->path) + 1 : 0, r->path, name);
    if (access(path, F_OK) < 0) /* an operator's profile goes on from one that was installed */
        snprintf(path, sizeof(path), "%s/%s", COVE_DATADIR "/profiles", name);
    return read_path(r, path, r->depth + 1, r->p, r->e);
}

static int on_section(struct reader *r, const char *head)
{
    size_t len = strlen(head);

    if (len < 3 || head[len - 1] != ']')
        return fail_at(r, head, "a section is [x86_64], [aarch64] or [*]");
    r->here = strcmp(head, "[*]") == 0 || (strlen(profile_native_arch()) == len - 2 &&
                                           memcmp(head + 1, profile_native_arch(), len - 2) == 0);
    return 0;
}

static const struct {
    const char *word;
    int (*met)(struct reader *r);
} verbs[] = {
    { "allow", on_allow }, { "refuse", on_refuse },   { "enosys", on_enosys },
    { "arch", on_arch },   { "include", on_include },
};

static int on_line(struct reader *r)
{
    char *word = take_word(r);

    if (!word)
        return 0;
    if (word[0] == '[')
        return on_section(r, word);
    for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
        if (strcmp(verbs[i].word, word) == 0)
            return verbs[i].met(r);
    }
    return fail_at(r, word, "neither allow, refuse, enosys, arch, include nor a [section]");
}

static int read_lines(struct reader *r, FILE *f)
{
    char line[LINE_MAX_BYTES];

    for (r->line = 1; fgets(line, sizeof(line), f); r->line++) {
        size_t len = strlen(line);

        r->text = r->at = line;
        if (len == 0 || line[len - 1] != '\n')
            return fail_at(r, line + len, "the line is too long, has a NUL in it, or has no end");
        line[len - 1] = '\0';
        if (on_line(r) < 0)
            return -1;
    }
    return ferror(f) ? cove_fail_errno(r->e, COVE_INVALID, "%s", r->path) : 0;
}

static int read_path(struct reader *outer, const char *path, unsigned depth, struct profile *p,
                     struct cove_err *e)
{
    struct reader r = { .p = p, .path = path, .depth = depth, .here = true, .e = e };
    FILE *f = fopen(path, "re");
    struct stat st;
    int result;

    (void)outer;
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

    if (read_path(NULL, path, 0, &p, e) < 0) {
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
