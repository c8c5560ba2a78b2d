/* cove doctor: a table of checks. Each check says what it found and, if something is wrong, how to mend
 * it. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "cli/cli.h"

enum finding { FOUND_OK, FOUND_WARNING, FOUND_BROKEN };

struct diagnosis {
    enum finding finding;
    char what[256]; /* what was found */
    char fix[256];  /* what to do about it; "" when all is well */
};

struct patient { /* what the checks look at */
    struct cove_config config;
    bool config_ok;
    struct cove_err config_err;
};

struct doctor_check {
    const char *name;
    void (*look)(const struct patient *p, struct diagnosis *d);
};

/* Each table ends with a NULL name. */
extern const struct doctor_check host_checks[], server_checks[], file_checks[], front_checks[],
    probe_checks[], network_checks[];

void found(struct diagnosis *d, enum finding f, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void fix(struct diagnosis *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
