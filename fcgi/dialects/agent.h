/* The agent dialect between its files: agent.c has the routes, the others a chapter of the document
 * each. */
#ifndef COVE_FCGI_AGENT_H
#define COVE_FCGI_AGENT_H

#include "cove/json.h"
#include "fcgi/core_sandboxes.h"
#include "fcgi/reply.h"

#define AGENT_NAME_PREFIX "sandbox-" /* what this dialect puts in front of a sandbox's id */

enum { AGENT_NAME_MAX = 160 }; /* of a sandbox: its id in any form, or a project's name */

typedef int agent_handler(struct request *req, struct reply *rep, struct cove_err *e);

/* {"code":200,"data":{...}}. Returns 0, so that it can be a handler's last statement. */
int agent_reply(struct reply *rep, const struct json_field *fields, const void *from);
/* The same with {"success":true,"message":"..."} as data. */
int agent_reply_done(struct reply *rep, const char *message);

struct agent_head { /* members beside "data" */
    int64_t code;
    const char *error, *message; /* NULL: it is no error */
    const char *rule, *reason;   /* of a refusal by the policy */
};
/* Sets the status, too. Without `fields` there is no "data". */
void agent_reply_with(struct reply *rep, int status, struct agent_head head,
                      const struct json_field *fields, const void *data);
/* {"code":404,"error":"FileNotFoundError","message":"..."} */
void agent_reply_error(struct reply *rep, int status, const char *name, const char *message);
/* Answers an error about a missing path by the document's own name for it; other errors are returned as they are. */
int agent_fail_file(struct request *req, struct reply *rep, struct cove_err *e);

/* Finds the sandbox of that name: its id in any dialect's form, or a project's name. No sandbox is made. */
int agent_find(struct request *req, const char *name, struct box_info *ret, struct cove_err *e);
/* Opens a conversation with the sandbox. A paused sandbox runs again. */
int agent_open(struct request *req, const char *name, struct core_session *ret, struct cove_err *e);
const char *agent_name(struct request *req, const char *id); /* sandbox-ID */

agent_handler agent_create, agent_connect, agent_status, agent_info, agent_urls, agent_pause,
    agent_delete, agent_list, agent_schedule_timeout;                    /* agent_sandboxes.c */
agent_handler agent_run_cmd;                                             /* agent_run.c */
agent_handler agent_process_logs, agent_processes, agent_kill_process;   /* agent_procs.c */
agent_handler agent_write_file, agent_read_file, agent_create_directory; /* agent_files.c */
agent_handler agent_upload_file;                                         /* agent_upload.c */
agent_handler agent_upload_from_url, agent_download_to_url;              /* agent_fetch.c */
agent_handler agent_expose_port, agent_unexpose_port;                    /* agent_ports.c */

#endif
