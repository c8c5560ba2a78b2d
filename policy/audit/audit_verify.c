/* Reading the audit log: is each line what was written, and does each follow the one before? */
#include <dirent.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "policy/audit/audit_private.h"

int audit_hash(const char *text, size_t len, char out[AUDIT_HASH_LEN + 1])
{
    unsigned char digest[32];

    if (!EVP_Digest(text, len, digest, NULL, EVP_sha256(), NULL))
        return -1;
    text_hex(digest, sizeof(digest), out);
    return 0;
}

/* Is there KEY and 64 hex digits at `at`? Copies the digits. */
static bool take_hash(const char *at, const char *key, char out[AUDIT_HASH_LEN + 1])
{
    size_t n = strlen(key);

    if (memcmp(at, key, n) != 0)
        return false;
    memcpy(out, at + n, AUDIT_HASH_LEN);
    out[AUDIT_HASH_LEN] = '\0';
    return strspn(out, "0123456789abcdef") == AUDIT_HASH_LEN;
}

bool audit_parse_line(const char *line, size_t len, struct audit_link *ret)
{
    static const char head[] = "{\"seq\":";
    char hash[AUDIT_HASH_LEN + 1];
    size_t body;

    if (len < sizeof(head) + AUDIT_PREV_LEN + AUDIT_TAIL_LEN ||
        memcmp(line, head, sizeof(head) - 1) != 0)
        return false;
    body = len - AUDIT_TAIL_LEN;
    if (memcmp(line + len - 2, "\"}", 2) != 0 ||
        !take_hash(line + body, AUDIT_HASH_KEY, ret->hash) ||
        !take_hash(line + body - AUDIT_PREV_LEN, AUDIT_PREV_KEY, ret->prev))
        return false;
    ret->seq = strtoull(line + sizeof(head) - 1, NULL, 10);
    return audit_hash(line, body, hash) == 0 && memcmp(hash, ret->hash, sizeof(hash)) == 0;
}

/* --- files that were moved aside ------------------------------------------------------------- */

int audit_rotated_name(const char *path, unsigned number, char *out, size_t size)
{
    int n = snprintf(out, size, "%s.%06u", path, number);

    return n < 0 || (size_t)n >= size ? -1 : 0;
}

static int by_number(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

    return (x > y) - (x < y);
}

/* audit.log.000042 -> 42; 0 if it is something else. */
static unsigned rotated_number(const char *base, const char *name)
{
    size_t n = strlen(base);
    char *end;
    unsigned long number;

    if (strncmp(name, base, n) != 0 || name[n] != '.' || strlen(name + n) < 7)
        return 0;
    if (strspn(name + n + 1, "0123456789") != strlen(name + n + 1))
        return 0;
    number = strtoul(name + n + 1, &end, 10);
    return number < 100000000 ? (unsigned)number : 0;
}

static int collect_numbers(DIR *dir, const char *base, unsigned **ret, size_t *ret_count)
{
    struct dirent *d;
    size_t cap = 0;

    while ((d = readdir(dir))) {
        unsigned number = rotated_number(base, d->d_name);

        if (number == 0)
            continue;
        if (*ret_count == cap) {
            unsigned *more = reallocarray(*ret, cap = cap ? cap * 2 : 16, sizeof(*more));

            if (!more)
                return -1;
            *ret = more;
        }
        (*ret)[(*ret_count)++] = number;
    }
    if (*ret_count)
        qsort(*ret, *ret_count, sizeof(**ret), by_number);
    return 0;
}

int audit_list_rotated(const char *path, unsigned **ret, size_t *ret_count, struct cove_err *e)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    AUTO_FREE char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    DIR *dir = folder ? opendir(folder) : NULL;
    unsigned *numbers = NULL;
    size_t count = 0;
    int r;

    if (!dir)
        return cove_fail_errno(e, COVE_NOT_FOUND, "audit log's folder %s", folder ? folder : "");
    r = collect_numbers(dir, base, &numbers, &count);
    closedir(dir);
    if (r < 0) {
        free(numbers);
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    }
    *ret = numbers;
    *ret_count = count;
    return 0;
}

/* --- verifying ------------------------------------------------------------------------------- */

struct verifier {
    struct audit_report *report;
    struct audit_link last;
    bool any; /* a line was seen: the next one must follow it */
};

