/* The operator's files that come with an order: the credentials for the bucket, and the CA certificates. */
#include <string.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/bucket/bucket_private.h"

enum { CREDENTIALS_MAX = 16 * 1024, CA_MAX = 1 << 20, READ_BYTES = 64 * 1024 };

static int parse(struct s3 *s, char *text, struct cove_err *e)
{
    const struct {
        const char *name;
        char *at;
        size_t size;
    } fields[] = {
        { "aws_access_key_id", s->key_id, sizeof(s->key_id) },
        { "aws_secret_access_key", s->secret, sizeof(s->secret) },
        { "aws_session_token", s->token, sizeof(s->token) },
    };
    char *rest = text, *line;

    while ((line = strsep(&rest, "\n"))) {
        char *value = strchr(line, '=');

        if (line[0] == '#' || !value)
            continue;
        *value++ = '\0';
        text_trim(line);
        value = text_trim(value);
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
            if (strcmp(line, fields[i].name) == 0 &&
                !text_copy(fields[i].at, fields[i].size, value))
                return cove_fail(e, COVE_INVALID, "store_credentials: %s is too long", line);
    }
    if (!s->key_id[0] || !s->secret[0])
        return cove_fail(
            e, COVE_INVALID,
            "store_credentials: aws_access_key_id or aws_secret_access_key is missing");
    return 0;
}

int credentials_read(struct s3 *s, int file, struct cove_err *e)
{
    char text[CREDENTIALS_MAX + 1];
    ssize_t n = pread(file, text, CREDENTIALS_MAX, 0);
    int rc;

    if (n < 0)
        return cove_fail_errno(e, COVE_INVALID, "store_credentials");
    text[n] = '\0';
    rc = parse(s, text, e);
    explicit_bzero(text, sizeof(text));
    return rc;
}

int credentials_read_ca(struct s3 *s, int file, struct cove_err *e)
{
    char bytes[READ_BYTES];
    ssize_t n;

    s->ca = BUF(CA_MAX);
    while ((n = read(file, bytes, sizeof(bytes))) > 0)
        if (buf_add(&s->ca, bytes, (size_t)n) < 0)
            return cove_fail(e, COVE_INVALID, "store_ca is larger than %u bytes", CA_MAX);
    if (n < 0 || !s->ca.len)
        return cove_fail_errno(e, COVE_INVALID, "store_ca");
    return 0;
}
