/* The record of a saved sandbox: one table reads and writes it. See cove/saved.h. */
#include "cove/saved.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/bucket.h"
#include "cove/buf.h"
#include "cove/file.h"
#include "cove/json.h"
#include "cove/mem.h"
#include "cove/record.h"

const char *const bucket_notes[BUCKET_NOTES] = {
    SAVED_RECORD, SAVED_ATTRIBUTES, SAVED_NETWORK, SAVED_LAYERS, SAVED_SEAL, SAVED_MANIFEST,
};

const char *const saved_marks[] = {
    [SAVED_IS_LEAVING] = SAVED_UPLOADING,
    [SAVED_IS_OURS] = SAVED_UPLOADED,
    [SAVED_IS_THERE] = SAVED_BUCKET,
};

#define RECORD_HEAD "cove-saved 1"

static const struct record_field fields[] = {
    RECORD(struct saved_info, box.id, RECORD_TEXT, "id"),
    RECORD(struct saved_info, box.tenant, RECORD_TEXT, "tenant"),
    RECORD(struct saved_info, box.project, RECORD_TEXT, "project"),
    RECORD(struct saved_info, box.template, RECORD_TEXT, "template"),
    RECORD(struct saved_info, box.snapshot, RECORD_TEXT, "snapshot"),
    RECORD(struct saved_info, template_digest, RECORD_TEXT, "templateDigest"),
    RECORD(struct saved_info, box.key, RECORD_TEXT, "key"),
    RECORD(struct saved_info, box.dialect, RECORD_U32, "dialect"),
    RECORD(struct saved_info, box.flags, RECORD_U32, "flags"),
    RECORD(struct saved_info, box.lifetime_ms, RECORD_U64, "lifetimeMs"),
    RECORD(struct saved_info, box.keep_ended_s, RECORD_U32, "keepEndedS"),
    RECORD(struct saved_info, box.created_unix_ms, RECORD_U64, "createdUnixMs"),
    RECORD(struct saved_info, saved_unix_ms, RECORD_U64, "savedUnixMs"),
    RECORD(struct saved_info, report.entries, RECORD_U64, "entries"),
    RECORD(struct saved_info, report.files, RECORD_U64, "files"),
    RECORD(struct saved_info, report.directories, RECORD_U64, "directories"),
    RECORD(struct saved_info, report.links, RECORD_U64, "links"),
    RECORD(struct saved_info, report.whiteouts, RECORD_U64, "whiteouts"),
    RECORD(struct saved_info, report.sockets_left_out, RECORD_U64, "socketsLeftOut"),
    RECORD(struct saved_info, report.content_bytes, RECORD_U64, "contentBytes"),
    RECORD(struct saved_info, report.archive_bytes, RECORD_U64, "archiveBytes"),
    RECORD(struct saved_info, report.digest, RECORD_TEXT, "archiveSha256"),
    RECORD(struct saved_info, stored_bytes, RECORD_U64, "storedBytes"),
    RECORD(struct saved_info, stored_digest, RECORD_TEXT, "storedSha256"),
    RECORD(struct saved_info, encrypted, RECORD_BOOL, "encrypted"),
    { 0 },
};

const char *saved_archive_name(const struct saved_info *s)
{
    return s->encrypted ? SAVED_AGE : SAVED_ARCHIVE;
}

void saved_format(const struct saved_info *s, struct buf *out)
{
    buf_add_str(out, RECORD_HEAD "\n");
    record_write(fields, s, out);
}

struct manifest_head {
    const char *format;
    int64_t format_version;
    const char *cove_version, *archive;
};

static const struct json_field manifest_fields[] = {
    JSON_STR(struct manifest_head, format, "format", JSON_ALWAYS, JSON_ANY),
    JSON_INT(struct manifest_head, format_version, "formatVersion", JSON_ALWAYS, 1, 1),
    JSON_STR(struct manifest_head, cove_version, "coveVersion", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct manifest_head, archive, "archive", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

void saved_format_manifest(const struct saved_info *s, struct buf *out)
{
    struct json_writer w;

    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_put_members(
        &w, manifest_fields,
        &(struct manifest_head){ "cove saved sandbox", 1, COVE_VERSION, saved_archive_name(s) });
    for (const struct record_field *f = fields; f->word; f++)
        if (f->kind == RECORD_TEXT)
            json_put_str(&w, f->word, (const char *)s + f->offset);
        else if (f->kind == RECORD_BOOL)
            json_put_bool(&w, f->word, record_number(f, s) != 0);
        else
            json_put_int(&w, f->word, (int64_t)record_number(f, s));
    json_close(&w, '}');
    buf_add_char(out, '\n');
}

static bool is_digest(const char *s)
{
    return strlen(s) == SAVED_DIGEST_TEXT - 1 &&
           strspn(s, "0123456789abcdef") == SAVED_DIGEST_TEXT - 1;
}

int saved_parse(char *text, struct saved_info *ret, struct cove_err *e)
{
    struct saved_info s = { .box.state = BOX_SAVED };
    char *rest = text, *line = strsep(&rest, "\n");

    if (!line || strcmp(line, RECORD_HEAD) != 0)
        return cove_fail(e, COVE_INVALID, "not a record of a saved sandbox");
    while ((line = strsep(&rest, "\n")) && *line)
        if (record_read_line(fields, line, &s, e) < 0)
            return -1;
    if (!text_is_id(s.box.id) || !s.box.tenant[0] || !s.box.project[0] || !s.box.template[0] ||
        !is_digest(s.report.digest) || !is_digest(s.stored_digest))
        return cove_fail(e, COVE_INVALID, "the record is not whole");
    *ret = s;
    return 0;
}

enum saved_place saved_place_of(int dir)
{
    for (enum saved_place p = SAVED_IS_THERE; p > SAVED_IS_HERE; p--)
        if (faccessat(dir, saved_marks[p], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            return p;
    return SAVED_IS_HERE;
}

/* A missing file counts as an empty one. The length of each file goes into the seal as well, so that bytes
 * cannot be moved from one file to the next. */
int saved_seal(int dir, const void *secret, size_t secret_len, char ret[SAVED_DIGEST_TEXT],
               struct cove_err *e)
{
    AUTO_FREE char *bytes = malloc(BUCKET_NOTE_MAX);
    AUTO_BUF struct buf all = BUF((size_t)BUCKET_NOTE_MAX * BUCKET_NOTES);
    unsigned char sum[EVP_MAX_MD_SIZE];

    for (unsigned i = 0; bytes && strcmp(bucket_notes[i], SAVED_SEAL) != 0; i++) {
        ssize_t len = read_file_at(dir, bucket_notes[i], bytes, BUCKET_NOTE_MAX);

        buf_addf(&all, "%s %zd\n", bucket_notes[i], len < 0 ? 0 : len);
        buf_add(&all, bytes, len < 0 ? 0 : (size_t)len);
    }
    if (!bytes || all.overflow ||
        !HMAC(EVP_sha256(), secret, (int)secret_len, (const unsigned char *)all.data, all.len, sum,
              NULL))
        return cove_fail(e, COVE_INTERNAL, "the seal of the saved sandbox could not be made");
    text_hex(sum, 32, ret);
    return 0;
}

int saved_read(int dir, struct saved_info *ret, struct cove_err *e)
{
    char text[4096];

    if (read_file_at(dir, SAVED_RECORD, text, sizeof(text)) < 0)
        return cove_fail_errno(e, COVE_NOT_FOUND, "record of a saved sandbox");
    return saved_parse(text, ret, e);
}
