/* Files of a sandbox: folders listed, files read and written, a folder as an archive. Paths are resolved by
 * the sandbox's init; what a file holds is sent as an attachment, never as a page of this host. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/check.h"
#include "fcgi/dialects/console.h"
#include "fcgi/transfer.h"

enum { ENTRIES_MAX = 20000 };

/* ------------------------------------------------------------------ a folder */

struct entry {
    const char *name, *encoded, *kind, *target, *mode, *version;
    int64_t bytes, uid;
    uint64_t modified_unix_ms;
};

static const struct json_field entry_fields[] = {
    JSON_STR(struct entry, name, "name", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct entry, encoded, "encoded", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct entry, kind, "kind", JSON_REQUIRED, JSON_ANY),
    JSON_STR(struct entry, target, "target", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct entry, mode, "mode", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct entry, bytes, "bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_INT(struct entry, uid, "uid", JSON_REQUIRED, 0, INT64_MAX),
    JSON_TIME(struct entry, modified_unix_ms, "modified", JSON_REQUIRED),
    JSON_END,
};

static const char *kind_of(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "link";
    default:
        return "other";
    }
}

struct listing {
    struct request *req;
    struct reply *rep;
    size_t count;
};

/* A name that is not UTF-8 is readable in JSON but lost its bytes there: this is how it is written in a query. NULL: the
 * name is UTF-8. */
static const char *encoded_name(struct request *req, const char *name)
{
    char *out, *at;

    if (text_is_utf8(name, strlen(name)))
        return NULL;
    at = out = arena_alloc(&req->arena, 3 * strlen(name) + 1);
    for (; *name; name++)
        at += sprintf(at, "%%%02x", (unsigned char)*name);
    return out;
}

static int put_entry(void *arg, const char *name, const struct box_stat *st, const char *target)
{
    struct listing *l = arg;
    struct entry shown = {
        .name = name,
        .encoded = encoded_name(l->req, name),
        .kind = kind_of(st->mode),
        .target = *target ? target : NULL,
        .mode = arena_printf(&l->req->arena, "%04o", st->mode & 07777),
        .bytes = (int64_t)st->bytes,
        .uid = st->uid,
        .modified_unix_ms = st->mtime_ns > 0 ? (uint64_t)st->mtime_ns / 1000000 : 0,
    };

    if (l->count == ENTRIES_MAX)
        return 1;
    l->count++;
    json_put_object(&l->rep->json, NULL, entry_fields, &shown);
    return 0;
}

struct listed_directory { /* beside "entries" */
    const char *path;
    bool truncated;
};

static const struct json_field listing_fields[] = {
    JSON_STR(struct listed_directory, path, "path", JSON_REQUIRED, JSON_ANY),
    JSON_BOOL(struct listed_directory, truncated, "truncated", JSON_OPTIONAL),
    JSON_END,
};

int console_files(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct listing l = { .req = req, .rep = rep };
    int (*drain)(void *arg) = rep->json.drain;
    struct core_session session;
    const char *path;
    int rc;

    req->note.operation = "list-files";
    if (console_path(req, &path, e) < 0 || console_open(req, &session, e) < 0)
        return -1;
    rep->json.drain = NULL; /* init has a deadline, which a slow client must not use up */
    json_open(&rep->json, NULL, '{');
    json_open(&rep->json, "entries", '[');
    rc = box_list(&session.conn, core_default_user(&session), path, put_entry, &l, e);
    core_session_close(&session);
    rep->json.drain = drain;
    json_close(&rep->json, ']');
    json_put_members(&rep->json, listing_fields,
                     &(struct listed_directory){ path, l.count == ENTRIES_MAX });
    json_close(&rep->json, '}');
    return rc;
}

/* ------------------------------------------------------------------ one file */

/* Two versions of a file differ in this, so that a page can tell whether somebody else has written it
 * since it was read. */
static const char *version_of(struct request *req, const struct box_stat *st)
{
    return arena_printf(&req->arena, "\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\"", st->inode,
                        (uint64_t)st->mtime_ns, st->bytes);
}

int console_get_file(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    AUTO_CLOSE int fd = -1;
    struct box_stat st;
    const char *path;
    int rc;

    req->note.operation = "read-file";
    if (console_path(req, &path, e) < 0 || console_open(req, &session, e) < 0)
        return -1;
    rc = core_file_open(&session, core_default_user(&session), path, &fd, &st, e);
    core_session_close(&session);
    if (rc < 0)
        return -1;
    reply_header(rep, "Content-Type", "application/octet-stream");
    reply_header(rep, "Content-Disposition", "attachment");
    reply_header(rep, "X-Content-Type-Options", "nosniff");
    reply_header(rep, "Cache-Control", "no-store");
    reply_header(rep, "ETag", version_of(req, &st));
    transfer_send(req, rep, fd, st.bytes);
    return 0;
}

/* If-Match: the version that the writer has read. If-None-Match: *: there must be no such file. */
static int check_version(struct core_session *s, struct request *req, const char *path,
                         struct cove_err *e)
{
    const char *match = request_param(req, "HTTP_IF_MATCH");
    const char *none = request_param(req, "HTTP_IF_NONE_MATCH");
    const char *user = core_default_user(s);
    struct box_stat st;
    bool there;

