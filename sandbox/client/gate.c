/* What can be asked of the gate. See client.c. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/client/client_private.h"

enum { GATE_COUNTS_MS = 1000 };

static const struct msg_rule gate_answers[] = {
    { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
    { MSG_DONE, 0, 0, 0, 0 },
    { GATE_BOUND, sizeof(struct gate_bound), 0, 0, 0 },
    { 0 },
};

/* Each question gets its own connection, because questions are rare. */
static int gate_ask(const char *run_dir, uint32_t type, const void *body, size_t len, uint32_t want,
                    void *ret, size_t ret_size, struct cove_err *e)
{
    AUTO_CLOSE int sock = -1;
    char buf[1024];
    struct msg m;
    int rc;

    if (client_connect(run_dir, "gate.sock", &sock, e) < 0 ||
        msg_send(sock, &(struct msg_out){ type, .tag = 1, .body = body, .body_len = len }, 0, e) <
            0)
        return -1;
    if (!client_wait(sock, POLLIN, clock_boot_ms() + BOX_ANSWER_MS))
        return cove_fail(e, COVE_BUSY, "the gate does not answer");
    rc = msg_recv(sock, buf, sizeof(buf), gate_answers, 0, &m, e);
    if (rc == 0)
        return cove_fail(e, COVE_BUSY, "the gate closed the connection");
    if (rc < 0)
        return -1;
    if (m.head.type == MSG_ERROR)
        return client_raise(&m, e);
    if (m.head.type != want)
        return cove_fail(e, COVE_INTERNAL, "the gate answered with the wrong type of message");
    if (ret)
        memcpy(ret, m.body, ret_size);
    return 0;
}

int gate_bind(const char *run_dir, const struct gate_bind *args, uint16_t *ret_proxy_port,
              struct cove_err *e)
{
    struct gate_bound bound;

    if (gate_ask(run_dir, GATE_BIND, args, sizeof(*args), GATE_BOUND, &bound, sizeof(bound), e) < 0)
        return -1;
    *ret_proxy_port = bound.proxy_port;
    return 0;
}

int gate_access(const char *run_dir, const struct gate_access *args, struct cove_err *e)
{
    return gate_ask(run_dir, GATE_ACCESS, args, sizeof(*args), MSG_DONE, NULL, 0, e);
}

int gate_unbind(const char *run_dir, const struct gate_unbind *args, struct cove_err *e)
{
    return gate_ask(run_dir, GATE_UNBIND, args, sizeof(*args), MSG_DONE, NULL, 0, e);
}

/* Asks for one page. -1: there is no gate, or its answer cannot be used. */
static int counts_page(int sock, uint32_t first, struct gate_counted *ret_head,
                       struct gate_count *ret_page, struct cove_err *e)
{
    static const struct msg_rule answers[] = { { GATE_COUNTED, sizeof(struct gate_counted),
                                                 GATE_COUNTS_PAGE * sizeof(struct gate_count), 0,
                                                 0 },
                                               { 0 } };
    struct gate_counts_ask ask = { .first = first };
    AUTO_FREE char *buf = malloc(64 * 1024);
    struct msg m;

    if (!buf || msg_send(sock, &(struct msg_out){ GATE_COUNTS, .tag = 1, MSG_BODY(ask) }, 0, e) < 0)
        return -1;
    if (!client_wait(sock, POLLIN, clock_boot_ms() + GATE_COUNTS_MS) ||
        msg_recv(sock, buf, 64 * 1024, answers, 0, &m, e) != 1)
        return cove_fail(e, COVE_BUSY, "the gate does not answer");
    memcpy(ret_head, m.body, sizeof(*ret_head));
    if (ret_head->count > GATE_COUNTS_PAGE ||
        m.body_len != sizeof(*ret_head) + ret_head->count * sizeof(*ret_page))
        return cove_fail(e, COVE_INTERNAL, "the gate answered with counts of a wrong size");
    memcpy(ret_page, (const char *)m.body + sizeof(*ret_head), ret_head->count * sizeof(*ret_page));
    return 0;
}

int gate_counts(const char *run_dir, gate_count_fn each, void *arg, struct cove_err *e)
{
    AUTO_FREE struct gate_count *page = calloc(GATE_COUNTS_PAGE, sizeof(*page));
    struct gate_counted head = { 0 };
    AUTO_CLOSE int sock = -1;
    uint32_t first;

    if (!page || client_connect(run_dir, "gate.sock", &sock, e) < 0)
        return -1;
    do {
        first = head.next;
        if (counts_page(sock, first, &head, page, e) < 0)
            return -1;
        for (uint32_t i = 0; i < head.count; i++) {
            page[i].id[sizeof(page[i].id) - 1] = '\0';
            each(arg, &page[i]);
        }
    } while (head.next > first);
    return 0;
}
