/*
 * The table of builds, and its copy on disk: a file "b.ID" per build, with a word and its value in each
 * line. Builds that an earlier builder left under way are marked as failed and their sandboxes are ended.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/record.h"
#include "cove/text.h"
#include "helpers/builder/builder_private.h"

enum { RECORD_MAX = 8192, STACK_BYTES = 512 * 1024 };

/* ------------------------------------------------------------------ records */

static const struct record_field fields[] = {
    RECORD(struct build, tenant, RECORD_TEXT, "tenant"),
    RECORD(struct build, info.name, RECORD_TEXT, "name"),
    RECORD(struct build, info.tags, RECORD_TEXT, "tags"),
    RECORD(struct build, step, RECORD_TEXT, "step"),
    RECORD(struct build, reason, RECORD_TEXT, "reason"),
    RECORD(struct build, info.created_unix_ms, RECORD_U64, "created"),
    RECORD(struct build, info.finished_unix_ms, RECORD_U64, "finished"),
    RECORD(struct build, dialect, RECORD_U32, "dialect"),
    RECORD(struct build, info.state, RECORD_U32, "state"),
    { 0 },
};

static void save_locked(struct build *b)
{
    AUTO_BUF struct buf text = BUF(RECORD_MAX);
    char name[64], aside[64];
    AUTO_CLOSE int fd = -1;

    record_write(fields, b, &text);
    snprintf(name, sizeof(name), "b.%s", b->info.id);
    snprintf(aside, sizeof(aside), "n.%s", b->info.id);
    fd = openat(b->builder->dir, aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text.data, text.len) != (ssize_t)text.len ||
        renameat(b->builder->dir, aside, b->builder->dir, name) < 0)
        log_event(LOG_LEVEL_WARN, "record of a build not written", LOG_S("build", b->info.id));
}

