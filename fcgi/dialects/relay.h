/* The relay dialect between its files: relay.c has the lifecycle, relay_agent.c the agent process,
 * relay_bridge.c what the bridge of the document answers. */
#ifndef COVE_FCGI_RELAY_H
#define COVE_FCGI_RELAY_H

#include "cove/json.h"
#include "cove/which.h"
#include "fcgi/core_sandboxes.h"
#include "fcgi/http.h"
#include "fcgi/reply.h"

enum { RELAY_BRIDGE_PORT = 4000 };

typedef int relay_handler(struct request *req, struct reply *rep, struct cove_err *e);

/* A conversation with it, if it runs; COVE_CONFLICT when it is paused. */
int relay_open(struct request *req, struct core_session *ret, struct cove_err *e);

/* ------------------------------------------------------------------ the agent process */

#define RELAY_AGENT "pi" /* its label among the sandbox's processes */

struct relay_pi {
    bool running;
    /* there is an agent, or there was one; then pid is set, and exit_code if it does not run */
    bool known;
    int64_t pid, exit_code;
    uint32_t proc; /* init's number for it */
    const char *reason;
};

extern const struct json_field relay_pi_fields[];

/* Reads the state of the agent. COVE_GONE: the sandbox has ended. It is no failure if there is no agent. */
int relay_agent_look(struct request *req, struct core_session *s, struct relay_pi *ret,
                     struct cove_err *e);
/* The agent's command, from the environment variables of the sandbox; NULL = it has none. */
const char *relay_agent_command(const struct json_map *env);
/* Starts the agent, unless it runs. If there is no command for it, there is no agent, which is no failure. */
int relay_agent_start(struct request *req, struct core_session *s, const struct json_map *env,
                      struct cove_err *e);
/* Lets an agent go on that was started with WAIT_FOR_RESTORE. It waits for relay_restore_wait at most. */
int relay_agent_release(struct core_session *s, struct cove_err *e);
/* Clones the repository into /workspace, before the agent starts. */
int relay_clone(struct request *req, struct core_session *s, const char *url, const char *branch,
                struct cove_err *e);
/* The address without the name and password that may stand in it, in the arena. */
const char *relay_url_without_secret(struct request *req, const char *url);

relay_handler relay_socket;                             /* relay_agent.c */
relay_handler relay_health, relay_exec, relay_start_pi; /* relay_bridge.c */
relay_handler relay_backup, relay_restore;

#endif
