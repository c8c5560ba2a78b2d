/* The record of a saved sandbox: one table reads and writes it. See cove/saved.h. */
#include "cove/saved.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cove/bucket.h"
#include "cove/buf.h"
#include "cove/file.h"
#include "cove/json.h"
#include "cove/mem.h"

const char *const bucket_notes[BUCKET_NOTES] = {
    SAVED_RECORD, SAVED_ATTRIBUTES, SAVED_NETWORK, SAVED_LAYERS, SAVED_SEAL, SAVED_MANIFEST,
};

const char *const saved_marks[] = {
    [SAVED_IS_LEAVING] = SAVED_UPLOADING,
    [SAVED_IS_OURS] = SAVED_UPLOADED,
    [SAVED_IS_THERE] = SAVED_BUCKET,
};

#define RECORD_HEAD "cove-saved 1"

enum field_kind { FIELD_TEXT, FIELD_U64, FIELD_U32, FIELD_BOOL };

struct field {
    const char *name;
    enum field_kind kind;
    size_t offset, size;
};

#define AT(member) offsetof(struct saved_info, member), sizeof(((struct saved_info *)0)->member)

static const struct field fields[] = {
    { "id", FIELD_TEXT, AT(box.id) },
    { "tenant", FIELD_TEXT, AT(box.tenant) },
    { "project", FIELD_TEXT, AT(box.project) },
    { "template", FIELD_TEXT, AT(box.template) },
    { "snapshot", FIELD_TEXT, AT(box.snapshot) },
    { "templateDigest", FIELD_TEXT, AT(template_digest) },
    { "key", FIELD_TEXT, AT(box.key) },
    { "dialect", FIELD_U32, AT(box.dialect) },
    { "flags", FIELD_U32, AT(box.flags) },
    { "lifetimeMs", FIELD_U64, AT(box.lifetime_ms) },
    { "keepEndedS", FIELD_U32, AT(box.keep_ended_s) },
    { "createdUnixMs", FIELD_U64, AT(box.created_unix_ms) },
    { "savedUnixMs", FIELD_U64, AT(saved_unix_ms) },
    { "entries", FIELD_U64, AT(report.entries) },
    { "files", FIELD_U64, AT(report.files) },
    { "directories", FIELD_U64, AT(report.directories) },
    { "links", FIELD_U64, AT(report.links) },
    { "whiteouts", FIELD_U64, AT(report.whiteouts) },
    { "socketsLeftOut", FIELD_U64, AT(report.sockets_left_out) },
    { "contentBytes", FIELD_U64, AT(report.content_bytes) },
    { "archiveBytes", FIELD_U64, AT(report.archive_bytes) },
    { "archiveSha256", FIELD_TEXT, AT(report.digest) },
    { "storedBytes", FIELD_U64, AT(stored_bytes) },
    { "storedSha256", FIELD_TEXT, AT(stored_digest) },
    { "encrypted", FIELD_BOOL, AT(encrypted) },
};

const char *saved_archive_name(const struct saved_info *s)
{
    return s->encrypted ? SAVED_AGE : SAVED_ARCHIVE;
}

static uint64_t number_of(const struct saved_info *s, const struct field *f)
{
    const char *at = (const char *)s + f->offset;

    switch (f->kind) {
    case FIELD_U64:
        return *(const uint64_t *)at;
    case FIELD_U32:
        return *(const uint32_t *)at;
    default:
        return *(const bool *)at;
    }
}

void saved_format(const struct saved_info *s, struct buf *out)
{
    buf_add_str(out, RECORD_HEAD "\n");
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (fields[i].kind == FIELD_TEXT)
            buf_addf(out, "%s %s\n", fields[i].name, (const char *)s + fields[i].offset);
        else
            buf_addf(out, "%s %llu\n", fields[i].name,
                     (unsigned long long)number_of(s, &fields[i]));
}

void saved_format_manifest(const struct saved_info *s, struct buf *out)
{
    struct json_writer w;

    json_writer_init(&w, out);
    json_open(&w, NULL, '{');
    json_put_str(&w, "format", "cove saved sandbox");
    json_put_int(&w, "formatVersion", 1);
    json_put_str(&w, "coveVersion", COVE_VERSION);
    json_put_str(&w, "archive", saved_archive_name(s));
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        const struct field *f = &fields[i];

        if (f->kind == FIELD_TEXT)
            json_put_str(&w, f->name, (const char *)s + f->offset);
        else if (f->kind == FIELD_BOOL)
            json_put_bool(&w, f->name, number_of(s, f) != 0);
        else
            json_put_int(&w, f->name, (int64_t)number_of(s, f));
    }
    json_close(&w, '}');
    buf_add_char(out, '\n');
}

static const struct field *find_field(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (strcmp(fields[i].name, name) == 0)
            return &fields[i];
    return NULL;
}

static int set_field(struct saved_info *s, const struct field *f, const char *value)
{
    char *at = (char *)s + f->offset;
    uint64_t n = 0;

    if (f->kind == FIELD_TEXT)
        return text_copy(at, f->size, value) ? 0 : -1;
    if (text_parse_u64(value, &n, NULL) < 0 || (f->kind == FIELD_U32 && n > UINT32_MAX) ||
        (f->kind == FIELD_BOOL && n > 1))
        return -1;
    if (f->kind == FIELD_U64)
        *(uint64_t *)at = n;
    else if (f->kind == FIELD_U32)
        *(uint32_t *)at = (uint32_t)n;
    else
        *(bool *)at = n != 0;
    return 0;
}

static bool is_digest(const char *s)
{
    return strlen(s) == SAVED_DIGEST_TEXT - 1 &&
           strspn(s, "0123456789abcdef") == SAVED_DIGEST_TEXT - 1;
}

/* A name that this version does not know was written by a newer one: it is passed over. */
int saved_parse(char *text, struct saved_info *ret, struct cove_err *e)
{
    struct saved_info s = { .box.state = BOX_SAVED };
    char *rest = text, *line = strsep(&rest, "\n");

    if (!line || strcmp(line, RECORD_HEAD) != 0)
        return cove_fail(e, COVE_INVALID, "not a record of a saved sandbox");
    while ((line = strsep(&rest, "\n")) && *line) {
        char *value = strchr(line, ' ');
        const struct field *f;

        if (!value)
            return cove_fail(e, COVE_INVALID, "the record has a line without a value");
        *value++ = '\0';
        f = find_field(line);
        if (f && set_field(&s, f, value) < 0)
            return cove_fail(e, COVE_INVALID, "the record's %s is wrong", f->name);
    }
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

/* A file that is not there counts as an empty one. Lengths stand between them, so that bytes cannot move
 * from one to the next. */
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
        return cove_fail(e, COVE_INTERNAL, "seal of a saved sandbox");
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