/* reason NULL: the template is ready. */
static void end_locked(struct build *b, const char *step, const char *reason)
{
    b->info.state = reason ? BUILD_FAILED : BUILD_READY;
    b->info.finished_unix_ms = clock_unix_ms();
    text_copy(b->step, sizeof(b->step), reason ? step : "");
    text_copy(b->reason, sizeof(b->reason), reason ? reason : "");
    for (char *c = b->reason; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
    order_done(&b->order);
    save_locked(b);
}

static bool has_ended(const struct build *b)
{
    return b->info.state == BUILD_READY || b->info.state == BUILD_FAILED;
}

static void remove_locked(struct build *b)
{
    char name[64];

    snprintf(name, sizeof(name), "b.%s", b->info.id);
    unlinkat(b->builder->dir, name, 0);
    name[0] = 'l';
    unlinkat(b->builder->dir, name, 0);
    LIST_REMOVE(b, link);
    b->builder->count--;
    order_done(&b->order);
    free(b);
}

static void insert_locked(struct builder *builder, struct build *b)
{
    struct build *at = LIST_FIRST(&builder->builds), *before = NULL;

    while (at && at->info.created_unix_ms > b->info.created_unix_ms) {
        before = at;
        at = LIST_NEXT(at, link);
    }
    if (before)
        LIST_INSERT_AFTER(before, b, link);
    else
        LIST_INSERT_HEAD(&builder->builds, b, link);
    builder->count++;
}

/* ------------------------------------------------------------------ after a restart */

/* The build's sandbox is found by its project: the builder that died may not have learnt its id. */
static void end_sandbox_of(struct keeper_link *keeper, const struct build *b)
{
    struct keeper_retire args = { 0 };
    struct cove_err err = { 0 };

    text_copy(args.tenant, sizeof(args.tenant), b->tenant);
    snprintf(args.project, sizeof(args.project), BUILD_PROJECT "%s", b->info.id);
    if (keeper_retire(keeper, &args, &err) < 0)
        log_error("the sandbox of a build that was cut off did not end", &err,
                  LOG_S("build", b->info.id));
}

struct result {
    const char *build;
    char snapshot[24]; /* "" = none has the name of the build's template */
};

static int is_result(void *arg, const struct keeper_snapshot *s)
{
    struct result *r = arg;

    if (strcmp(s->build, r->build) != 0)
        return 0;
    text_copy(r->snapshot, sizeof(r->snapshot), s->id);
    return 1;
}

/* A build gives its template a name last of all. If it was cut off after the first tag, the template can be seen:
 * it gets the other tags, and the build is ready. */
static bool is_finished(struct keeper_link *keeper, const struct build *b)
{
    struct result r = { .build = b->info.id };
    struct cove_err err = { 0 };

    return keeper_snapshots(keeper, b->tenant, is_result, &r, &err) == 0 && r.snapshot[0] &&
           build_give_tags(keeper, b, r.snapshot, &err) == 0;
}

static void end_cut_off(struct builder *builder, struct build *b)
{
    struct keeper_link keeper = KEEPER_LINK(builder->config.run_dir);
    bool finished;

    end_sandbox_of(&keeper, b);
    finished = is_finished(&keeper, b);
    keeper_link_done(&keeper);
    end_locked(b, "base", finished ? NULL : "the server was restarted during this build");
}

static void load_one(struct builder *builder, const char *id)
{
    struct build *b = calloc(1, sizeof(*b));
    char name[64], text[RECORD_MAX], *rest = text, *line;
    AUTO_CLOSE int fd = -1;
    ssize_t n;

    if (!b)
        abort();
    snprintf(name, sizeof(name), "b.%s", id);
    fd = openat(builder->dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (n <= 0 || builder->count >= BUILDS_MAX) {
        free(b);
        return;
    }
    text[n] = '\0';
    b->builder = builder;
    text_copy(b->info.id, sizeof(b->info.id), id);
    while ((line = strsep(&rest, "\n")))
        record_read_line(fields, line, b, NULL);
    if (b->info.state > BUILD_FAILED)
        b->info.state = BUILD_FAILED;
    insert_locked(builder, b);
    /* The policy's rules depend on the dialect: without one no command of the build could be judged. */
    if (b->info.state == BUILD_QUEUED || b->info.state == BUILD_RUNNING ||
        (b->info.state == BUILD_WAITING && b->dialect == DIALECT_NONE))
        end_cut_off(builder, b);
}

int builds_load(struct builder *b, struct cove_err *e)
{
    int fd = openat(b->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *all = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *d;

    if (!all) {
        cove_close(fd);
        return cove_fail_errno(e, COVE_INTERNAL, "the directory of builds");
    }
    while ((d = readdir(all)))
        if (strncmp(d->d_name, "b.", 2) == 0 && strlen(d->d_name + 2) == COVE_UUID_LEN)
            load_one(b, d->d_name + 2);
    closedir(all);
    return 0;
}

/* ------------------------------------------------------------------ the table */

struct build *builds_find_locked(struct builder *builder, const char *tenant, const char *id)
{
    struct build *b;

    LIST_FOREACH(b, &builder->builds, link)
    if (strcmp(b->info.id, id) == 0 && strcmp(b->tenant, tenant) == 0 && !b->dropped)
        return b;
    return NULL;
}

/* The oldest build of the tenant that has ended, or never got its order; NULL: there is none. */
static struct build *find_spare_locked(struct builder *builder, const char *tenant)
{
    struct build *b, *found = NULL;

    LIST_FOREACH(b, &builder->builds, link)
    if ((has_ended(b) || b->info.state == BUILD_WAITING) && strcmp(b->tenant, tenant) == 0)
        found = b;
    return found;
}

static int make_room_locked(struct builder *builder, const char *tenant, struct cove_err *e)
{
    unsigned all = 0, open = 0;
    struct build *b;

    LIST_FOREACH(b, &builder->builds, link)
    {
        bool own = strcmp(b->tenant, tenant) == 0;

        all += own;
        open += own && (b->info.state == BUILD_QUEUED || b->info.state == BUILD_RUNNING);
    }
    if (open >= TENANT_WAITING_MAX)
        return cove_fail(e, COVE_QUOTA, "quota: this tenant has %u builds under way", open);
    if (all >= TENANT_BUILDS_MAX && (b = find_spare_locked(builder, tenant)))
        remove_locked(b);
    if (builder->count >= BUILDS_MAX)
        return cove_fail(e, COVE_BUSY, "this server keeps too many builds, try again later");
    return 0;
}

int builds_add(struct builder *builder, const struct build_new *args, struct build_info *ret,
               struct cove_err *e)
{
    struct build *b;
    int rc;

    if (args->dialect == DIALECT_NONE || args->dialect >= DIALECT_COUNT)
        return cove_fail(e, COVE_INVALID, "there is no dialect %u", args->dialect);
    b = calloc(1, sizeof(*b));
    if (!b)
        abort();
    b->builder = builder;
    text_new_uuid(b->info.id);
    text_copy(b->info.name, sizeof(b->info.name), args->name);
    text_copy(b->info.tags, sizeof(b->info.tags), args->tags);
    text_copy(b->tenant, sizeof(b->tenant), args->tenant);
    text_copy(b->key, sizeof(b->key), args->key);
    b->key_sandboxes = args->key_sandboxes;
    b->cpus = args->cpus;
    b->memory_bytes = args->memory_bytes;
    b->dialect = args->dialect;
    b->info.created_unix_ms = clock_unix_ms();
    pthread_mutex_lock(&builder->lock);
    rc = make_room_locked(builder, args->tenant, e);
    if (rc == 0) {
        insert_locked(builder, b);
        save_locked(b);
        *ret = b->info;
    }
    pthread_mutex_unlock(&builder->lock);
    if (rc < 0)
        free(b);
    return rc;
}

void builds_list(struct builder *builder, const char *tenant, const char *name,
                 struct build_listed *ret)
{
    struct build *b;

    *ret = (struct build_listed){ 0 };
    pthread_mutex_lock(&builder->lock);
    LIST_FOREACH(b, &builder->builds, link)
    if (ret->count < BUILD_LIST_MAX && strcmp(b->tenant, tenant) == 0 && !b->dropped &&
        (!*name || strcmp(b->info.name, name) == 0))
        ret->items[ret->count++] = b->info;
    pthread_mutex_unlock(&builder->lock);
}

void builds_forget(struct builder *builder, const char *tenant, const char *name)
{
    struct build *b, *next;

    pthread_mutex_lock(&builder->lock);
    for (b = LIST_FIRST(&builder->builds); b; b = next) {
        next = LIST_NEXT(b, link);
        if (strcmp(b->tenant, tenant) != 0 || strcmp(b->info.name, name) != 0)
            continue;
        if (b->info.state == BUILD_RUNNING)
            b->dropped = true;
        else
            remove_locked(b);
    }
    pthread_mutex_unlock(&builder->lock);
}

bool build_is_dropped(struct build *b)
{
    bool dropped;

    pthread_mutex_lock(&b->builder->lock);
    dropped = b->dropped;
    pthread_mutex_unlock(&b->builder->lock);
    return dropped;
}

/* ------------------------------------------------------------------ whose turn it is */

static unsigned running_of_locked(const struct builder *builder, const char *tenant)
{
    const struct build *b;
    unsigned n = 0;

    LIST_FOREACH(b, &builder->builds, link)
    n += b->info.state == BUILD_RUNNING && strcmp(b->tenant, tenant) == 0;
    return n;
}

static bool start_thread(struct build *b)
{
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    rc = pthread_create(&thread, &attr, build_run, b);
    pthread_attr_destroy(&attr);
    return rc == 0;
}

/* Starts the builds that wait, the oldest first, as long as there is room for their tenants. */
static void start_next_locked(struct builder *builder)
{
    struct build *b, *next;

    do {
        next = NULL;
        LIST_FOREACH(b, &builder->builds, link)
        if (b->info.state == BUILD_QUEUED &&
            running_of_locked(builder, b->tenant) < builder->config.builds_tenant)
            next = b;
        if (!next || builder->running >= THREADS_MAX)
            return;
        if (!start_thread(next)) { /* nothing would start it later if no other build runs */
            end_locked(next, "base", "this server has no thread for a build, try again later");
            continue;
        }
        next->info.state = BUILD_RUNNING;
        builder->running++;
        save_locked(next);
    } while (true);
}

int builds_start(struct builder *builder, const char *tenant, const char *id,
                 struct build_order *order, struct cove_err *e)
{
    struct build *b;
    int rc = 0;

    pthread_mutex_lock(&builder->lock);
    b = builds_find_locked(builder, tenant, id);
    if (!b)
        rc = cove_fail(e, COVE_NOT_FOUND, "build '%.40s' not found", id);
    else if (b->info.state != BUILD_WAITING)
        rc = cove_fail(e, COVE_INVALID, "build '%.40s' is not in waiting state", id);
    if (rc == 0) {
        b->order = *order;
        *order = (struct build_order){ 0 };
        b->info.state = BUILD_QUEUED;
        save_locked(b);
        start_next_locked(builder);
    }
    pthread_mutex_unlock(&builder->lock);
    return rc;
}

void build_end(struct build *b, const char *step, const char *reason)
{
    struct builder *builder = b->builder;

    pthread_mutex_lock(&builder->lock);
    end_locked(b, step, reason);
    builder->running--;
    log_event(LOG_LEVEL_INFO, "build ended", LOG_S("build", b->info.id), LOG_S("tenant", b->tenant),
              LOG_S("template", b->info.name), LOG_S("error", b->reason));
    if (b->dropped)
        remove_locked(b);
    start_next_locked(builder);
    pthread_mutex_unlock(&builder->lock);
}
