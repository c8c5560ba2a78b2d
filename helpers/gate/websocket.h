/*
 * A WebSocket, on a connected socket that nginx has passed on: frames (libwslay), ping and pong, close
 * codes, and bounds on everything that the other side can make large. It knows no sandbox.
 *
 * Memory: what waits to be sent is bounded by its user, who sends only while websocket_has_room(); a
 * message that is being received is bounded by `message_max`, by a number of fragments, and by a budget
 * that all sockets share. While more than SEND_HIGH bytes wait to be sent nothing is read, so that a flood
 * of pings cannot fill the memory with pongs.
 */
#ifndef GATE_WEBSOCKET_H
#define GATE_WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <wslay/wslay.h>

#include "cove/buf.h"
#include "cove/loop.h"

/* RFC 6455, and ours from 4000 on (docs/PORTS.md). */
enum websocket_code {
    WEBSOCKET_NORMAL = 1000,
    WEBSOCKET_BAD_DATA = 1003,
    WEBSOCKET_POLICY = 1008,
    WEBSOCKET_INTERNAL = 1011,
    WEBSOCKET_RESTART = 1012,
    WEBSOCKET_BUSY = 1013,
    WEBSOCKET_SANDBOX_ENDED = 4000,
    WEBSOCKET_TOO_SLOW = 4001,
    WEBSOCKET_IDLE = 4002,
    WEBSOCKET_NO_PROCESS = 4004,
    WEBSOCKET_NO_INPUT = 4005,
    WEBSOCKET_REFUSED = 4000, /* and an HTTP status: 4401, 4403, 4404 */
};

enum { WEBSOCKET_REASON_MAX = 123 }; /* the room in a control frame beside the code */

struct websocket;

struct websocket_user {
    size_t message_max;
    /* A whole message. */
    void (*message)(struct websocket *ws, bool text, const char *bytes, size_t len);
    /* There is room to send more. */
    void (*room)(struct websocket *ws);
    /* The next bytes of the message that websocket_send_pulled() began: at least one, or *ret_last is set.
     * -1: the connection must be cut. */
    ssize_t (*pull)(struct websocket *ws, char *buf, size_t len, int *ret_last);
    /* The connection is over: the user calls websocket_done() and forgets it. Called from the loop alone,
     * never from within one of the functions below. */
    void (*gone)(struct websocket *ws);
};

struct websocket { /* embedded in its user's object */
    const struct websocket_user *user;
    struct loop *loop;
    struct watch watch; /* the socket */
    struct budget *budget;
    wslay_event_context_ptr wslay;
    struct timer timer; /* the next ping, or the end of patience with a peer that does not close */
    uint64_t ping_ms, heard_ms;
    size_t receiving;   /* bytes of the message that is coming in, taken from the budget */
    size_t read_budget; /* bytes that may still be read in this turn */
    unsigned fragments; /* of that message */
    bool paused;        /* nothing is read: its user has no room for messages */
    bool wants_room;    /* its user has more to send */
    bool pulling;       /* a message of websocket_send_pulled() has not ended */
    bool cut;           /* nothing more can be read from the socket */
    bool closing, broken;
    uint16_t close_code; /* to be sent after all that waits; 0: none, or it was sent */
    char close_reason[WEBSOCKET_REASON_MAX + 1];
    uint64_t bytes_in, bytes_out;
};

/* The socket is the WebSocket's from now on, also after a failure (-1: out of memory). */
int websocket_init(struct websocket *ws, const struct websocket_user *user, struct loop *loop,
                   int fd, struct budget *budget, uint64_t ping_ms);
void websocket_done(struct websocket *ws);

/* The answer to the handshake: `accept` is what the client expects (RFC 6455, 4.2.2), `protocol` the
 * subprotocol that was chosen, "" for none. -1: it did not fit into the socket at once. */
int websocket_greet(struct websocket *ws, const char *accept, const char *protocol);

bool websocket_has_room(const struct websocket *ws);
/* More is to be sent than there is room for: room() is called when there is some. */
void websocket_want_room(struct websocket *ws, bool wanted);
void websocket_send(struct websocket *ws, bool text, const char *bytes, size_t len);
/* A text message of any length: the user's pull() supplies its bytes as they are needed. There is no room
 * for another message until it has ended. */
void websocket_send_pulled(struct websocket *ws);
void websocket_pause(struct websocket *ws, bool paused);
/* Closes with a code and a reason, after everything that was sent before. websocket_close_now() throws away what
 * waits to be sent. Later calls have no effect. */
void websocket_close(struct websocket *ws, unsigned code, const char *reason);
void websocket_close_now(struct websocket *ws, unsigned code, const char *reason);
/* Send what waits, as far as it goes now. To be called after any of the above. */
void websocket_flush(struct websocket *ws);

#endif
