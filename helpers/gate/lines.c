/*
 * The lines of a process over WebSocket. Each message of a client is a line for the process's standard
 * input; each line of its standard output is a text message to every client. With `numbered` it is
 * {"n":12,"line":"..."}: lines count from 1 at the start of the process, whoever listens.
 *
 * Nothing is kept here: a message is read from the log ring while it is sent. The process waits for the
 * slowest client (LOG_ARM_HOLD), and a client that does not read for half a minute is closed. A client that
 * comes late gets what the ring still has, or begins at the line it asks for.
 *
 * Standard error is not sent. Bytes that are not UTF-8 become U+FFFD. A line that is longer than a quarter of
 * the ring may come in pieces; with `numbered` all but the last one are marked "more":true.
 */
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/gate/attach.h"

enum { MESSAGE_MAX = 1 << 20, CHUNK = 4096 };

/* ------------------------------------------------------------------ reading the ring */

struct piece { /* what is left of one record */
    const char *bytes;
    uint32_t len;
    uint64_t lines;          /* line feeds before it */
    bool lost;               /* something before it was overwritten */
    struct ring_reader next; /* the record after it */
};

/* 1: a piece of standard output; 0: there is none yet; -1: the ring makes no sense. */
static int look(struct line_cursor *c, struct piece *ret, struct cove_err *e)
{
    static char bytes[RING_REC_MAX];
    struct ring_rec rec;
    uint64_t gap;
    int rc;

    *ret = (struct piece){ 0 };
    for (;;) {
        ret->next = c->reader;
        rc = ring_read(&ret->next, &rec, bytes, &gap, e);
        if (rc != 1)
            return rc;
        if (gap > 0) {
            c->lost = true;
            c->skip = 0;
        }
        if (rec.stream == RING_STDOUT && rec.len > c->skip)
            break;
        c->reader = ret->next;
        c->skip = 0;
    }
    ret->bytes = bytes + c->skip;
    ret->len = rec.len - c->skip;
    ret->lines = rec.lines;
    ret->lost = c->lost && rec.offset > 0;
    return 1;
}

static void advance(struct line_cursor *c, const struct piece *p, uint32_t n)
{
    c->lost = false;
    if (n < p->len) {
        c->skip += n;
        return;
    }
    c->reader = p->next;
    c->skip = 0;
}

/* Up to `want` bytes from the cursor on, which stays where it is. -1: they are not there any more. */
static int gather(const struct line_cursor *from, char *out, size_t want, size_t *ret_len)
{
    struct line_cursor c = *from;
    struct cove_err e = { 0 };
    struct piece p;
    size_t len = 0;

    while (len < want) {
        size_t n;

        if (look(&c, &p, &e) != 1 || p.lost)
            return -1;
        n = p.len < want - len ? p.len : want - len;
        memcpy(out + len, p.bytes, n);
        len += n;
        advance(&c, &p, (uint32_t)n);
    }
    *ret_len = len;
    return 0;
}

static int drop(struct line_cursor *c, uint64_t n)
{
    struct cove_err e = { 0 };
    struct piece p;

    while (n > 0) {
        uint32_t part;

        if (look(c, &p, &e) != 1)
            return -1;
        part = n < p.len ? (uint32_t)n : p.len;
        advance(c, &p, part);
        n -= part;
    }
    return 0;
}

/* ------------------------------------------------------------------ finding lines */

static void begin_line(struct viewer *v, uint64_t number)
{
    v->line = number;
    v->ahead = v->at;
    v->ahead_bytes = 0;
}

/* The beginning of the line is lost: the next one whose number is known comes after the next line feed. */
static int find_number(struct viewer *v, struct cove_err *e)
{
    struct piece p;
    int rc;

    while ((rc = look(&v->at, &p, e)) == 1) {
        const char *feed = memchr(p.bytes, '\n', p.len);
        uint64_t before = p.lines;

        for (const char *c = p.bytes - v->at.skip; c < p.bytes; c++)
            before += *c == '\n';
        advance(&v->at, &p, feed ? (uint32_t)(feed + 1 - p.bytes) : p.len);
        if (!feed)
            continue;
        begin_line(v, before + 2);
        return 1;
    }
    return rc;
}

/* init keeps the output from the line's beginning on for us. When that is nearly all of the ring, the process
 * waits and the line could never end: the part that is there is sent as a piece. */
static bool too_long(const struct viewer *v)
{
    return v->ahead.reader.pos - v->at.reader.pos >= v->at.reader.capacity / 4 * 3;
}

/* Look on for the end of the line. 1: v->ahead_bytes is a message, and `ends_line` tells if its line ends
 * there; 0: not yet. */
static int find_end(struct viewer *v, struct cove_err *e)
{
    struct piece p;
    int rc;

    while ((rc = look(&v->ahead, &p, e)) == 1) {
        const char *feed = memchr(p.bytes, '\n', p.len);
        uint32_t n = feed ? (uint32_t)(feed + 1 - p.bytes) : p.len;

        if (p.lost) {
            v->at = v->ahead;
            v->line = 0;
            return find_number(v, e) < 0 ? -1 : find_end(v, e);
        }
        advance(&v->ahead, &p, n);
        v->ahead_bytes += n;
        v->ends_line = feed != NULL;
        if (feed || too_long(v))
            return 1;
    }
    v->ends_line = true;
    return rc < 0 ? -1 : v->attachment->drained && v->ahead_bytes > 0;
}

