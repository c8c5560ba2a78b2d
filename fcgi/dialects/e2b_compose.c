/*
 * POST /files/compose: several files of the sandbox become one, which appears whole in its place; then
 * they are removed. This is how clients upload a large file in pieces.
 */
#include <string.h>
#include <unistd.h>

#include "fcgi/dialects/e2b.h"

enum { SOURCES_MAX = 10000, CHUNK_BYTES = 64 * 1024 };

struct compose_args {
    struct json_strings sources;
    const char *destination, *user;
};

static const struct json_field compose_fields[] = {
    JSON_STR_ARRAY(struct compose_args, sources, "source_paths", JSON_REQUIRED, SOURCES_MAX,
                   MSG_PATH_MAX),
    JSON_STR(struct compose_args, destination, "destination", JSON_REQUIRED, MSG_PATH_MAX),
    JSON_STR(struct compose_args, user, "username", JSON_OPTIONAL, 64),
    JSON_END,
};

/* Appends one source to the file that is being written. */
static int append(struct envd *d, const char *path, struct core_file *to, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;
    char chunk[CHUNK_BYTES];
    struct box_stat st;
    ssize_t n;

    if (core_file_open(&d->session, "root", path, &fd, &st, e) < 0)
        return e->code == COVE_NOT_FOUND
                   ? cove_fail(e, COVE_NOT_FOUND, "path '%.160s' does not exist", path)
                   : -1;
    while ((n = read(fd, chunk, sizeof(chunk))) > 0)
        if (core_file_write(to, chunk, (size_t)n, e) < 0)
            return envd_write_failed(e);
    return n < 0 ? cove_fail_errno(e, COVE_INTERNAL, "'%.160s'", path) : 0;
}

static int write_parts(struct envd *d, const char **paths, size_t count, struct core_file *to,
                       struct cove_err *e)
{
    for (size_t i = 0; i < count; i++)
        if (append(d, paths[i], to, e) < 0)
            return -1;
    return core_file_commit(to, e) < 0 ? envd_write_failed(e) : 0;
}

/* A source that is also the destination must not be removed: it is the result. */
static void remove_sources(struct envd *d, const char **paths, size_t count, const char *result)
{
    struct cove_err ignored;

    for (size_t i = 0; i < count; i++)
        if (strcmp(paths[i], result) != 0)
            core_remove(&d->session, "root", paths[i], 0, &ignored);
}

static int compose(struct envd *d, const struct compose_args *args, const char **ret,
                   struct cove_err *e)
{
    size_t count = args->sources.count;
    const char **paths = arena_alloc(&d->req->arena, (count + 1) * sizeof(*paths));
    struct core_file file;
    int rc;

    if (count == 0)
        return cove_fail(e, COVE_INVALID, "source_paths: must not be empty");
    if (envd_user(d, args->user, e) < 0 || envd_path(d, args->destination, ret, e) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (envd_path(d, args->sources.items[i], &paths[i], e) < 0)
            return -1;
    if (core_file_create(&d->session, d->user, *ret, true, &file, e) < 0)
        return envd_write_failed(e);
    rc = write_parts(d, paths, count, &file, e);
    core_file_done(&file);
    if (rc == 0)
        remove_sources(d, paths, count, *ret);
    return rc;
}

int envd_compose(struct request *req, struct reply *rep, struct cove_err *e)
{
    static const struct envd_metadata none;
    struct compose_args args = { 0 };
    const char *path;
    struct json_writer w;
    struct envd d;
    int rc;

    req->note.operation = "compose_file";
    if (envd_open(req, rep, ENVD_TOKEN, &d, e) < 0)
        return -1;
    rc = request_json(req, compose_fields, &args, e) < 0 ? -1 : compose(&d, &args, &path, e);
    envd_close(&d);
    if (rc < 0)
        return -1;
    json_writer_init(&w, &rep->body);
    envd_put_file(&w, path, &none);
    return 0;
}
