/* Sandboxes as the control plane tells of them: e2b_sandboxes.c and e2b_list.c. */
#ifndef COVE_FCGI_E2B_SANDBOXES_H
#define COVE_FCGI_E2B_SANDBOXES_H

#include "fcgi/core_sandboxes.h"
#include "fcgi/dialects/e2b.h"

struct e2b_lifecycle {
    const char *on_timeout;
    bool auto_resume;
};

struct e2b_proxy {
    const char *address;
};

struct e2b_network { /* network settings, as in requests and in replies */
    struct json_strings allow_out, deny_out;
    bool public_traffic, public_given;
    const char *mask_host;
    struct e2b_proxy *proxy;
    bool internet, internet_given; /* only PUT .../network has these */
};

/* Fails with COVE_UNSUPPORTED if the body has a value in `parent`.`name` (parent "": at the top). */
int e2b_refuse_unbuilt(struct request *req, const char *parent, const char *name,
                       struct cove_err *e);

struct e2b_sandbox {
    const char *id, *template, *client, *alias, *envd_version, *token, *domain, *state;
    const char *traffic_token;
    struct e2b_network *network;
    uint64_t started, ends;
    int64_t cpus, memory_mb, disk_mb;
    struct json_map metadata;
    bool internet, internet_given;
    struct e2b_lifecycle *lifecycle;
};

const char *e2b_template_of(struct request *req, const struct box_info *box,
                            const struct core_attributes *attributes);
void e2b_describe(struct request *req, const struct box_info *box, struct e2b_sandbox *ret);
extern const struct json_field e2b_listed_fields[];
/* Finds the sandbox that {id} names. Another tenant's is COVE_NOT_FOUND, too. */
int e2b_find(struct request *req, const char *operation, struct box_info *ret, struct cove_err *e);

int e2b_check_timeout(int64_t seconds, struct cove_err *e);
/* The reply to a request that makes a sandbox. */
int e2b_reply_sandbox(struct request *req, struct reply *rep, int status,
                      const struct box_info *box);
/* Writes the same object as a member called `name` of a larger one. */
void e2b_put_sandbox(struct json_writer *w, struct request *req, const struct box_info *box,
                     const char *name);
/* The keeper's word for what a client calls a template: without the tag `default`, which means nothing. */
const char *e2b_template_word(struct request *req, const char *given);

/* ------------------------------------------------------------------ e2b_network.c */

extern const struct json_field e2b_network_fields[];
/* Puts the network settings of a request into the sandbox's attributes; `from` may be NULL. */
int e2b_network_take(const struct e2b_network *from, struct core_attributes *to,
                     struct cove_err *e);
/* Turns the stored settings into rules. *ret_any: there is something to set. COVE_INVALID names the word
 * that is wrong. */
int e2b_network_rules(const struct core_attributes *from, struct net_rules *ret, bool *ret_any,
                      struct cove_err *e);
/* The stored settings as replies show them; NULL if the client never gave any. */
struct e2b_network *e2b_network_told(struct arena *a, const struct core_attributes *from);

#endif