    if (!*match && !*none)
        return 0;
    there = box_file_stat(&s->conn, user, path, 0, &st, e) == 0;
    if (!there && e->code != COVE_NOT_FOUND)
        return -1;
    if (*none)
        return there ? cove_fail(e, COVE_CONFLICT, "'%.160s' exists already", path) : 0;
    if (!there)
        return cove_fail(e, COVE_CONFLICT, "'%.160s' was removed since it was read", path);
    if (strcmp(match, version_of(req, &st)) == 0)
        return 0;
    return cove_fail(e, COVE_CONFLICT, "'%.160s' was changed by somebody else since it was read",
                     path);
}

struct written {
    int64_t bytes;
    const char *version;
};

static const struct json_field written_fields[] = {
    JSON_INT(struct written, bytes, "bytes", JSON_REQUIRED, 0, INT64_MAX),
    JSON_STR(struct written, version, "version", JSON_REQUIRED, JSON_ANY),
    JSON_END,
};

static int write_file(struct core_session *s, struct request *req, const char *path,
                      struct box_stat *ret, struct cove_err *e)
{
    const char *user = core_default_user(s);
    struct core_file file;
    int rc;

    if (check_version(s, req, path, e) < 0 || core_file_create(s, user, path, true, &file, e) < 0)
        return -1;
    rc = transfer_receive(req, &file, e) < 0 || core_file_commit(&file, e) < 0 ||
                 box_file_stat(&s->conn, user, path, 0, ret, e) < 0
             ? -1
             : 0;
    core_file_done(&file);
    return rc;
}

int console_put_file(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    struct box_stat st = { 0 };
    const char *path;
    int rc;

    req->note.operation = "write-file";
    if (console_path(req, &path, e) < 0 || console_open(req, &session, e) < 0)
        return -1;
    rc = write_file(&session, req, path, &st, e);
    core_session_close(&session);
    if (rc < 0)
        return -1;
    reply_json(rep, written_fields, &(struct written){ (int64_t)st.bytes, version_of(req, &st) });
    return 0;
}

/* ------------------------------------------------------------------ changes */

int console_remove_file(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *user, *path;
    struct core_session session;
    struct box_stat st;
    int rc;

    req->note.operation = "remove-file";
    if (console_path(req, &path, e) < 0 || console_open(req, &session, e) < 0)
        return -1;
    user = core_default_user(&session);
    rc = box_file_stat(&session.conn, user, path, FILE_NOFOLLOW, &st, e);
    if (rc == 0)
        rc = core_remove(&session, user, path, S_ISDIR(st.mode) ? FILE_DIR | FILE_RECURSIVE : 0, e);
    core_session_close(&session);
    return rc < 0 ? -1 : console_reply_ok(rep);
}

struct path_args {
    const char *path, *to;
};

/* A path in the query, where any bytes can stand, comes before the one in the body. */
static int choose_path(const struct request *req, const char *in_query, const char *field,
                       const char **path, struct cove_err *e)
{
    const char *given = request_query(req, in_query);

    if (given)
        *path = given;
    return check_query_path(field, *path, e);
}

static const struct json_field directory_fields[] = {
    JSON_STR(struct path_args, path, "path", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_END,
};

static const struct json_field rename_fields[] = {
    JSON_STR(struct path_args, path, "from", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_STR(struct path_args, to, "to", JSON_OPTIONAL, MSG_PATH_MAX - 1),
    JSON_END,
};

int console_make_dir(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    struct path_args args = { 0 };
    int rc;

    req->note.operation = "make-directory";
    if (request_json(req, directory_fields, &args, e) < 0 ||
        choose_path(req, "path", "path", &args.path, e) < 0 || console_open(req, &session, e) < 0)
        return -1;
    rc = core_make_dir(&session, core_default_user(&session), args.path, e);
    core_session_close(&session);
    return rc < 0 ? -1 : console_reply_ok(rep);
}

int console_rename(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct box_file flags = { .flags = FILE_NOREPLACE };
    struct core_session session;
    struct path_args args = { 0 };
    int rc;

    req->note.operation = "rename";
    if (request_json(req, rename_fields, &args, e) < 0 ||
        choose_path(req, "path", "from", &args.path, e) < 0 ||
        choose_path(req, "to", "to", &args.to, e) < 0 || console_open(req, &session, e) < 0)
        return -1;
    rc = box_file_change(&session.conn, BOX_RENAME, core_default_user(&session), args.path, args.to,
                         &flags, e);
    core_session_close(&session);
    return rc < 0 ? -1 : console_reply_ok(rep);
}

/* ------------------------------------------------------------------ a folder as an archive */

/* tar runs in the sandbox, like any command there. */
static int send_archive(struct request *req, struct reply *rep, const char *command,
                        const struct policy_filter *filter, struct cove_err *e)
{
    const char *const argv[] = {
        "tar", "--create", "--gzip", "--directory", request_query(req, "path"), ".", NULL
    };
    struct core_session session;
    int rc;

    (void)command;
    if (console_open(req, &session, e) < 0)
        return -1;
    reply_header(rep, "Content-Type", "application/gzip");
    reply_header(rep, "Content-Disposition", "attachment"); /* the page names it */
    rc = transfer_output(req, rep, &session, argv, filter, e);
    core_session_close(&session);
    return rc;
}

int console_archive(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct box_info box;
    const char *path;

    req->note.operation = "archive";
    return console_path(req, &path, e) < 0 || console_find(req, &box, e) < 0
               ? -1
               : console_with_permit(req, rep, "tar --create --gzip", send_archive, e);
}
