/*
 * Log rings: the output of a process, kept by the sandbox's init in a memfd, read by workers with
 * pread().
 *
 * The file is a head page and a data area of `capacity` bytes. The data is a stream of records,
 * each a struct ring_rec and its bytes; the stream's positions count from the start of the process
 * and never go back, position P lives at data[P % capacity]. The writer moves `start` past what it
 * is about to overwrite, writes, then moves `end`. A reader reads the head, the data, the head
 * again: what is below the second `start` was overwritten meanwhile and is a gap. Readers treat all
 * of it as hostile bytes: init runs inside the sandbox.
 */
#ifndef COVE_RING_H
#define COVE_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "cove/err.h"

#define RING_MAGIC 0x324e4952u /* "RIN2": raise the digit when a layout below changes */

enum { RING_HEAD_BYTES = 4096, RING_REC_MAX = 64 * 1024 };

enum ring_stream { RING_STDOUT = 1, RING_STDERR = 2 };

struct ring_head {
    uint32_t magic;
    uint32_t reserved;
    uint64_t capacity;
    _Atomic uint64_t start; /* position of the oldest whole record */
    _Atomic uint64_t end;   /* position after the newest one */
};

struct ring_rec {
    uint32_t len;     /* bytes that follow, then padding to 8 */
    uint32_t stream;  /* enum ring_stream */
    uint64_t unix_ns; /* when it was captured */
    uint64_t offset;  /* of its first byte in that stream, counted from the start of the process */
    uint64_t lines;   /* line feeds in that stream before this record */
};

/* --- writer, in init --- */
struct ring {
    int fd;
    struct ring_head *head; /* NULL after ring_settle() */
    uint64_t capacity, end; /* the head's values at ring_settle() */
    char *data;
    uint64_t offsets[3]; /* by enum ring_stream */
    uint64_t lines[3];   /* likewise */
};

int ring_create(uint64_t capacity, struct ring *ret, struct cove_err *e);
void ring_append(struct ring *r, enum ring_stream stream, uint64_t unix_ns, const void *bytes,
                 uint32_t len);
/* Nothing more is written: unmaps the ring, which stays for readers. */
void ring_settle(struct ring *r);
uint64_t ring_end(const struct ring *r); /* the position after the newest record */
void ring_done(struct ring *r);

/* --- reader, anywhere --- */
struct ring_reader {
    int fd; /* not owned */
    uint64_t capacity;
    uint64_t pos; /* of the next record */
};

/* Checks the fd: a regular memory file with a sane head. pos 0 is the start of the process. */
int ring_reader_init(struct ring_reader *r, int fd, uint64_t pos, struct cove_err *e);
/* Move on to the end: only what is written from now on will be read. */
int ring_reader_skip(struct ring_reader *r, struct cove_err *e);

/*
 * The next record: 1 and the record with its bytes in buf (RING_REC_MAX of it); 0 when there is
 * none yet; -1 when the ring makes no sense (COVE_INVALID). *ret_gap tells how many positions were
 * lost before it; after a gap, pos stands on the oldest whole record.
 */
int ring_read(struct ring_reader *r, struct ring_rec *ret, void *buf, uint64_t *ret_gap,
              struct cove_err *e);

#endif
