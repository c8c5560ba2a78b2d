/*
 * Messages between processes: one SEQPACKET packet is one message, file descriptors ride along.
 *
 * A peer that sends what the receiver's table does not allow (type, size, number of fds) is cut
 * off. Integers are in host order: both ends are on one machine. Strings travel in the tail, each
 * with its terminating NUL, in the order the comment of the message gives.
 *
 * This header has the framing, which all protocols share. The messages themselves are in a header for each
 * receiver:
 *
 *   100-299  worker, keeper, judge, gate, starter <-> init of one sandbox      cove/msg_box.h
 *   300-399  worker -> keeper                                                  cove/msg_keeper.h
 *   400-499  keeper -> judge                                                   cove/msg_helpers.h
 *   500-599  worker, keeper, the next gate -> gate                             cove/msg_gate.h
 *   600-799  worker -> auth, worker -> fetch, keeper <-> resolver              cove/msg_helpers.h
 *   800-849  keeper -> saver                                                   cove/saved.h
 *   850-899  keeper, `cove store` -> bucket                                    cove/bucket.h
 *   900-949  worker -> builder                                                 cove/build.h
 *   950-999  keeper <-> starter                                                cove/msg_helpers.h
 */
#ifndef COVE_MSG_H
#define COVE_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/err.h"

#define MSG_MAGIC 0x31564f43u /* "COV1": raise the digit when the layout of a message changes */

enum {
    MSG_MAX_BYTES = 256 * 1024, /* head + body + tail; a socket's send buffer must hold it */
    MSG_MAX_FDS = 32,           /* the layers of a sandbox are handed over in one message */
    MSG_PATH_MAX = 4096,
};

struct msg_head {
    uint32_t magic;
    uint32_t type; /* MSG_*, or a type of the receiver's header */
    uint32_t size; /* of the whole packet */
    uint32_t tag;  /* chosen by whoever asks, repeated in the answer */
};

enum msg_type {
    MSG_ERROR = 1, /* struct cove_err */
    MSG_DONE,      /* no body: it is done */
};

struct msg {
    struct msg_head head;
    const void *body; /* in the caller's buffer; NULL if the packet ended with the head */
    size_t body_len;  /* body and tail together */
    int fds[MSG_MAX_FDS];
    size_t fd_count;
};

/* The messages that a receiver accepts: the first row whose type fits decides. Rows end with type 0. */
struct msg_rule {
    uint32_t type;
    size_t min_body; /* the fixed struct */
    size_t max_tail; /* 0: exactly the struct */
    unsigned min_fds, max_fds;
};

/* Makes room in a socket for the longest message. Both sides call it once per socket. */
void msg_prepare_socket(int sock);

/*
 * The process that connected to a unix socket; 0 if the kernel does not say. A process that listens for
 * workers gives one peer no more than half of its places, so that a worker that was taken over, which
 * cannot fork, leaves room for the others.
 */
pid_t msg_peer(int sock);

/* A message to be sent. Parts that are not named are empty. */
struct msg_out {
    uint32_t type, tag;
    const void *body; /* the fixed struct; MSG_BODY() sets both */
    size_t body_len;
    const void *tail;
    size_t tail_len;
    const int *fds; /* they stay the caller's */
    size_t fd_count;
};
#define MSG_BODY(object) .body = &(object), .body_len = sizeof(object)

/*
 * Sends one message: msg_send(sock, &(struct msg_out){ GATE_BOUND, .tag = tag, MSG_BODY(answer) }, 0, e).
 * COVE_GONE: the peer has closed. COVE_BUSY: `flags` has MSG_DONTWAIT, and the peer's queue is full. A peer that
 * has closed never causes a SIGPIPE.
 */
int msg_send(int sock, const struct msg_out *m, int flags, struct cove_err *e);

/*
 * Receive one message into buf and check it against rules. 1: a message; 0: the peer has closed;
 * -1: error (COVE_BUSY: nothing there and MSG_DONTWAIT; COVE_INVALID: not a message we take: cut
 * the peer off). On success msg->fds are the caller's to close (msg_close_fds); they are CLOEXEC.
 */
int msg_recv(int sock, void *buf, size_t buf_size, const struct msg_rule *rules, int flags,
             struct msg *ret, struct cove_err *e);
void msg_close_fds(struct msg *m);
/* Raises the error that a MSG_ERROR carries, with its text made safe to print. Returns -1; e may be NULL. */
int msg_raise(const struct msg *m, struct cove_err *e);

/* Walk the strings of a tail: returns the string at *at and moves on, or NULL when there is none
   left or the NUL is missing. */
const char *msg_next_str(const char **at, const char *end);

#endif
