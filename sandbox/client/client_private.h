/* What the stubs of keeper.c, gate.c, procs.c and files.c are made of. See client.c. */
#ifndef SANDBOX_CLIENT_PRIVATE_H
#define SANDBOX_CLIENT_PRIVATE_H

#include <stdint.h>

#include "cove/box_wire.h"
#include "cove/client.h"
#include "cove/err.h"
#include "cove/msg.h"

/* Connects to a SEQPACKET socket below run_dir. */
int client_connect(const char *run_dir, const char *name, int *ret_sock, struct cove_err *e);
/* 1: ready for these events of poll(2), or closed; 0: not within the time. */
int client_wait(int sock, short events, uint64_t until_ms);
/* An answer that is MSG_ERROR becomes the caller's error; returns -1. */
int client_raise(const struct msg *m, struct cove_err *e);

/* Sends a request and does not wait. Its answer, if there is one, comes as an event. */
int box_tell(struct box_conn *c, const struct box_request *r, struct cove_err *e);
/* Sends a request and waits for its answer. */
int box_ask(struct box_conn *c, const struct box_request *r, struct msg *ret, struct cove_err *e);
/* The same for a request whose answer carries no data. */
int box_do(struct box_conn *c, const struct box_request *r, struct cove_err *e);
/* The same for a request that a child of init carries out, which may take long. */
int box_do_patiently(struct box_conn *c, const struct box_request *r,
                     const struct box_patience *patience, struct cove_err *e);
int box_receive(struct box_conn *c, struct msg *ret, struct cove_err *e);

/* A listing sends several requests and has one deadline for all. Returns the value to which c->until_ms is
 * set back afterwards. */
uint64_t client_listing_starts(struct box_conn *c);
int client_bad_page(struct cove_err *e);

#endif