static int begin(struct viewer *v, struct cove_err *e)
{
    struct line_cursor first = v->at;
    struct piece p;
    int rc = look(&first, &p, e);

    begin_line(v, rc == 1 && p.lost ? 0 : 1);
    if (rc == 1 && p.lost)
        rc = find_number(v, e);
    return rc < 0 ? -1 : 0;
}

/* ------------------------------------------------------------------ sending them */

/* A message that is complete in the ring is sent while it is read. */
static void start_message(struct viewer *v)
{
    v->left = v->ahead_bytes;
    v->message_begun = false;
    v->json = (struct json_writer){ 0 };
    websocket_send_pulled(&v->socket);
}

static int more(struct viewer *v, struct cove_err *e)
{
    int rc;

    if (v->line == 0 && (rc = find_number(v, e)) != 1)
        return rc;
    while ((rc = find_end(v, e)) == 1 && v->options.has_from && v->line < v->options.from) {
        v->at = v->ahead; /* the client has seen this line before */
        begin_line(v, v->line + v->ends_line);
    }
    if (rc == 1)
        start_message(v);
    return rc;
}

/* Cut off the beginning of a character whose end comes with the next bytes. */
static size_t whole_characters(const char *bytes, size_t len, bool last)
{
    size_t back = 0;

    if (last)
        return len;
    while (back < 3 && back < len && ((unsigned char)bytes[len - 1 - back] & 0xC0) == 0x80)
        back++;
    if (back < len && (unsigned char)bytes[len - 1 - back] >= 0xC0 &&
        text_utf8_seq(bytes + len - 1 - back, back + 1) == 0)
        return len - 1 - back > 0 ? len - 1 - back : len;
    return len;
}

static void add_plain(struct buf *out, const char *bytes, size_t len)
{
    while (len > 0) {
        size_t seq = text_utf8_seq(bytes, len);

        if (seq)
            buf_add(out, bytes, seq);
        else
            buf_add_str(out, "\xEF\xBF\xBD");
        bytes += seq ? seq : 1;
        len -= seq ? seq : 1;
    }
}

static int add_text(struct viewer *v, struct buf *out, size_t room)
{
    char bytes[CHUNK];
    size_t most =
        room / (v->options.numbered ? 6 : 3); /* what one byte may become: \u0000, U+FFFD */
    size_t want = v->left < most ? (size_t)v->left : most, len, n;

    if (gather(&v->at, bytes, want, &len) < 0)
        return -1;
    n = len = whole_characters(bytes, len, want == v->left);
    v->left -= n;
    if (drop(&v->at, n) < 0)
        return -1;
    if (v->left == 0 && len > 0 && bytes[len - 1] == '\n')
        len--;
    if (v->options.numbered)
        json_text_add(&v->json, bytes, len);
    else
        add_plain(out, bytes, len);
    return 0;
}

static void begin_message(struct viewer *v)
{
    json_open(&v->json, NULL, '{');
    json_put_int(&v->json, "n", (int64_t)v->line);
    json_text_begin(&v->json, "line");
}

static void end_message(struct viewer *v)
{
    if (v->options.numbered) {
        json_text_end(&v->json);
        if (!v->ends_line)
            json_put_bool(&v->json, "more", true);
        json_close(&v->json, '}');
    }
    begin_line(v, v->line + v->ends_line);
}

static ssize_t pull(struct websocket *ws, char *buf, size_t len, int *ret_last)
{
    struct viewer *v = container_of(ws, struct viewer, socket);
    AUTO_BUF struct buf out = BUF(2 * CHUNK);

    v->json.out = &out;
    if (!v->message_begun && v->options.numbered)
        begin_message(v);
    v->message_begun = true;
    if (len < 256 || add_text(v, &out, len - 128) < 0)
        return -1; /* half a message was sent: the connection must end */
    if (v->left == 0)
        end_message(v);
    if (v->left == 0)
        *ret_last = 1;
    if (out.overflow || out.len > len)
        return -1;
    memcpy(buf, out.data ? out.data : "", out.len);
    return (ssize_t)out.len;
}

/* ------------------------------------------------------------------ input */

static void message(struct websocket *ws, bool text, const char *bytes, size_t len)
{
    struct viewer *v = container_of(ws, struct viewer, socket);
    bool whole = len > 0 && bytes[len - 1] == '\n';

    (void)text;
    viewer_account(v, true);
    if (v->options.read_only) {
        viewer_close(v, WEBSOCKET_POLICY, "this connection may only listen");
        return;
    }
    v->attachment->writer = v;
    attachment_input(v->attachment, bytes, len, "\n", whole ? 0 : 1);
}

static void ended(struct viewer *v, const struct cove_end *end)
{
    (void)v;
    (void)end; /* the close code and its reason say it */
}

const struct viewer_kind lines_kind = {
    .name = "lines",
    .holds = true,
    .socket = { .message_max = MESSAGE_MAX,
                .message = message,
                .room = viewer_room,
                .pull = pull,
                .gone = viewer_gone },
    .begin = begin,
    .more = more,
    .ended = ended,
};
