/*
 * Requests to an init and its answers, as bytes and descriptors: requests are made here, answers are checked and
 * taken apart here. Nothing in here waits. The calls of client.h are these
 * with a blocking transport around them; a process with an event loop of its own (the gate) uses
 * them as they are:
 *
 *   box_connect_now(run_dir, id, &sock, e)         a conversation, or at once an error
 *   request = box_request_port(80)
 *   box_request_send(&request, sock, tag, e)
 *   ... the loop says that sock is readable ...
 *   box_answer_receive(sock, buf, size, &m, e)     one message, checked for its shape
 *   box_answer_check(&request, tag, &m, e)         is it the answer, and is it a good one?
 *   box_answer_port(&m, &fd, e)                    what it carries
 */
#ifndef COVE_BOX_WIRE_H
#define COVE_BOX_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/buf.h"
#include "cove/client.h"
#include "cove/err.h"
#include "cove/msg.h"
#include "cove/msg_box.h"

/* ------------------------------------------------------------------ requests */

struct box_request {
    uint32_t type, want; /* message types of the request and of its answer */
    _Alignas(8) char body[sizeof(struct box_spawn)];
    size_t body_len;
    struct buf tail;
    int fds[4]; /* the caller's */
    size_t fd_count;
};

static inline void box_request_done(struct box_request *r)
{
    buf_done(&r->tail);
}
#define AUTO_REQUEST __attribute__((cleanup(box_request_done)))

/* `body` is the fixed part, of at most sizeof(struct box_spawn) bytes; NULL: there is none. */
struct box_request box_request(uint32_t type, uint32_t want, const void *body, size_t body_len);
void box_request_add(struct box_request *r, const char *s); /* to the tail; NULL as "" */
struct box_request box_request_spawn(const struct spawn_args *args);
struct box_request box_request_port(uint16_t port);

/* Sends one message without waiting. COVE_BUSY: the queue is full; COVE_GONE: init has closed. */
int box_request_send(const struct box_request *r, int sock, uint32_t tag, struct cove_err *e);

/* ------------------------------------------------------------------ answers */

/* Receives one message and checks that it has the shape of a message of an init. -1 with COVE_BUSY: there is
   none yet; -1 with COVE_GONE: the sandbox ended, or the other side does not behave like an init. */
int box_answer_receive(int sock, void *buf, size_t buf_size, struct msg *ret, struct cove_err *e);
/* 1: the message is the answer to that request. 0: it belongs to an earlier request; its descriptors were
   closed. -1: the request failed, or the message breaks the protocol. */
int box_answer_check(const struct box_request *r, uint32_t tag, struct msg *m, struct cove_err *e);

/* Takes the descriptor out of the message after checking that it is of this kind. */
int box_answer_fd(struct msg *m, mode_t kind, const char *what, int *ret_fd, struct cove_err *e);
int box_answer_port(struct msg *m, int *ret_sock, struct cove_err *e);
void box_answer_spawned(struct msg *m, struct box_spawned *ret, int *ret_pty);

/* Reads one entry of a page: copies its fixed part and finds the two strings after it. Returns the entry's
   size, 0 if it is not whole. */
size_t box_answer_entry(const char *at, const char *end, void *fixed, size_t fixed_size,
                        const char **ret_a, const char **ret_b);

/* ------------------------------------------------------------------ the way there */

/* Connects without waiting. COVE_BUSY: too many connections wait for init already. The socket is non-blocking. */
int box_connect_now(const char *run_dir, const char *id, int *ret_sock, struct cove_err *e);

#endif
