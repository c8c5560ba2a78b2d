/* cove store ls|show|verify|restore|export|rm|gc: sandboxes that were paused to storage. */
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/store.h"
#include "cove/client.h"
#include "cove/mem.h"
#include "cove/saved.h"
#include "cove/text.h"
#include "sandbox/box/sweep.h"

enum { READ_BYTES = 256 * 1024 };

/* ------------------------------------------------------------------ ls, show */

static bool starts(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static const char *state_of(const struct store_entry *entry)
{
    if (starts(entry->name, SAVED_NEW))
        return "saving";
    if (starts(entry->name, SAVED_OLD))
        return "removing";
    return entry->whole ? "saved" : "damaged";
}

static const char *where_is(const struct store_entry *entry)
{
    static const char *const words[] = { "here", "leaving", "bucket", "bucket" };

    return words[entry->place];
}

/* The size of the archive; while it is being written, the bytes that are there by now. */
static uint64_t bytes_of(const struct store_place *p, const struct store_entry *entry)
{
    static const char *const names[] = { SAVED_ARCHIVE, SAVED_AGE };
    char path[320];
    struct stat st;

    if (entry->whole)
        return entry->info.stored_bytes;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        snprintf(path, sizeof(path), "%s/%s", entry->name, names[i]);
        if (fstatat(p->dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0)
            return (uint64_t)st.st_size;
    }
    return 0;
}

static const struct json_field news_fields[] = {
    JSON_STR(struct store_news, id, "id", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct store_news, state, "state", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct store_news, file, "file", JSON_OPTIONAL, JSON_ANY),
    JSON_STR(struct store_news, why, "why", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

void store_tell(const struct store_place *p, const struct store_news *news)
{
    if (p->json)
        json_put_object(p->json, NULL, news_fields, news);
    else
        printf("%s: %s\n", news->id,
               news->state  ? news->state
               : news->file ? news->file
                            : news->why);
}

struct entry_json {
    const char *id, *state, *where, *tenant, *project, *template;
    int64_t saved_unix_ms, bytes;
};

static const struct json_field entry_fields[] = {
    JSON_STR(struct entry_json, id, "id", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct entry_json, state, "state", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct entry_json, where, "where", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct entry_json, tenant, "tenant", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct entry_json, project, "project", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct entry_json, template, "template", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct entry_json, saved_unix_ms, "saved_unix_ms", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct entry_json, bytes, "bytes", JSON_ALWAYS, 0, INT64_MAX),
    JSON_END,
};

static void put_entry(struct json_writer *w, const struct store_entry *entry, uint64_t bytes)
{
    const struct box_info *b = &entry->info.box;
    struct entry_json out = {
        .id = entry->whole ? b->id : entry->name,
        .state = state_of(entry),
        .where = where_is(entry),
        .tenant = b->tenant,
        .project = b->project,
        .template = b->template,
        .saved_unix_ms = (int64_t)entry->info.saved_unix_ms,
        .bytes = (int64_t)bytes,
    };

    json_put_object(w, NULL, entry_fields, &out);
}

static int list_one(struct store_place *p, const struct store_entry *entry, void *arg,
                    struct cove_err *e)
{
    const struct box_info *b = &entry->info.box;
    uint64_t bytes = bytes_of(p, entry);
    char amount[32], when[32] = "-";

    (void)arg;
    (void)e;
    if (p->json) {
        put_entry(p->json, entry, bytes);
        return 0;
    }
    text_format_bytes(bytes, amount);
    if (entry->whole)
        text_format_time(entry->info.saved_unix_ms, when);
    printf("%-25s  %-8s  %-7s  %-12s  %-20s  %10s  %.19s\n", entry->name, state_of(entry),
           where_is(entry), b->tenant[0] ? b->tenant : "-", b->project[0] ? b->project : "-",
           amount, when);
    return 0;
}

static int run_ls(struct store_place *p, char **argv, struct cove_err *e)
{
    if (argv[1] && strcmp(argv[1], "--bucket") == 0)
        return store_bucket_ls(p, e);
    if (argv[1])
        return cove_fail(e, COVE_INVALID, "ls takes --json and --bucket and nothing else");
    if (!p->json)
        printf("%-25s  %-8s  %-7s  %-12s  %-20s  %10s  %s\n", "SANDBOX", "STATE", "WHERE", "TENANT",
               "PROJECT", "BYTES", "SAVED");
    return store_entries_each(p, list_one, NULL, e);
}

static int copy_out(int fd, int to, struct cove_err *e)
{
    AUTO_FREE char *buf = malloc(READ_BYTES);
    ssize_t n = -1;

    while (buf && (n = read(fd, buf, READ_BYTES)) > 0)
        for (ssize_t done = 0, wrote; done < n; done += wrote)
            if ((wrote = write(to, buf + done, (size_t)(n - done))) < 0)
                return cove_fail_errno(e, COVE_INTERNAL, "writing");
    return n < 0 ? cove_fail_errno(e, COVE_INTERNAL, "reading") : 0;
}

static int open_file(const struct store_place *p, const char *id, const char *name, int *ret,
                     struct cove_err *e)
{
    char path[320];

    snprintf(path, sizeof(path), "%s/%s", id, name);
    *ret = openat(p->dir, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? cove_fail_errno(e, COVE_NOT_FOUND, "%s of '%s'", name, id) : 0;
}

static int run_show(struct store_place *p, char **argv, struct cove_err *e)
{
    struct saved_info info;
    AUTO_CLOSE int fd = -1;

    if (store_is_elsewhere(p, argv[1]))
        return store_bucket_show(p, argv[1], e);
    if (store_entry_find(p, argv[1], &info, e) < 0 ||
        open_file(p, argv[1], SAVED_MANIFEST, &fd, e) < 0)
        return -1;
    return copy_out(fd, 1, e);
}

/* ------------------------------------------------------------------ verify, export */

static int digest(int fd, char ret[SAVED_DIGEST_TEXT], struct cove_err *e)
{
    AUTO_FREE char *buf = malloc(READ_BYTES);
    EVP_MD_CTX *sha = EVP_MD_CTX_new();
    unsigned char sum[EVP_MAX_MD_SIZE];
    ssize_t n = -1;

    if (buf && sha && EVP_DigestInit_ex(sha, EVP_sha256(), NULL) == 1)
        while ((n = read(fd, buf, READ_BYTES)) > 0)
            EVP_DigestUpdate(sha, buf, (size_t)n);
    if (n == 0)
        EVP_DigestFinal_ex(sha, sum, NULL);
    EVP_MD_CTX_free(sha);
    if (n < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "reading the archive");
    text_hex(sum, 32, ret);
    return 0;
}

static int verify_archive(struct store_place *p, const struct saved_info *info, struct cove_err *e)
{
    char found[SAVED_DIGEST_TEXT];
    AUTO_CLOSE int fd = -1;

    if (store_is_in_bucket(p, info->box.id))
        return store_bucket_get(p, info, -1, e);
    if (open_file(p, info->box.id, saved_archive_name(info), &fd, e) < 0 ||
        digest(fd, found, e) < 0)
        return -1;
    if (strcmp(found, info->stored_digest) != 0)
        return cove_fail(e, COVE_INVALID, "its archive is not the one that was saved");
    return 0;
}

static int verify_one(struct store_place *p, const struct store_entry *entry, void *arg,
                      struct cove_err *e)
{
    struct cove_err why = entry->why;
    unsigned *bad = arg;

    (void)e;
    if (entry->name[0] == '.')
        return 0;
    if (entry->whole && verify_archive(p, &entry->info, &why) == 0) {
        store_tell(p, &(struct store_news){ entry->name, .state = "whole" });
        return 0;
    }
    store_tell(p, &(struct store_news){ entry->name, .why = why.msg });
    ++*bad;
    return 0;
}

static int run_verify(struct store_place *p, char **argv, struct cove_err *e)
{
    unsigned bad = 0;
    struct store_entry one;

    if (argv[1]) {
        store_entry_read(p, argv[1], &one);
        verify_one(p, &one, &bad, e);
    } else if (store_entries_each(p, verify_one, &bad, e) < 0) {
        return -1;
    }
    return bad ? cove_fail(e, COVE_INVALID, "%u of the saved sandboxes cannot be woken", bad) : 0;
}

static int run_export(struct store_place *p, char **argv, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;
    bool to_stdout = strcmp(argv[2], "-") == 0, there = store_is_in_bucket(p, argv[1]);
    AUTO_CLOSE int out = -1;
    struct saved_info info;

    if (store_entry_find(p, argv[1], &info, e) < 0 || (!there && verify_archive(p, &info, e) < 0) ||
        (!there && open_file(p, argv[1], saved_archive_name(&info), &fd, e) < 0))
        return -1;
    out = to_stdout ? fcntl(1, F_DUPFD_CLOEXEC, 3)
                    : open(argv[2], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0)
        return cove_fail_errno(e, COVE_CONFLICT, "%s", argv[2]);
    if ((there ? store_bucket_get(p, &info, out, e) : copy_out(fd, out, e)) < 0)
        return -1;
    if (p->json)
        store_tell(p, &(struct store_news){ argv[1], .file = argv[2] });
    return 0;
}

/* ------------------------------------------------------------------ restore, rm, gc */

static int run_restore(struct store_place *p, char **argv, struct cove_err *e)
{
    struct keeper_link keeper = KEEPER_LINK(p->config.run_dir);
    struct keeper_extend args = { 0 };
    struct saved_info info;
    struct keeper_box box;
    int rc;

    if (store_is_elsewhere(p, argv[1]) && store_bucket_adopt(p, argv[1], argv[2] != NULL, e) < 0)
        return -1;
    if (store_entry_find(p, argv[1], &info, e) < 0)
        return -1;
    text_copy(args.tenant, sizeof(args.tenant), info.box.tenant);
    text_copy(args.id, sizeof(args.id), info.box.id);
    rc = keeper_wake(&keeper, &args, &box, e);
    keeper_link_done(&keeper);
    if (rc == 0 && p->json)
        store_tell(p, &(struct store_news){ box.id, .state = "running" });
    else if (rc == 0)
        printf("%s runs again\n", box.id);
    return rc;
}

/* Removes a saved sandbox. The keeper does it, because it knows whether the sandbox is being woken; without a keeper
 * it is done here. */
static int remove_saved(struct store_place *p, char **argv, struct cove_err *e)
{
    struct keeper_link keeper = KEEPER_LINK(p->config.run_dir);
    struct keeper_retire args = { 0 };
    struct saved_info info;
    int rc;

    if (store_is_elsewhere(p, argv[1]))
        return store_bucket_rm(p, argv[1], e);
    if (!cli_keeper_runs(&p->config) && text_is_id(argv[1])) {
        if (store_is_in_bucket(p, argv[1]) && store_bucket_rm(p, argv[1], e) < 0)
            return -1;
        return sweep_tree(p->dir, argv[1], e);
    }
    if (store_entry_find(p, argv[1], &info, e) < 0)
        return -1;
    text_copy(args.tenant, sizeof(args.tenant), info.box.tenant);
    text_copy(args.id, sizeof(args.id), info.box.id);
    rc = keeper_retire(&keeper, &args, e);
    keeper_link_done(&keeper);
    return rc;
}

static int run_rm(struct store_place *p, char **argv, struct cove_err *e)
{
    if (remove_saved(p, argv, e) < 0)
        return -1;
    if (p->json)
        store_tell(p, &(struct store_news){ argv[1], .state = "removed" });
    return 0;
}

/* Removes what nobody can wake: directories that were left half-written or half-removed (unless a keeper runs, which
 * may be working on them), and directories without a record. */
static int collect(struct store_place *p, const struct store_entry *entry, void *arg,
                   struct cove_err *e)
{
    bool half = starts(entry->name, SAVED_NEW) || starts(entry->name, SAVED_OLD);
    bool orphan = !half && (!entry->whole || strcmp(entry->info.box.id, entry->name) != 0);
    unsigned *removed = arg;

    if ((!half && !orphan) || (half && cli_keeper_runs(&p->config)))
        return 0;
    store_tell(p, &(struct store_news){ entry->name, .why = half ? "not whole" : entry->why.msg });
    ++*removed;
    return sweep_tree(p->dir, entry->name, e);
}

static int run_gc(struct store_place *p, char **argv, struct cove_err *e)
{
    unsigned removed = 0;
    int rc = store_entries_each(p, collect, &removed, e);

    (void)argv;
    if (!p->json)
        printf("%u removed that nobody could wake\n", removed);
    return rc < 0 || !p->config.store_bucket[0] ? rc : store_bucket_gc(p, e);
}

/* ------------------------------------------------------------------ the words */

typedef int (*verb_fn)(struct store_place *p, char **argv, struct cove_err *e);

static int in_store(verb_fn run, char **argv, bool json, struct cove_err *e)
{
    struct store_place place = { 0 };
    struct cli_json out;
    int rc = store_place_open(&place, e);

    json = json && run != run_show; /* run_show prints a manifest, which is JSON anyway */
    if (json)
        place.json = cli_json_begin(&out, '[');
    if (rc == 0)
        rc = run(&place, argv, e);
    if (json)
        cli_json_end(&out, ']');
    cove_close(place.dir);
    cove_close(place.state_dir);
    return rc;
}

static int with_store(verb_fn run, char **argv, bool json)
{
    struct cove_err e = { 0 };

    return in_store(run, argv, json, &e) < 0 ? cli_fail(&e) : CLI_OK;
}

static int ls(int argc, char **argv)
{
    bool json = cli_take_json(&argc, argv);

    return argc > 2 ? cli_usage("cove store ls [--bucket] [--json]")
                    : with_store(run_ls, argv, json);
}

static int show(int argc, char **argv)
{
    bool json = cli_take_json(&argc, argv);

    return argc != 2 ? cli_usage("cove store show SANDBOX [--json]")
                     : with_store(run_show, argv, json);
}

/* A damaged archive is an answer, not a failure of the command. */
static int verify(int argc, char **argv)
{
    bool json = cli_take_json(&argc, argv);
    struct cove_err e = { 0 };

    if (argc > 2)
        return cli_usage("cove store verify [SANDBOX] [--json]");
    if (in_store(run_verify, argv, json, &e) == 0)
        return CLI_OK;
    if (e.code != COVE_INVALID)
        return cli_fail(&e);
    fprintf(stderr, "cove: %s\n", e.msg);
    return CLI_NO;
}

static int restore(int argc, char **argv)
{
    bool json = cli_take_json(&argc, argv);

    return argc < 2 || argc > 3 || (argc == 3 && strcmp(argv[2], "--force") != 0)
               ? cli_usage("cove store restore SANDBOX [--force] [--json]")
               : with_store(run_restore, argv, json);
}

static int export(int argc, char **argv)
{
    bool json = cli_take_json(&argc, argv);

    return argc != 3 || (json && strcmp(argv[2], "-") == 0)
               ? cli_usage("cove store export SANDBOX FILE|- [--json, with a FILE]")
               : with_store(run_export, argv, json);
}

static int rm(int argc, char **argv)
{
    bool json = cli_take_json(&argc, argv);

    return argc != 2 ? cli_usage("cove store rm SANDBOX [--json]") : with_store(run_rm, argv, json);
}

static int gc(int argc, char **argv)
{
    bool json = cli_take_json(&argc, argv);

    return argc != 1 ? cli_usage("cove store gc [--json]") : with_store(run_gc, argv, json);
}

static const struct cli_command commands[] = {
    { "ls", ls, "[--bucket] [--json]" },
    { "show", show, "SANDBOX [--json]" },
    { "verify", verify, "[SANDBOX] [--json]" },
    { "restore", restore, "SANDBOX [--force] [--json]" },
    { "export", export, "SANDBOX FILE|- [--json]" },
    { "rm", rm, "SANDBOX [--json]" },
    { "gc", gc, "[--json]" },
    { NULL },
};

int cli_store(int argc, char **argv)
{
    return cli_dispatch("cove store", commands, argc, argv);
}
