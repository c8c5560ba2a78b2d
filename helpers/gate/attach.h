/*
 * WebSockets on a process of a sandbox: an attachment is the gate's one conversation with init about one
 * process, a viewer is one WebSocket on it. All viewers of a process share its attachment; each reads the
 * process's log ring at its own place.
 *
 *   client ══ nginx ══ viewer ┐
 *   client ══ nginx ══ viewer ┴─ attachment ── init      BOX_LOG, BOX_LOG_ARM, BOX_WAIT: its output and its end
 *                                                        BOX_INPUT, BOX_RESIZE: its input and its size
 *
 * The worker that nginx has asked decides who may and starts or finds the process; the gate starts nothing.
 * The kinds of viewers are terminals (terminal.c) and lines (lines.c).
 */
#ifndef GATE_ATTACH_H
#define GATE_ATTACH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "cove/buf.h"
#include "cove/end.h"
#include "cove/json.h"
#include "cove/loop.h"
#include "cove/ring.h"
#include "helpers/gate/gate_private.h"
#include "helpers/gate/websocket.h"

struct attachment;
struct viewer;

struct viewer_kind {
    const char *name; /* in nginx's line */
    bool holds;       /* the process waits for the slowest viewer instead of losing output */
    struct websocket_user socket;
    /* The log is there: find the place to begin. -1: the log makes no sense. */
    int (*begin)(struct viewer *v, struct cove_err *e);
    /* Send the next piece, if there is one. 1: sent; 0: there is none yet; -1: the log makes no sense. */
    int (*more)(struct viewer *v, struct cove_err *e);
    /* The process has ended and all of its output was sent: the last words before the close. */
    void (*ended)(struct viewer *v, const struct cove_end *end);
};

struct viewer_options { /* from nginx's line */
    bool has_from, numbered, read_only, plain_text;
    uint64_t from;
    uint16_t rows, cols;
    char accept[32], protocol[32]; /* of the handshake */
};

struct line_cursor {           /* a place in the output: a byte of a record */
    struct ring_reader reader; /* the record */
    uint32_t skip;             /* how many bytes of the record were read */
    bool lost; /* something between the record before and this one was overwritten */
};

struct viewer {
    LIST_ENTRY(viewer) link;
    struct relay *relay; /* counts as a connection of its sandbox */
    struct attachment *attachment;
    const struct viewer_kind *kind;
    struct viewer_options options;
    struct websocket socket;
    struct line_cursor at; /* where its next output begins; a terminal moves by whole records */
    bool begun, told_end;
    bool caught_up; /* it was sent all output so far */
    uint64_t counted_in, counted_out;
    uint64_t blocked_ms; /* since when its socket has no room for more; 0: it is not blocked */

    /* of terminals */
    uint64_t offset; /* of the next byte to send; earlier ones are skipped */

    /* of lines */
    uint64_t line;            /* number of the line at `at`, from 1 on; 0: its beginning was lost */
    struct line_cursor ahead; /* how far the end of that line was looked for */
    uint64_t ahead_bytes;     /* from `at` to `ahead` */
    uint64_t left;            /* bytes of the message under way that were not sent yet */
    bool ends_line;           /* that message is a line's end */
    bool message_begun;       /* its head was sent */
    struct json_writer json; /* of a numbered message; its buffer is that of the frame being made */
};

LIST_HEAD(viewer_list, viewer);

struct attachment {
    LIST_ENTRY(attachment) link;
    struct gate *gate;
    char id[24]; /* the sandbox's */
    uint32_t proc;
    struct watch talk;  /* the conversation with init */
    struct timer timer; /* init must answer by then, or input is tried again */
    int ring;           /* -1: not there yet */
    uint64_t end_pos;   /* of the ring, as far as it is known */
    unsigned armed;     /* ticks that init was asked for */
    bool caught_up;     /* all viewers had caught up when the last tick was asked for */
    bool running, has_end;
    bool drained; /* nothing more will be written */
    struct cove_end end;
    struct viewer_list viewers;
    struct viewer *writer; /* whose size the terminal has */
    bool holding;          /* init was told to keep what was not read */
    uint64_t held_pos;     /* the place up to which all have read, as init was told last */
    struct buf input;      /* on its way to the process */
    size_t asked;          /* bytes of `input` that init was sent and has not confirmed; 0: none */
    uint16_t rows, cols, rows_asked, cols_asked;
    bool resizing;
};

/* ------------------------------------------------------------------ attach.c */

/* A connection of nginx's that is to become a WebSocket on this process. Takes the relay over: it ends with
 * the socket. */
void attach(struct relay *r, const struct viewer_kind *kind, uint32_t proc,
            const struct viewer_options *options);
/* Input for the process. A viewer's socket is paused while there is no room for more. */
void attachment_input(struct attachment *a, const char *bytes, size_t len, const char *more,
                      size_t more_len);
/* A viewer has read on, or left: the process may go on, too. */
void attachment_progress(struct attachment *a);
void attachment_resize(struct attachment *a, uint16_t rows, uint16_t cols);
void attachments_check(struct gate *g); /* at every sweep: viewers that do not read */

/* ------------------------------------------------------------------ viewer.c */

struct viewer *viewer_new(struct relay *r, const struct viewer_kind *kind,
                          const struct viewer_options *options);
int viewer_greet(struct viewer *v); /* the answer to the handshake */
void viewer_free(struct viewer *v); /* by relay_close() alone */
/* Counts the bytes that the viewer has moved for its sandbox. `active`: they were a message, not just a ping. */
void viewer_account(struct viewer *v, bool active);
/* Sends what there is to send. */
void viewer_pump(struct viewer *v);
void viewer_close(struct viewer *v, unsigned code, const char *reason);
/* Members of struct websocket_user, the same for every kind. */
void viewer_room(struct websocket *ws);
void viewer_gone(struct websocket *ws);

extern const struct viewer_kind terminal_kind; /* terminal.c */
extern const struct viewer_kind lines_kind;    /* lines.c */

#endif
