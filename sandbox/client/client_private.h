/* What the stubs of keeper.c, procs.c and files.c are made of. See client.c. */
#ifndef SANDBOX_CLIENT_PRIVATE_H
#define SANDBOX_CLIENT_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "cove/buf.h"
#include "cove/client.h"
#include "cove/err.h"
#include "cove/msg.h"

/* Connect to a SEQPACKET socket below run_dir. */
int client_connect(const char *run_dir, const char *name, int *ret_sock, struct cove_err *e);
/* 1: ready for these events of poll(2), or closed; 0: not within the time. */
int client_wait(int sock, short events, uint64_t until_ms);
/* COVE_GONE, in the way that box_is_unanswered() knows. */
int client_unanswered(struct cove_err *e);
/* An answer that is MSG_ERROR becomes the caller's error; returns -1. */
int client_raise(const struct msg *m, struct cove_err *e);
void client_add_str(struct buf *tail, const char *s); /* NULL as "" */

/* Send a request whose answer, if there is one, comes as an event. */
int box_tell(struct box_conn *c, uint32_t type, const void *body, size_t body_len,
             const struct buf *tail, const int *fds, size_t fd_count, struct cove_err *e);
/* Send a request and wait for the answer of that kind. */
int box_ask(struct box_conn *c, uint32_t type, const void *body, size_t body_len,
            const struct buf *tail, const int *fds, size_t fd_count, uint32_t want, struct msg *ret,
            struct cove_err *e);
/* The same, when the answer carries nothing. */
int box_do(struct box_conn *c, uint32_t type, const void *body, size_t body_len,
           const struct buf *tail, struct cove_err *e);
int box_receive(struct box_conn *c, int flags, struct msg *ret, struct cove_err *e);
bool box_is_event(uint32_t type);

/* The descriptor of an answer, if it is what it should be. Either way the message has none left. */
int client_take_fd(struct msg *m, mode_t kind, const char *what, int *ret_fd, struct cove_err *e);

/* One entry of a page: its fixed part copied out, two strings after it. Returns its size, 0 if it
 * is not whole. */
size_t client_next_entry(const char *at, const char *end, void *fixed, size_t fixed_size,
                         const char **ret_a, const char **ret_b);
int client_bad_page(struct cove_err *e);

/* A listing asks several times and has one deadline. Returns what to set c->until_ms to afterwards.
 */
uint64_t client_listing_starts(struct box_conn *c);

#endif
