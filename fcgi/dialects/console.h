/* The console dialect between its files: console.c has routes and sessions, the others a
 * chapter of docs/api/console.yaml each. */
#ifndef COVE_FCGI_CONSOLE_H
#define COVE_FCGI_CONSOLE_H

#include "cove/json.h"
#include "fcgi/core_sandboxes.h"
#include "fcgi/http.h"
#include "fcgi/reply.h"

typedef int console_handler(struct request *req, struct reply *rep, struct cove_err *e);

console_handler console_sandboxes, console_sandbox, console_create; /* console_sandboxes.c */
console_handler console_kill, console_pause, console_resume, console_extend;
console_handler console_events;                                    /* console_events.c */
console_handler console_usage;                                     /* console_usage.c */
console_handler console_builds, console_build_log;                 /* console_builds.c */
console_handler console_commands;                                  /* console_commands.c */
console_handler console_files, console_get_file, console_put_file; /* console_files.c */
console_handler console_remove_file, console_make_dir, console_rename, console_archive;
console_handler console_processes, console_follow_processes, console_start,
    console_kill_process; /* console_processes.c */
console_handler console_log;
console_handler console_ports, console_port_access, console_port_link; /* console_ports.c */
console_handler console_policy_test;                                   /* console_policy.c */
console_handler console_snapshots, console_snapshot_make;              /* console_snapshots.c */
console_handler console_snapshot_remove, console_saved, console_fork, console_refusals;
console_handler console_operator_nonce, console_operator_run; /* console_operator.c */
console_handler console_operator_builds;

/* A sandbox as the console shows it, in lists, replies and events. */
struct console_box {
    const char *id, *project, *template, *state, *dialect;
    uint64_t created_unix_ms, ends_unix_ms;
};
extern const struct json_field console_box_fields[];
struct console_box console_box_of(const struct box_info *box);

/* Finds the sandbox that the path names ({id}); opens a conversation with it. */
int console_find(struct request *req, struct box_info *ret, struct cove_err *e);
int console_open(struct request *req, struct core_session *ret, struct cove_err *e);
/* The parameter `path` of the query: given, not empty, not too long. */
int console_path(struct request *req, const char **ret, struct cove_err *e);

/* Run `verb` on the sandbox of the request if the policy lets the command pass; a refusal becomes
 * COVE_FORBIDDEN with the rule and its reason. */
struct policy_filter;
typedef int console_verb(struct request *req, struct reply *rep, const char *command,
                         const struct policy_filter *filter, struct cove_err *e);
int console_with_permit(struct request *req, struct reply *rep, const char *command,
                        console_verb *verb, struct cove_err *e);

/* Waits one second of a stream that tells what changes. False: the client has left or this worker stops; a browser
 * comes back by itself. */
struct stream;
bool console_wait(struct stream *s, struct request *req);
/* The key and the session that a stream began with still hold. */
bool console_stands(const struct request *req);

int console_reply_box(struct reply *rep, const struct box_info *box); /* returns 0 */
/* {"ok":true}; returns 0. */
int console_reply_ok(struct reply *rep);

#endif