static void broken(struct verifier *v, const char *file, uint64_t line, const char *what)
{
    text_copy(v->report->broken_file, sizeof(v->report->broken_file), file);
    v->report->broken_line = line;
    text_copy(v->report->what, sizeof(v->report->what), what);
}

/* Checks a line; NULL: all is well. The first line of the oldest file that is left may follow one that was removed. */
static const char *check_line(struct verifier *v, const char *line, size_t len,
                              bool oldest_is_first)
{
    struct audit_link link;

    if (len == 0 || line[len - 1] != '\n')
        return "the line has no end";
    if (!audit_parse_line(line, len - 1, &link))
        return "the line was changed: its hash is not its own";
    if (v->any && strcmp(link.prev, v->last.hash) != 0)
        return "a line before this one is missing or was replaced";
    if (v->any && link.seq != v->last.seq + 1)
        return "its number does not follow the one before";
    if (!v->any && oldest_is_first && strcmp(link.prev, AUDIT_ZERO) != 0)
        return "this is not the beginning: lines before it are missing";
    v->last = link;
    v->any = true;
    v->report->lines++;
    memcpy(v->report->head, link.hash, sizeof(link.hash));
    return NULL;
}

/* 1 when a broken line was found. */
static int check_file(struct verifier *v, const char *path, bool oldest_is_first,
                      struct cove_err *e)
{
    FILE *f = fopen(path, "re");
    AUTO_FREE char *line = NULL;
    const char *what = NULL;
    uint64_t number = 0;
    size_t cap = 0;
    ssize_t n;

    if (!f)
        return cove_fail_errno(e, COVE_NOT_FOUND, "audit log %s", path);
    while (!what && (n = getline(&line, &cap, f)) > 0) {
        number++;
        what = check_line(v, line, (size_t)n, oldest_is_first);
    }
    if (!what && ferror(f)) {
        fclose(f);
        return cove_fail_errno(e, COVE_INTERNAL, "reading %s", path);
    }
    fclose(f);
    v->report->files++;
    if (what)
        broken(v, path, number, what);
    return what != NULL;
}

int audit_verify(const char *path, struct audit_report *ret, struct cove_err *e)
{
    struct verifier v = { .report = ret };
    AUTO_FREE unsigned *numbers = NULL;
    size_t count;
    char name[4096];
    int r = 0;

    *ret = (struct audit_report){ 0 };
    if (audit_list_rotated(path, &numbers, &count, e) < 0)
        return -1;
    for (size_t i = 0; i < count && r == 0; i++) {
        if (i > 0 && numbers[i] != numbers[i - 1] + 1) {
            audit_rotated_name(path, numbers[i - 1] + 1, name, sizeof(name));
            broken(&v, name, 0, "this file is missing");
            return 0;
        }
        if (audit_rotated_name(path, numbers[i], name, sizeof(name)) == 0)
            r = check_file(&v, name, numbers[i] == 1, e);
    }
    if (r == 0)
        r = check_file(&v, path, count == 0, e);
    return r < 0 ? -1 : 0;
}

/* --- reading for people ---------------------------------------------------------------------- */

/* 1: fn had enough. */
static int each_line_of(const char *path, audit_line_fn fn, void *ctx, struct cove_err *e)
{
    FILE *f = fopen(path, "re");
    AUTO_FREE char *line = NULL;
    size_t cap = 0;
    bool going = true;

    if (!f)
        return cove_fail_errno(e, COVE_NOT_FOUND, "audit log %s", path);
    while (going && getline(&line, &cap, f) > 0)
        going = fn(ctx, line);
    fclose(f);
    return going ? 0 : 1;
}

int audit_each_line(const char *path, audit_line_fn fn, void *ctx, struct cove_err *e)
{
    AUTO_FREE unsigned *numbers = NULL;
    size_t count;
    char name[4096];
    int r = 0;

    if (audit_list_rotated(path, &numbers, &count, e) < 0)
        return -1;
    for (size_t i = 0; i < count && r == 0; i++) {
        if (audit_rotated_name(path, numbers[i], name, sizeof(name)) == 0)
            r = each_line_of(name, fn, ctx, e);
    }
    if (r == 0)
        r = each_line_of(path, fn, ctx, e);
    return r < 0 ? -1 : 0;
}
