/* cove-bucket, the program that talks to the bucket: started by the keeper and by `cove store`. */
#ifndef COVE_BOX_BUCKET_START_H
#define COVE_BOX_BUCKET_START_H

#include <stdbool.h>

#include "cove/bucket.h"
#include "cove/config.h"
#include "sandbox/box/boxed.h"

struct bucket_args {
    int exe;
    uid_t uid; /* the workers' */
    gid_t gid;
    int in, out; /* the process's descriptors 0 and 1; -1: none */
    const struct bucket_order *order;
    int credentials;
    int ca;           /* store_ca; counts only if the order's place.has_ca says so */
    const int *notes; /* as many as the order says */
};

bool bucket_is_configured(const struct cove_config *c);
/* Fills in where the bucket is, from the configuration, and this machine's name, which is made at first use. */
int bucket_fill_order(const struct cove_config *c, int state_dir, struct bucket_order *o,
                      struct cove_err *e);
/* Opens a file in memory with store_credentials, or with the credentials of the environment. */
int bucket_open_credentials(const struct cove_config *c, int *ret, struct cove_err *e);
/* Opens store_ca, which the workers' user need not be able to read; -1: none is configured. */
int bucket_open_ca(const struct cove_config *c, int *ret, struct cove_err *e);
/* Never waits. */
int bucket_start(const struct bucket_args *args, struct boxed *ret, struct cove_err *e);
/* Reads the report or error that cove-bucket sent before it ended; never waits either. */
int bucket_hear(int sock, struct bucket_report *ret, struct cove_err *e);

#endif
