/*
 * The way in for WebSockets on a process. A worker (fcgi/attach.c) has checked the caller and the
 * handshake and has started or found the process; nginx puts the worker's answer into the first header
 * line:
 *
 *     Cove-Target: socket ACCEPT PROTOCOL KIND ID PROC [from=N] [rows=N] [cols=N] [key=NAME] [until=N]
 *                  [numbered] [read_only] [plain_text]
 *     Cove-Target: close ACCEPT PROTOCOL CODE reason in plain words      accepted, and closed at once
 *     Cove-Target: refuse STATUS reason in plain words                   an HTTP reply
 *
 * ACCEPT is the value of Sec-WebSocket-Accept, PROTOCOL that of Sec-WebSocket-Protocol, or "-". key and until say how
 * long the caller may stay (callers.c). The rest of the head is not read.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/gate/attach.h"

/* ------------------------------------------------------------------ words */

static bool read_number(const char *word, const char *name, uint64_t *ret)
{
    size_t len = strlen(name);
    char *end;

    if (strncmp(word, name, len) != 0 || word[len] != '=' || !word[len + 1])
        return false;
    *ret = strtoull(word + len + 1, &end, 10);
    return *end == '\0';
}

static bool read_word(const char *word, struct viewer_options *o, struct gate_caller *caller)
{
    uint64_t n;

    if (strcmp(word, "numbered") == 0)
        return o->numbered = true;
    if (strcmp(word, "read_only") == 0)
        return o->read_only = true;
    if (strcmp(word, "plain_text") == 0)
        return o->plain_text = true;
    if (caller_read(word, caller))
        return true;
    if (read_number(word, "from", &o->from))
        return o->has_from = true;
    if (read_number(word, "rows", &n) && n <= UINT16_MAX) {
        o->rows = (uint16_t)n;
        return true;
    }
    if (read_number(word, "cols", &n) && n <= UINT16_MAX) {
        o->cols = (uint16_t)n;
        return true;
    }
    return false;
}

static bool read_options(char *words, struct viewer_options *o, struct gate_caller *caller)
{
    char *word;

    while ((word = strsep(&words, " ")))
        if (*word && !read_word(word, o, caller))
            return false;
    return true;
}

/* ------------------------------------------------------------------ the three answers */

static const struct way_in by_socket = { .refused = answer_refusal };

static const struct viewer_kind *find_kind(const char *name)
{
    static const struct viewer_kind *const kinds[] = { &terminal_kind, &lines_kind };

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

static bool follow_socket(struct relay *r, const char *text)
{
    struct viewer_options options = { 0 };
    struct port_target target = { 0 };
    const struct viewer_kind *kind;
    char name[16], words[256];
    unsigned proc;
    int read = 0;

    if (sscanf(text, "%31s %31s %15s %23s %10u%n", options.accept, options.protocol, name,
               target.id, &proc, &read) != 5 ||
        !text_copy(words, sizeof(words), text + read))
        return false;
    kind = find_kind(name);
    if (!kind || !text_is_id(target.id) || !proc || !read_options(words, &options, &r->caller))
        return false;
    r->way_in = &by_socket;
    if (relay_claim(r, &target))
        attach(r, kind, proc, &options);
    return true;
}

/* A WebSocket that is only opened to send a close with its code and reason takes no messages. */
static void no_message(struct websocket *ws, bool text, const char *bytes, size_t len)
{
    (void)ws;
    (void)text;
    (void)bytes;
    (void)len;
}

static const struct viewer_kind closed_kind = {
    .name = "closed",
    .socket = { .message_max = 125,
                .message = no_message,
                .room = viewer_room,
                .gone = viewer_gone },
};

static bool follow_close(struct relay *r, const char *text)
{
    struct viewer_options options = { 0 };
    struct viewer *v;
    unsigned code;
    int read = 0;

    if (sscanf(text, "%31s %31s %4u%n", options.accept, options.protocol, &code, &read) != 3 ||
        code < 1000 || code > 4999)
        return false;
    v = viewer_new(r, &closed_kind, &options);
    if (!v || viewer_greet(v) < 0)
        relay_close(r);
    else
        viewer_close(v, code, text + read + (text[read] == ' '));
    return true;
}

static bool follow_refuse(struct relay *r, const char *text)
{
    unsigned status;
    int read = 0;

    if (sscanf(text, "%3u %n", &status, &read) != 1 || status < 400 || status > 599)
        return false;
    answer_status(r, status, text + read);
    return true;
}

static const struct verdict {
    const char *words;
    bool (*follow)(struct relay *r, const char *text);
} verdicts[] = {
    { "Cove-Target: socket ", follow_socket },
    { "Cove-Target: close ", follow_close },
    { "Cove-Target: refuse ", follow_refuse },
};

static const struct verdict *find_verdict(const char *line)
{
    for (size_t i = 0; i < ARRAY_SIZE(verdicts); i++)
        if (strncmp(line, verdicts[i].words, strlen(verdicts[i].words)) == 0)
            return &verdicts[i];
    return NULL;
}

bool sockets_meant(const char *line)
{
    return find_verdict(line) != NULL;
}

/* The head is there to its end, and nothing follows it: a client's frames come when nginx has seen our
 * 101. */
bool sockets_follow(struct relay *r, const char *line)
{
    const struct verdict *v = find_verdict(line);

    return v && v->follow(r, line + strlen(v->words));
}
