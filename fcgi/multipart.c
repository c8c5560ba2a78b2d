#include "fcgi/multipart.h"

#include <string.h>
#include <strings.h>

enum state {
    BEFORE, /* what stands before the first boundary */
    AFTER_BOUNDARY,
    HEAD,
    BODY,
    EPILOGUE,
};

/* ------------------------------------------------------------------ parameters of a header */

/*
 * The value of `name` among `; name=value; name="va\"lue"`, copied into out. False: it is not there
 * or does not fit.
 */
static bool parameter(const char *text, const char *name, char *out, size_t size)
{
    size_t len = strlen(name), n = 0;

    while ((text = strchr(text, ';'))) {
        text += 1 + strspn(text + 1, " \t");
        if (strncasecmp(text, name, len) == 0 && text[len] == '=')
            break;
        while (*text && *text != ';')
            if (*text++ == '"')
                while (*text && *text++ != '"')
                    text += *text == '\\' && text[1] ? 2 : 0;
    }
    if (!text)
        return false;
    text += len + 1;
    if (*text == '"') {
        for (text++; *text && *text != '"' && n < size - 1; text++) {
            if (*text == '\\' && (text[1] == '"' || text[1] == '\\'))
                text++;
            out[n++] = *text;
        }
        if (*text != '"')
            return false;
    } else {
        n = strcspn(text, "; \t\r\n");
        if (n >= size)
            return false;
        memcpy(out, text, n);
    }
    out[n] = '\0';
    return true;
}

int multipart_init(struct multipart *m, const char *type, struct cove_err *e)
{
    static const char wanted[] = "multipart/form-data";
    char boundary[MULTIPART_BOUNDARY_MAX + 1];

    if (strncasecmp(type, wanted, strlen(wanted)) != 0 ||
        !parameter(type, "boundary", boundary, sizeof(boundary)) || !*boundary)
        return cove_fail(e, COVE_INVALID,
                         "Content-Type: must be multipart/form-data with a boundary");
    strcpy(m->boundary, "\r\n--");
    strcat(m->boundary, boundary);
    m->boundary_len = strlen(m->boundary);
    m->state = BEFORE;
    m->parts = 0;
    buf_init(&m->held, MULTIPART_HEAD_MAX + 64 * 1024);
    return buf_add_str(&m->held, "\r\n"); /* the first boundary may stand at the very beginning */
}

void multipart_done(struct multipart *m)
{
    buf_done(&m->held);
}

/* ------------------------------------------------------------------ one part's head */

/* The value of `Content-Disposition:` in a head, or NULL. The head is lines with CRLF, NUL at its
 * end. */
static char *disposition(char *head)
{
    static const char name[] = "content-disposition:";

    for (char *line = head, *next; line && *line; line = next) {
        next = strstr(line, "\r\n");
        if (next) {
            *next = '\0';
            next += 2;
        }
        if (strncasecmp(line, name, strlen(name)) == 0)
            return line + strlen(name);
    }
    return NULL;
}

static int begin_part(struct multipart *m, char *head, struct cove_err *e)
{
    char name[256] = "", filename[4096] = "";
    struct multipart_part part = { .name = name };
    const char *value = disposition(head);

    if (!value)
        return cove_fail(e, COVE_INVALID, "body: a part without Content-Disposition");
    if (++m->parts > MULTIPART_PARTS_MAX)
        return cove_fail(e, COVE_INVALID, "body: more than %d parts", MULTIPART_PARTS_MAX);
    parameter(value, "name", name, sizeof(name));
    if (parameter(value, "filename", filename, sizeof(filename)))
        part.filename = filename;
    return m->begin(m->arg, &part, e);
}

/* ------------------------------------------------------------------ states: 1 = go on, 0 = more is needed, -1 */

static const char *find(const struct buf *in, const char *what, size_t len)
{
    return in->len < len ? NULL : memmem(in->data, in->len, what, len);
}

/* Reads up to the next boundary. Bytes that cannot belong to a boundary are passed on at once. */
static int until_boundary(struct multipart *m, bool tell, struct cove_err *e)
{
    const char *at = find(&m->held, m->boundary, m->boundary_len);
    size_t keep = m->boundary_len - 1;
    size_t n = at ? (size_t)(at - m->held.data) : m->held.len > keep ? m->held.len - keep : 0;

    if (tell && n > 0 && m->data(m->arg, m->held.data, n, e) < 0)
        return -1;
    buf_drop(&m->held, n + (at ? m->boundary_len : 0));
    if (!at)
        return 0;
    if (tell && m->end(m->arg, e) < 0)
        return -1;
    m->state = AFTER_BOUNDARY;
    return 1;
}

static int after_boundary(struct multipart *m, struct cove_err *e)
{
    if (m->held.len < 2)
        return 0;
    if (memcmp(m->held.data, "--", 2) == 0)
        m->state = EPILOGUE;
    else if (memcmp(m->held.data, "\r\n", 2) == 0)
        m->state = HEAD;
    else
        return cove_fail(e, COVE_INVALID, "body: text follows a boundary on its line");
    if (m->state == EPILOGUE)
        buf_drop(&m->held, 2); /* a head keeps the CRLF: an empty one ends with it */
    return 1;
}

static int read_head(struct multipart *m, struct cove_err *e)
{
    const char *end = find(&m->held, "\r\n\r\n", 4);
    size_t len;

    if (!end && m->held.len > MULTIPART_HEAD_MAX)
        return cove_fail(e, COVE_INVALID, "body: the head of a part is too long");
    if (!end)
        return 0;
    len = (size_t)(end - m->held.data);
    m->held.data[len] = '\0';
    if (strlen(m->held.data) != len)
        return cove_fail(e, COVE_INVALID, "body: the head of a part has a NUL in it");
    if (begin_part(m, m->held.data + (len >= 2 ? 2 : 0), e) < 0)
        return -1;
    buf_drop(&m->held, len + 4);
    m->state = BODY;
    return 1;
}

static int step(struct multipart *m, struct cove_err *e)
{
    switch (m->state) {
    case BEFORE:
        return until_boundary(m, false, e);
    case AFTER_BOUNDARY:
        return after_boundary(m, e);
    case HEAD:
        return read_head(m, e);
    case BODY:
        return until_boundary(m, true, e);
    default:
        buf_clear(&m->held);
        return 0;
    }
}

int multipart_feed(struct multipart *m, const char *bytes, size_t len, struct cove_err *e)
{
    while (len > 0) {
        size_t n = len < 32 * 1024 ? len : 32 * 1024; /* the ceiling of `held` holds this too */
        int more;

        if (buf_add(&m->held, bytes, n) < 0)
            return cove_fail(e, COVE_BUSY, "body: no memory for it");
        bytes += n;
        len -= n;
        while ((more = step(m, e)) > 0)
            ;
        if (more < 0)
            return -1;
    }
    return 0;
}

int multipart_finish(const struct multipart *m, struct cove_err *e)
{
    if (m->state != EPILOGUE)
        return cove_fail(e, COVE_INVALID, "body: ended before its last boundary");
    return 0;
}
