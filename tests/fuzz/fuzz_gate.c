/*
 * What reaches the gate by host name: the head of a request with nginx's line in it (helpers/gate/hosts.c).
 * A head that is taken has a whole id and a port, and what is left of it is the head without that line.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "helpers/gate/hosts.c" /* its reading is static */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ------------------------------------------------------------------ the rest of the gate, never called */

#define NEVER(type, name, ...)                                                                     \
    type name(__VA_ARGS__)                                                                         \
    {                                                                                              \
        abort();                                                                                   \
    }

NEVER(void, answer_refusal, struct relay *r, const struct cove_err *why)
NEVER(void, relay_connect, struct relay *r, const struct port_target *t)
NEVER(void, relay_close, struct relay *r)
NEVER(struct relay *, relay_accept, struct gate *g, struct watch *l, const struct way_in *w)
NEVER(enum gate_access_word, access_of, const struct gate *g, const struct port_target *t)
NEVER(void, gate_room_changed, struct gate *g)
NEVER(bool, sockets_follow, struct relay *r, const char *line)

bool sockets_meant(const char *line)
{
    return strncmp(line, "Cove-Socket:", 12) == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct buf head = BUF(HEAD_MAX + 4096);
    char text[LINE_MAX_BYTES];
    struct line line;
    size_t before;
    int rc;

    if (size > HEAD_MAX || size == 0 || buf_add(&head, data, size) < 0)
        return 0;
    before = head.len;
    rc = cut_line(&head, text);
    if (rc < -1 || rc > 1 || head.len > before)
        abort();
    if (rc != 1)
        return 0;
    if (head.len >= before || strlen(text) >= sizeof(text))
        abort();
    if (parse_line(text, &line) &&
        (!text_is_id(line.id) || !line.port || line.port > 65535 ||
         strnlen(line.reason, sizeof(line.reason)) == sizeof(line.reason)))
        abort();
    return 0;
}
