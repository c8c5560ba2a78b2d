/* Scripts of packets: what fuzz targets send over a socket in the place of another process. */
#ifndef COVE_FUZZ_PACKETS_H
#define COVE_FUZZ_PACKETS_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/msg.h"
#include "cove/ring.h"

struct script { /* the rest of the fuzzer's input */
    const uint8_t *at, *end;
};

static inline uint8_t next(struct script *s)
{
    return s->at < s->end ? *s->at++ : 0;
}

enum { WRONG_TAG = 1, WRONG_MAGIC = 2, WRONG_SIZE = 4, FDS_SHIFT = 3, KIND_SHIFT = 6 };

/* A memory file with bytes of the script in it: a ring, perhaps. */
static inline int memory_file(struct script *s)
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t left = (size_t)(s->end - s->at);

    if (write(fd, s->at, left) != (ssize_t)left || ftruncate(fd, RING_HEAD_BYTES + 65536) < 0)
        abort();
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
    return fd;
}

static inline int descriptor(unsigned kind, struct script *s)
{
    int ends[2];

    switch (kind) {
    case 0:
        return open("/dev/zero", O_RDONLY | O_CLOEXEC);
    case 1:
        if (pipe(ends) < 0)
            abort();
        close(ends[1]);
        return ends[0];
    case 2:
        return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    default:
        return memory_file(s);
    }
}

/* One packet: flags, type (one of `types` from first_type on, or a general one), length in two bytes, body. */
static inline void send_packet(int sock, uint32_t first_type, uint32_t types, struct script *s)
{
    uint8_t flags = next(s), type = next(s);
    size_t len = (size_t)next(s) << 8, count = flags >> FDS_SHIFT & 7, left;
    struct msg_head head = { MSG_MAGIC, type < 8 ? type : first_type + type % types, 0, 1 };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(8 * sizeof(int))];
    } space = { 0 };
    struct iovec iov[2] = { { &head, sizeof(head) } };
    struct msghdr mh = { .msg_iov = iov, .msg_iovlen = 2 };
    int fds[8];

    len |= next(s);
    left = (size_t)(s->end - s->at);
    len = len < left ? len : left;
    iov[1] = (struct iovec){ (void *)(uintptr_t)s->at, len };
    s->at += len;
    head.size = (uint32_t)(sizeof(head) + len + (flags & WRONG_SIZE ? 64 : 0));
    head.tag += flags & WRONG_TAG ? 7 : 0;
    head.magic ^= flags & WRONG_MAGIC ? 1 : 0;
    for (size_t i = 0; i < count; i++)
        fds[i] = descriptor((unsigned)flags >> KIND_SHIFT, s);
    if (count) {
        mh.msg_control = space.bytes;
        mh.msg_controllen = CMSG_SPACE(count * sizeof(int));
        *CMSG_FIRSTHDR(&mh) = (struct cmsghdr){ .cmsg_len = CMSG_LEN(count * sizeof(int)),
                                                .cmsg_level = SOL_SOCKET,
                                                .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&mh)), fds, count * sizeof(int));
    }
    sendmsg(sock, &mh, MSG_NOSIGNAL | MSG_DONTWAIT);
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

static inline int lowest_free(void)
{
    int fd = dup(0);

    close(fd);
    return fd;
}

#endif
