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
    int in, out; /* its descriptors 0 and 1; -1: nothing */
    const struct bucket_order *order;
    int credentials;
    int ca;           /* store_ca; counts only if the order's place.has_ca says so */
    const int *notes; /* as many as the order says */
};

bool bucket_is_configured(const struct cove_config *c);
/* Where the bucket is, by the configuration; and a name of this machine, made at the first time. */
int bucket_fill_order(const struct cove_config *c, int state_dir, struct bucket_order *o,
                      struct cove_err *e);
/* store_credentials, or what stands in the environment, as a file in memory. */
int bucket_open_credentials(const struct cove_config *c, int *ret, struct cove_err *e);
/* store_ca, which the workers' user need not be able to read; -1: none is configured. */
int bucket_open_ca(const struct cove_config *c, int *ret, struct cove_err *e);
/* Never waits. */
int bucket_start(const struct bucket_args *args, struct boxed *ret, struct cove_err *e);
/* What it said before it ended; never waits either. */
int bucket_hear(int sock, struct bucket_report *ret, struct cove_err *e);

#endif
