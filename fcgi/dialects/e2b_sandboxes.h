/* Sandboxes as the control plane tells of them: e2b_sandboxes.c and e2b_list.c. */
#ifndef COVE_FCGI_E2B_SANDBOXES_H
#define COVE_FCGI_E2B_SANDBOXES_H

#include "fcgi/core_sandboxes.h"
#include "fcgi/dialects/e2b.h"

struct e2b_lifecycle {
    const char *on_timeout;
    bool auto_resume;
};

struct e2b_sandbox {
    const char *id, *template, *client, *alias, *envd_version, *token, *domain, *state;
    uint64_t started, ends;
    int64_t cpus, memory_mb, disk_mb;
    struct json_map metadata;
    bool internet, internet_given;
    struct e2b_lifecycle *lifecycle;
};

void e2b_describe(struct request *req, const struct box_info *box, struct e2b_sandbox *ret);
extern const struct json_field e2b_listed_fields[];

#endif
