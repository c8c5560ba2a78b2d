/*
 * FastCGI records of our own making, for replies that go on: libfcgi's streams block, and cut
 * everything into pieces of 8 KiB. Only the payload of stdout goes this way. The records that begin and
 * end a request are libfcgi's, whose own buffer must be empty meanwhile.
 */
#ifndef COVE_FCGI_WIRE_H
#define COVE_FCGI_WIRE_H

#include <stdbool.h>
#include <stddef.h>

struct wire {
    int fd;
    int request; /* its FastCGI id */
    unsigned char head[8];
    size_t head_left;   /* bytes of it that have not left yet */
    size_t record_left; /* likewise of the payload it announced */
};

void wire_init(struct wire *w, int fd, int request);

/*
 * Completes the record that has begun, from the bytes that would come next, without waiting. 0: no record is open
 * now; -1: it did not fit into the socket.
 */
int wire_finish_record(struct wire *w, const char *bytes, size_t len);

/*
 * Sends from `bytes`; ret_taken says how many of them have left, and the next call must begin with the others. 1:
 * all; 0: no more fits for now (never with `wait`); -1: the other side is gone, or has taken nothing for as long as
 * the socket's SO_SNDTIMEO.
 */
int wire_send(struct wire *w, const char *bytes, size_t len, bool wait, size_t *ret_taken);

#endif
