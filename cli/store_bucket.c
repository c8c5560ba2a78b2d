/* The part of `cove store` that concerns a bucket. cove-bucket talks to the bucket; its output is read here. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/json.h"
#include "cli/store.h"
#include "cove/file.h"
#include "cove/keys.h"
#include "cove/mem.h"
#include "sandbox/box/bucket_start.h"
#include "sandbox/box/sweep.h"
#include "sandbox/box/tools.h"

/* ------------------------------------------------------------------ one order */

static int open_exe(const struct store_place *p, struct bucket_args *args, struct cove_err *e)
{
    char path[640];

    snprintf(path, sizeof(path), "%s/cove-bucket", p->config.libexec_dir);
    args->exe = open(path, O_PATH | O_CLOEXEC);
    if (args->exe < 0)
        return cove_fail_errno(e, COVE_INVALID, "%s", path);
    return resolve_user(p->config.worker_user, &args->uid, &args->gid, e);
}

static int carry_out(struct store_place *p, struct bucket_order *order, int out, struct cove_err *e)
{
    AUTO_CLOSE int credentials = -1;
    AUTO_CLOSE int ca = -1;
    struct bucket_args args = { .exe = -1, .in = -1, .out = out, .order = order };
    struct bucket_report report;
    struct boxed b;
    int rc;

    if (bucket_fill_order(&p->config, p->state_dir, order, e) < 0 ||
        bucket_open_credentials(&p->config, &credentials, e) < 0 ||
        bucket_open_ca(&p->config, &ca, e) < 0)
        return -1;
    args.credentials = credentials;
    args.ca = ca;
    rc = open_exe(p, &args, e);
    if (rc == 0)
        rc = bucket_start(&args, &b, e);
    cove_close(args.exe);
    if (rc < 0)
        return -1;
    while (waitpid(b.pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    rc = bucket_hear(b.sock, &report, e);
    close(b.sock);
    close(b.pidfd);
    return rc;
}

int store_bucket_get(struct store_place *p, const struct saved_info *s, int out, struct cove_err *e)
{
    struct bucket_order order = { .work = BUCKET_GET,
                                  .saved_unix_ms = s->saved_unix_ms,
                                  .bytes = s->stored_bytes };

    memcpy(order.digest, s->stored_digest, sizeof(order.digest));
    text_copy(order.id, sizeof(order.id), s->box.id);
    text_copy(order.name, sizeof(order.name), saved_archive_name(s));
    return carry_out(p, &order, out, e);
}

/* ------------------------------------------------------------------ what is there */

struct found {
    char id[COVE_ID_LEN + 1], state[8], owner[BUCKET_OWNER_TEXT];
    unsigned long long saved_ms, bytes, changed_ms;
};

static int list(struct store_place *p, uint32_t work, const char *id, FILE **ret,
                struct cove_err *e)
{
    struct bucket_order order = { .work = work };
    AUTO_CLOSE int fd = memfd_create("cove-list", MFD_CLOEXEC);

    text_copy(order.id, sizeof(order.id), id);
    if (fd < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "list of the bucket");
    if (carry_out(p, &order, fd, e) < 0)
        return -1;
    lseek(fd, 0, SEEK_SET);
    *ret = fdopen(take_fd(&fd), "r");
    return *ret ? 0 : cove_fail_errno(e, COVE_INTERNAL, "list of the bucket");
}

static bool next_found(FILE *f, struct found *ret)
{
    return fscanf(f, "%20s %llu %llu %llu %7s %32s", ret->id, &ret->saved_ms, &ret->bytes,
                  &ret->changed_ms, ret->state, ret->owner) == 6;
}

static const char *whose(const struct store_place *p, const struct found *f)
{
    if (strcmp(f->state, "whole") != 0)
        return "not whole";
    if (faccessat(p->dir, f->id, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return "this machine's";
    return strcmp(f->owner, "-") == 0 ? "free" : "taken";
}

struct found_json {
    const char *id, *state;
    int64_t saved_unix_ms, bytes;
};

static const struct json_field found_fields[] = {
    JSON_STR(struct found_json, id, "id", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct found_json, state, "state", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct found_json, saved_unix_ms, "saved_unix_ms", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct found_json, bytes, "bytes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_END,
};

static void put_found(struct json_writer *w, const struct store_place *p, const struct found *f)
{
    struct found_json out = {
        .id = f->id,
        .state = whose(p, f),
        .saved_unix_ms = (int64_t)f->saved_ms,
        .bytes = (int64_t)f->bytes,
    };

    json_put_object(w, NULL, found_fields, &out);
}

int store_bucket_ls(struct store_place *p, struct cove_err *e)
{
    struct found f;
    FILE *all;

    if (list(p, BUCKET_LIST, "", &all, e) < 0)
        return -1;
    if (!p->json)
        printf("%-20s  %-14s  %10s  %s\n", "SANDBOX", "STATE", "BYTES", "SAVED");
    while (next_found(all, &f)) {
        char amount[32], when[32];

        if (p->json) {
            put_found(p->json, p, &f);
            continue;
        }
        text_format_bytes(f.bytes, amount);
        text_format_time(f.saved_ms, when);
        printf("%-20s  %-14s  %10s  %.19s\n", f.id, whose(p, &f), amount, when);
    }
    fclose(all);
    return 0;
}

/* Finds a saved sandbox in the bucket by its id. If it was saved several times, the last one counts. */
static int find(struct store_place *p, const char *id, struct bucket_order *ret, struct cove_err *e)
{
    struct found f;
    FILE *all;

    *ret = (struct bucket_order){ 0 };
    if (list(p, BUCKET_LIST, id, &all, e) < 0)
        return -1;
    while (next_found(all, &f))
        if (strcmp(f.id, id) == 0 && strcmp(f.state, "whole") == 0)
            ret->saved_unix_ms = f.saved_ms;
    fclose(all);
    text_copy(ret->id, sizeof(ret->id), id);
    return ret->saved_unix_ms
               ? 0
               : cove_fail(e, COVE_NOT_FOUND,
                           "no saved sandbox '%s', neither here nor in the bucket", id);
}

static int read_object(struct store_place *p, const struct bucket_order *which, const char *name,
                       int out, struct cove_err *e)
{
    struct bucket_order order = *which;

    order.work = BUCKET_READ;
    text_copy(order.name, sizeof(order.name), name);
    return carry_out(p, &order, out, e);
}

int store_bucket_show(struct store_place *p, const char *id, struct cove_err *e)
{
    struct bucket_order order;

    if (find(p, id, &order, e) < 0)
        return -1;
    fflush(stdout);
    return read_object(p, &order, SAVED_MANIFEST, 1, e);
}

/* ------------------------------------------------------------------ from another machine */

static int fetch_notes(struct store_place *p, const struct bucket_order *which, int dir,
                       struct cove_err *e)
{
    for (unsigned i = 0; i < BUCKET_NOTES; i++) {
        AUTO_CLOSE int fd =
            openat(dir, bucket_notes[i], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        if (fd < 0)
            return cove_fail_errno(e, COVE_LIMIT, "%s", bucket_notes[i]);
        if (read_object(p, which, bucket_notes[i], fd, e) == 0)
            continue;
        if (e->code != COVE_NOT_FOUND)
            return -1;
        if (strcmp(bucket_notes[i], SAVED_MANIFEST) ==
            0) /* the manifest is written last and removed first */
            return cove_fail(e, COVE_CONFLICT,
                             "the saved sandbox was woken or removed on another machine meanwhile");
        unlinkat(
            dir, bucket_notes[i],
            /* a saved sandbox need not have all notes; the seal also covers which notes there are */
            0);
    }
    return 0;
}

/* Anybody who can write to the bucket could write a record that gives a sandbox to any tenant. The seal prevents
 * that: it can be made only with the secret. */
static int check_seal(struct store_place *p, int dir, struct cove_err *e)
{
    char secret[TOKEN_SECRET_BYTES + 1], seal[SAVED_DIGEST_TEXT], ours[SAVED_DIGEST_TEXT];
    int rc;

    if (read_file_at(p->state_dir, TOKEN_SECRET_FILE, secret, sizeof(secret)) != TOKEN_SECRET_BYTES)
        return cove_fail_errno(e, COVE_NOT_FOUND, "%s/" TOKEN_SECRET_FILE, p->config.state_dir);
    rc = saved_seal(dir, secret, TOKEN_SECRET_BYTES, ours, e);
    explicit_bzero(secret, sizeof(secret));
    if (rc < 0)
        return -1;
    if (read_file_at(dir, SAVED_SEAL, seal, sizeof(seal)) < 0 || strcmp(seal, ours) != 0)
        return cove_fail(
            e, COVE_FORBIDDEN,
            "the seal of the saved sandbox was made with another secret: copy %s/" TOKEN_SECRET_FILE
            " from the machine that saved it",
            p->config.state_dir);
    return 0;
}

static int make_ours(struct store_place *p, const struct bucket_order *which, const char *name,
                     int dir, struct cove_err *e)
{
    struct saved_info info;
    AUTO_CLOSE int mark = -1;

    if (fetch_notes(p, which, dir, e) < 0 || check_seal(p, dir, e) < 0 ||
        saved_read(dir, &info, e) < 0)
        return -1;
    if (strcmp(info.box.id, which->id) != 0 || info.saved_unix_ms != which->saved_unix_ms)
        return cove_fail(e, COVE_INVALID, "the record is of another sandbox");
    mark = openat(dir, SAVED_BUCKET, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (mark < 0 || fsync(dir) < 0 || renameat(p->dir, name, p->dir, which->id) < 0)
        return cove_fail_errno(e, COVE_LIMIT, "putting '%s' among the saved sandboxes", which->id);
    return 0;
}

int store_bucket_adopt(struct store_place *p, const char *id, bool force, struct cove_err *e)
{
    struct bucket_order which;
    AUTO_CLOSE int dir = -1;
    char name[64];
    int rc;

    if (find(p, id, &which, e) < 0)
        return -1;
    if (force) {
        struct bucket_order release = which;

        release.work = BUCKET_RELEASE;
        release.force = 1;
        if (carry_out(p, &release, -1, e) < 0)
            return -1;
    }
    snprintf(name, sizeof(name), SAVED_NEW "%s", id);
    if (mkdirat(p->dir, name, 0700) < 0 ||
        (dir = openat(p->dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return cove_fail_errno(e, COVE_CONFLICT, "%s", name);
    rc = make_ours(p, &which, name, dir, e);
    if (rc < 0)
        sweep_tree(p->dir, name, NULL);
    return rc;
}

/* ------------------------------------------------------------------ rm, gc */

int store_bucket_rm(struct store_place *p, const char *id, struct cove_err *e)
{
    struct bucket_order which;

    if (find(p, id, &which, e) < 0)
        return -1;
    which.work = BUCKET_REMOVE;
    return carry_out(p, &which, -1, e);
}

int store_bucket_gc(struct store_place *p, struct cove_err *e)
{
    unsigned removed = 0;
    struct found f;
    FILE *all;

    if (list(p, BUCKET_COLLECT, "", &all, e) < 0)
        return -1;
    for (; next_found(all, &f); removed++)
        store_tell(p, &(struct store_news){ f.id, .why = "not whole, in the bucket" });
    fclose(all);
    if (!p->json)
        printf("%u removed from the bucket that nobody could wake\n", removed);
    return 0;
}
