#include "cli/template_progress.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/table.h"
#include "cove/file.h"
#include "cove/mem.h"
#include "cove/text.h"

enum {
    KEPT = 10,           /* how many ended builds are kept; the next build removes older ones */
    SEEN_MAX = 64,       /* how many builds a list has at most */
    LOG_MAX = 1 << 20,   /* a longer log begins anew */
    LOG_TOLD = 8 * 1024, /* bytes of the log's end that are shown */
    HEAD_MAX = 8 * 1024,
};

struct head {       /* of a build: the file ID.json, and the entry of a list with --json */
    const char *id; /* in a list only */
    const char *name, *source, *state, *reason;
    uint64_t began_unix_ms, ended_unix_ms;
    struct json_text log; /* in a list only: the end of the file ID.log */
};

static const struct json_field head_fields[] = {
    JSON_STR(struct head, id, "id", JSON_OPTIONAL, COVE_ID_LEN),
    JSON_STR(struct head, name, "name", JSON_REQUIRED, 256),
    JSON_STR(struct head, source, "source", JSON_REQUIRED, 4096),
    JSON_STR(struct head, state, "state", JSON_REQUIRED, 32),
    JSON_TIME(struct head, began_unix_ms, "began", JSON_REQUIRED),
    JSON_TIME(struct head, ended_unix_ms, "ended", JSON_OPTIONAL),
    JSON_STR(struct head, reason, "reason", JSON_OPTIONAL, 1024),
    JSON_TEXT(struct head, log, "log", JSON_OPTIONAL, LOG_TOLD),
    JSON_END,
};

