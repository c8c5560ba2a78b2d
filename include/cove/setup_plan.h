/*
 * What the set-up of a sandbox is told: the contract between sandbox/box/build.c, in the keeper, and
 * sandbox/setup/, the first part of cove-init's life inside the new namespaces.
 *
 * With SETUP_ENV in its environment cove-init begins with the set-up. It finds the descriptors of
 * init_fds.h and, at SETUP_FD_KEEPER, a socket. On it the set-up says, with an empty MSG_DONE, that its network
 * namespace is there, and the keeper sends three messages: a struct setup_plan once the ids are mapped, a struct
 * setup_layers once the sandbox's files are made, and the requests for the sandbox's end of its link once that is there.
 */
#ifndef COVE_SETUP_PLAN_H
#define COVE_SETUP_PLAN_H

#include <stdint.h>

#include "cove/init_fds.h"

#define SETUP_ENV "COVE_SETUP"

enum {
    SETUP_FD_KEEPER = INIT_FD_END,
    SETUP_REQUESTS_MAX = 1024, /* bytes of rtnetlink requests; there are 300 */
};

/* A set-up begins in an empty mount namespace (sandbox/box/empty_ns.c), which has a /proc, an empty /dev and this directory. */
#define SETUP_LAYERS "/layers"

/* Where sandboxes with a network ask for names: an address of their own loopback interface. */
#define RESOLVER_ADDRESS "127.0.0.53"

/* The keeper's first message. Its descriptor is a detached mount: the sandbox's /dev. */
struct setup_plan {
    uint32_t slot; /* decides which cpus the sandbox gets */
    uint32_t cpus; /* how many it sees and runs on; 0 = all */
};

/* Its second message. Its descriptors are detached mounts: the sandbox's files, the layers of its root and the layers of
 * its /usr. */
struct setup_layers {
    uint32_t root_count, usr_count;
    uint64_t disk_bytes; /* its limit, where statfs() does not show it; else 0 */
};

/* Its third message: no descriptors, and as its body whole rtnetlink requests, one behind another, which name
 * the interfaces by their numbers in the new namespace. Only the last request wants an answer, so
 * the kernel's first answer is either its acknowledgement or the first failure. No body: no network. */

#endif
