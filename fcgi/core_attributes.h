/*
 * Attributes: what a dialect keeps with a sandbox from its creation on. The keeper stores them, unread, in
 * <run_dir>/attributes/ID, and workers read them there. They are JSON, so that people can look at them.
 * Values of `env` may be secrets: they go to no log and no listing, and stand behind a NUL, where the
 * keeper leaves them out when it saves the sandbox.
 */
#ifndef COVE_FCGI_CORE_ATTRIBUTES_H
#define COVE_FCGI_CORE_ATTRIBUTES_H

#include "cove/json.h"
#include "fcgi/core.h"

struct core_attributes {
    struct json_map metadata;
    struct json_map env; /* of every process */
    /* everybody who knows the sandbox's id may use it without a token */
    bool open;
    bool auto_pause;               /* the sandbox is paused, not killed, at the end of its time */
    bool auto_resume;              /* a request to the paused sandbox wakes it */
    const char *template_asked;    /* the name by which a template was asked for; NULL = its own */
    bool internet_given, internet; /* allow_internet_access, as asked for at creation */
    /* addresses that the sandbox may reach, as the client wrote them */
    struct json_strings allow_out, deny_out;
    bool private_ports; /* the sandbox's ports need a token, whatever the dialect's default is */
};

/* Writes the attributes as text of at most COVE_ATTRIBUTES_MAX bytes. */
int core_attributes_write(const struct core_attributes *from, struct buf *out, struct cove_err *e);
/* A sandbox without attributes (made by another dialect) is not open and has no metadata. What is read lives in
 * the arena. */
void core_attributes_read(struct core *c, struct arena *a, const char *id,
                          struct core_attributes *ret);

#endif