static int open_dir(const struct cove_config *c, bool make)
{
    char path[320];

    snprintf(path, sizeof(path), "%s/template-builds", c->run_dir);
    if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
        return -1;
    return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* ------------------------------------------------------------------ writing */

static void tell_change(const struct progress *p)
{
    AUTO_CLOSE int fd = open(p->changed, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

    if (fd >= 0)
        futimens(fd, NULL);
}

/* A reader sees either the old text or the new one. */
static void replace_file(int dir, const char *name, const struct buf *text)
{
    AUTO_CLOSE int fd = -1;
    char part[72];

    snprintf(part, sizeof(part), ".%s", name);
    fd = openat(dir, part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && write_all(fd, text->data, text->len) == 0)
        renameat(dir, part, dir, name);
}

static void put_head(const struct progress *p, const struct cove_err *why, bool ended)
{
    AUTO_BUF struct buf text = BUF(HEAD_MAX);
    char name[64];
    struct json_writer w;
    struct head head = {
        .name = p->name,
        .source = p->source,
        .state = !ended ? "running"
                 : why  ? "failed"
                        : "ready",
        .reason = why ? why->msg : NULL,
        .began_unix_ms = p->began_unix_ms,
        .ended_unix_ms = ended ? clock_unix_ms() : 0,
    };

    json_writer_init(&w, &text);
    json_put_object(&w, NULL, head_fields, &head);
    snprintf(name, sizeof(name), "%s.json", p->id);
    replace_file(p->dir, name, &text);
    tell_change(p);
}

static void remove_old(int dir);

void progress_begin(struct progress *p, const struct cove_config *c, const char *name,
                    const char *source)
{
    char id[COVE_ID_LEN + 1], log[64];

    *p = (struct progress){ .name = name, .source = source, .dir = open_dir(c, true), .log = -1 };
    if (p->dir < 0)
        return;
    remove_old(p->dir);
    p->began_unix_ms = clock_unix_ms();
    snprintf(p->changed, sizeof(p->changed), "%s/template-builds.changed", c->run_dir);
    text_new_id(id);
    snprintf(log, sizeof(log), "%s.log", id);
    p->log = openat(p->dir, log, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    /* The lock ends with this process, so a build that is marked `running` and has no lock was killed. */
    if (p->log < 0 || flock(p->log, LOCK_EX | LOCK_NB) < 0)
        return;
    text_copy(p->id, sizeof(p->id), id);
    put_head(p, NULL, false);
}

void progress_add(struct progress *p, const char *bytes, size_t len)
{
    struct stat st;

    if (!p->id[0])
        return;
    if (fstat(p->log, &st) == 0 && st.st_size > LOG_MAX && ftruncate(p->log, 0) == 0)
        progress_say(p, "(earlier output is left out)");
    if (write_all(p->log, bytes, len) == 0)
        tell_change(p);
}

void progress_say(struct progress *p, const char *fmt, ...)
{
    char line[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof(line) - 1, fmt, ap);
    va_end(ap);
    strcat(line, "\n");
    progress_add(p, line, strlen(line));
}

void progress_end(struct progress *p, const struct cove_err *why)
{
    if (p->id[0])
        put_head(p, why, true);
    p->dir = cove_close(p->dir);
    p->log = cove_close(p->log);
    p->id[0] = '\0';
}

/* ------------------------------------------------------------------ reading */

struct seen {
    char id[COVE_ID_LEN + 1];
    struct head head;
};

struct all_seen {
    struct seen items[SEEN_MAX];
    size_t count;
    struct arena arena;
};

static int newest_first(const void *a, const void *b)
{
    const struct seen *x = a, *y = b;

    return (x->head.began_unix_ms < y->head.began_unix_ms) -
           (x->head.began_unix_ms > y->head.began_unix_ms);
}

/* Does the process that makes this template still live? */
static bool is_held(int dir, const char *id)
{
    char name[64];
    AUTO_CLOSE int fd = -1;

    snprintf(name, sizeof(name), "%s.log", id);
    fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0;
}

static bool read_head(struct arena *a, int dir, const char *name, struct head *ret)
{
    struct json_object *tree = NULL;
    char text[HEAD_MAX];
    ssize_t len = read_file_at(dir, name, text, sizeof(text));
    bool whole = len > 0 && json_parse(text, (size_t)len, &tree, NULL) == 0 &&
                 json_read(a, tree, head_fields, ret, NULL) == 0;

    if (whole) { /* the strings lie in the tree, which is freed below */
        ret->name = arena_strdup(a, ret->name);
        ret->source = arena_strdup(a, ret->source);
        ret->state = arena_strdup(a, ret->state);
        ret->reason = ret->reason ? arena_strdup(a, ret->reason) : NULL;
    }
    json_free(tree);
    return whole;
}

static void look(int dir, struct all_seen *all)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;

    while (names && (d = readdir(names)) && all->count < SEEN_MAX) {
        struct seen *s = &all->items[all->count];

        if (d->d_name[0] == '.' || strlen(d->d_name) != COVE_ID_LEN + strlen(".json") ||
            strcmp(d->d_name + COVE_ID_LEN, ".json") != 0)
            continue;
        *s = (struct seen){ 0 };
        memcpy(s->id, d->d_name, COVE_ID_LEN);
        if (!read_head(&all->arena, dir, d->d_name, &s->head))
            continue;
        if (strcmp(s->head.state, "running") == 0 && !is_held(dir, s->id)) {
            s->head.state = "failed";
            s->head.reason = "the command was interrupted";
        }
        all->count++;
    }
    if (names)
        closedir(names);
    qsort(all->items, all->count, sizeof(all->items[0]), newest_first);
}

static void remove_old(int dir)
{
    struct all_seen *all = calloc(1, sizeof(*all));
    size_t ended = 0;

    if (!all)
        return;
    look(dir, all);
    for (size_t i = 0; i < all->count; i++) {
        char name[64];

        if (strcmp(all->items[i].head.state, "running") == 0 || ++ended < KEPT)
            continue;
        snprintf(name, sizeof(name), "%s.json", all->items[i].id);
        unlinkat(dir, name, 0);
        snprintf(name, sizeof(name), "%s.log", all->items[i].id);
        unlinkat(dir, name, 0);
    }
    arena_done(&all->arena);
    free(all);
}

/* Reads the last LOG_TOLD bytes of a build's log. */
static size_t read_log(int dir, const char *id, char text[LOG_TOLD])
{
    AUTO_CLOSE int fd = -1;
    char name[64];
    struct stat st;
    ssize_t n = 0;

    snprintf(name, sizeof(name), "%s.log", id);
    fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && fstat(fd, &st) == 0)
        n = pread(fd, text, LOG_TOLD, st.st_size > LOG_TOLD ? st.st_size - LOG_TOLD : 0);
    return n > 0 ? (size_t)n : 0;
}

static void put_json(struct json_writer *w, int dir, const struct all_seen *all)
{
    for (size_t i = 0; i < all->count; i++) {
        struct head entry = all->items[i].head;
        char text[LOG_TOLD];

        entry.id = all->items[i].id;
        entry.log = (struct json_text){ text, read_log(dir, entry.id, text) };
        json_put_object(w, NULL, head_fields, &entry);
    }
}

static void show(const struct all_seen *all)
{
    static const char *const columns[] = { "TEMPLATE", "STATE", "BEGAN", "SOURCE", "REASON", NULL };
    struct table t;

    table_begin(&t, columns);
    for (size_t i = 0; i < all->count; i++) {
        const struct head *head = &all->items[i].head;
        char when[32];

        text_format_time(head->began_unix_ms, when);
        table_add(&t, "%s", head->name);
        table_add(&t, "%s", head->state);
        table_paint(&t, strcmp(head->state, "ready") == 0    ? PAINT_GOOD
                        : strcmp(head->state, "failed") == 0 ? PAINT_BAD
                                                             : PAINT_QUIET);
        table_add(&t, "%.19s", when);
        table_add(&t, "%s", head->source);
        table_add(&t, "%s", head->reason ? head->reason : "-");
    }
    table_end(&t);
}

int progress_list(const struct cove_config *c, struct json_writer *w, struct cove_err *e)
{
    AUTO_CLOSE int dir = open_dir(c, false);
    struct all_seen *all = calloc(1, sizeof(*all));

    if (!all)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    if (dir >= 0)
        look(dir, all);
    if (w)
        put_json(w, dir, all);
    else
        show(all);
    arena_done(&all->arena);
    free(all);
    return 0;
}
