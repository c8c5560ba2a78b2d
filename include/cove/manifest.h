/*
 * What a template says about running its sandboxes, in the flat form that `cove template` writes as
 * templates/NAME/run, that the keeper publishes as one file for all templates, and that workers and
 * helpers read. A line each, the key first; in a value "\n" stands for a line's end and "\\" for a
 * backslash. Nothing here is JSON: the keeper reads none.
 *
 *   template NAME             begins a template; only in the published file
 *   user NAME                 who runs commands where a client names nobody
 *   workdir PATH              where they run
 *   env KEY=VALUE             for every command; overrides cove.conf's, is overridden by a client's
 *   start COMMAND             is started before a sandbox is handed out, and goes on running
 *   ready COMMAND             a sandbox is handed out once this has ended with 0
 *   ready_timeout_ms N
 *   service PORT WHEN COMMAND WHEN: `creation` or `first-use`
 *   settings LINE             limits and network, as a line of templates_file has them
 *   policy NAME               the name that sections [template=NAME] of the policy go by
 *   seccomp PROFILE           instead of the one that the policy names
 *   tenants A,B               nobody else sees this template
 *   shell sh                  the image has no bash
 *   cpus N                    limit of cpus, and
 *   memory_bytes N            limit of memory: of templates that tenants have built; they only lower others
 *   version N                 only in the published file: another number when it was made anew
 *   made_unix_ms N            only in the published file: when that was
 */
#ifndef COVE_MANIFEST_H
#define COVE_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cove/buf.h"
#include "cove/err.h"
#include "cove/names.h"

enum {
    MANIFEST_TEXT_MAX = 64 * 1024, /* of one template */
    MANIFEST_ENV_MAX = 128,
    MANIFEST_SERVICES_MAX = 16,
    MANIFEST_COMMAND_MAX = 8192,
    MANIFEST_READY_MS = 30000, /* ready_timeout_ms where the manifest has none */
    MANIFEST_READY_MAX_MS = 300000,
};

#define MANIFEST_START   "start" /* labels of the processes that a template starts */
#define MANIFEST_SERVICE "service-%u"

struct manifest_service {
    uint16_t port;
    bool on_first_use;
    const char *command;
};

struct manifest { /* strings point into `text`; NULL = it says nothing */
    char name[COVE_TEMPLATE_MAX];
    const char *user, *workdir, *start, *ready, *settings, *policy, *seccomp, *tenants;
    uint64_t ready_timeout_ms;
    uint64_t cpus, memory_bytes;           /* 0 = no limit of its own */
    const char *env[MANIFEST_ENV_MAX + 1]; /* "K=V", NULL-terminated */
    struct manifest_service services[MANIFEST_SERVICES_MAX];
    size_t env_count, service_count;
    bool no_bash;
    uint64_t version; /* of the files that the keeper read it from */
    uint64_t made_unix_ms;
    char *damaged; /* why the template cannot be used, for the keeper; NULL = it can */
    char *text;
};

struct manifests { /* in the order of the text */
    struct manifest **items;
    size_t count;
};

/* One template's lines, without `template`. The message names the key that is wrong. */
int manifest_parse(const char *name, const char *text, struct manifest **ret, struct cove_err *e);
void manifest_free(struct manifest *m);
/* The lines of one template: what manifest_parse() reads. */
void manifest_format(const struct manifest *m, struct buf *out);

/* The published file. */
int manifests_parse(const char *text, struct manifests *ret, struct cove_err *e);
void manifests_done(struct manifests *all);
int manifests_add(struct manifests *all, struct manifest *m); /* takes it; -1: out of memory */
const struct manifest *manifests_find(const struct manifests *all, const char *name);

/*
 * The template that a tenant means by a name: "default" is `base`; for a name without a slash the tenant's own
 * template TENANT/NAME is looked for first, then the operator's NAME. NULL: there is none, or it belongs to
 * somebody else.
 */
const struct manifest *manifests_resolve(const struct manifests *all, const char *tenant,
                                         const char *name);

/* Does it start anything before a sandbox is handed out? */
bool manifest_has_start(const struct manifest *m);
const struct manifest_service *manifest_service_at(const struct manifest *m, unsigned port);

/* A name has 1 to 63 lower-case letters, digits, '.', '_', '-' and begins with a letter or digit. The name of a
 * tenant and a slash may precede it. */
bool manifest_is_name(const char *name);

#endif
