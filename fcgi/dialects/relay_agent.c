/* The agent process of a relay sandbox ("pi" in the document): how it is started, what it does, its lines on
 * a WebSocket; and the repository it works in. */
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

#include "cove/base64.h"
#include "cove/dialect.h"
#include "cove/ring.h"
#include "cove/text.h"
#include "fcgi/attach.h"
#include "fcgi/check.h"
#include "fcgi/dialects/relay.h"

#define COMMAND_NAME "PI_COMMAND"
#define WAIT_NAME    "WAIT_FOR_RESTORE"
#define START_LABEL  "start" /* the process of a template's start command */
#define RELEASED     "/run/cove-restored"
#define CLONE_LABEL  "clone"

enum {
    CLONE_MS = 10 * 60 * 1000,
    CLONE_WORDS_MAX = 2 * RING_REC_MAX, /* core_log_read() wants room for a whole record */
    CLONE_LOOK_MS = 50,
    CLONE_PIECES_MAX = 1024,
    SECRET_MAX = 1024,
    CLOSE_NO_AGENT = 4404
};

/* ------------------------------------------------------------------ what it does */

const struct json_field relay_pi_fields[] = {
    JSON_BOOL(struct relay_pi, running, "running", JSON_REQUIRED),
    JSON_INT(struct relay_pi, pid, "pid", JSON_OPTIONAL, 0, INT32_MAX),
    JSON_INT(struct relay_pi, exit_code, "exitCode", JSON_OPTIONAL, 0, 255,
             JSON_HAS(struct relay_pi, known)),
    JSON_STR(struct relay_pi, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

struct look {
    struct request *req;
    struct relay_pi *pi;
};

/* Of several processes the last one counts: an agent may have been started again. */
static int look_at(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    struct look *l = arg;
    char reason[160] = "";

    (void)command;
    if (strcmp(label, RELAY_AGENT) != 0 && strcmp(label, START_LABEL) != 0)
        return 0;
    *l->pi = (struct relay_pi){
        .running = p->running,
        .known = !p->running,
        .pid = p->pid,
        .proc = p->proc,
    };
    if (!p->running) {
        end_describe(&p->end, reason, sizeof(reason));
        l->pi->exit_code = end_exit_code(&p->end);
        l->pi->reason = *reason ? arena_strdup(&l->req->arena, reason) : NULL;
    }
    return 0;
}

int relay_agent_look(struct request *req, struct core_session *s, struct relay_pi *ret,
                     struct cove_err *e)
{
    struct look l = { .req = req, .pi = ret };

    *ret = (struct relay_pi){ 0 };
    return box_procs(&s->conn, look_at, &l, e);
}

/* ------------------------------------------------------------------ starting it */

static const char *value_of(const struct json_map *env, const char *name)
{
    for (size_t i = 0; i < env->count; i++)
        if (strcmp(env->items[i].name, name) == 0)
            return env->items[i].value;
    return NULL;
}

const char *relay_agent_command(const struct json_map *env)
{
    const char *command = value_of(env, COMMAND_NAME);

    return command && *command ? command : NULL;
}

static bool waits(const struct json_map *env)
{
    const char *word = value_of(env, WAIT_NAME);

    return word && strcmp(word, "true") == 0;
}

/* An agent that waits for /restore is a process from the start, so that lines sent to it meanwhile are
 * kept: the shell looks for the mark five times a second, until relay_restore_wait is over. */
static const char *waiting(struct request *req)
{
    return arena_printf(&req->arena,
                        "i=0; while [ ! -e " RELEASED " ] && [ $i -lt %llu ]; "
                        "do sleep 0.2; i=$((i+1)); done; exec sh -c \"$" COMMAND_NAME "\"",
                        (unsigned long long)req->core->config->relay_restore_wait_ms / 200);
}

/* Removes the record of an agent that has ended, because the next agent needs its label. */
static int forget_old(struct core_session *s, struct cove_err *e)
{
    struct core_proc old;

    if (core_proc_find(s, RELAY_AGENT, &old, e) < 0)
        return e->code == COVE_NOT_FOUND || e->code == COVE_INVALID ? 0 : -1;
    return core_proc_forget(s, &old, e);
}

static int spawn(struct request *req, struct core_session *s, const struct json_map *env,
                 const char *command, const struct policy_filter *filter, struct cove_err *e)
{
    const char *const argv[] = { "/bin/sh", "-c", waits(env) ? waiting(req) : command, NULL };
    struct core_spawn args = {
        .argv = argv,
        .cwd = "/workspace",
        .label = RELAY_AGENT,
        .filter = filter,
        .dialect = DIALECT_RELAY,
        .keep_stdin = true,
    };
    struct box_spawned spawned;

    if (check_env(&req->arena, env, &args.env, e) < 0 || forget_old(s, e) < 0)
        return -1;
    return core_spawn(s, &args, &spawned, e);
}

int relay_agent_start(struct request *req, struct core_session *s, const struct json_map *env,
                      struct cove_err *e)
{
    const char *command = relay_agent_command(env);
    struct core_permit permit;
    struct relay_pi pi;
    int rc;

    if (!command)
        return 0;
    if (relay_agent_look(req, s, &pi, e) < 0 ||
        core_permit_one(req->core, DIALECT_RELAY, req->tenant, s->box.id, command, &permit, e) < 0)
        return -1;
    if (permit.forbidden)
        rc = cove_fail(e, COVE_FORBIDDEN, "envVars.%s: refused by the rule %s: %s", COMMAND_NAME,
                       permit.verdict.rule, permit.verdict.reason);
    else
        rc = pi.running ? 0 : spawn(req, s, env, command, &permit.filter, e);
    core_permit_put(&permit);
    return rc;
}

int relay_agent_release(struct core_session *s, struct cove_err *e)
{
    struct core_file mark;
    int rc;

    if (core_file_create(s, core_default_user(s), RELEASED, true, &mark, e) < 0)
        return -1;
    rc = core_file_commit(&mark, e);
    core_file_done(&mark);
    return rc;
}

/* ------------------------------------------------------------------ its lines */

static int attach_agent(struct request *req, struct reply *rep, const struct relay_pi *pi,
                        const char *id, struct cove_err *e)
{
    const char *from = request_query(req, "from"), *numbered = request_query(req, "numbered");
    struct attach_target target = {
        .kind = "lines",
        .id = id,
        .proc = pi->proc,
        .numbered = numbered && strcmp(numbered, "1") == 0,
        .has_from = from,
    };

    if (!pi->proc)
        return attach_close(req, rep, CLOSE_NO_AGENT,
                            "this sandbox has no agent: give " COMMAND_NAME " in envVars");
    if (from && text_parse_u64(from, &target.from, e) < 0)
        return cove_context(e, "from");
    return attach_to(req, rep, &target);
}

/* Starts an agent that has ended again, if the operator's configuration says so, when the next client connects.
 * Clients were told of its end by the closing of their connections. It runs again with the environment that the
 * sandbox still has. */
static int start_again(struct request *req, struct core_session *s, struct relay_pi *pi,
                       struct cove_err *e)
{
    struct core_attributes attributes;

    if (pi->running || !req->core->config->relay_restart)
        return 0;
    core_attributes_read(req->core, &req->arena, s->box.id, &attributes);
    if (relay_agent_start(req, s, &attributes.env, e) < 0)
        return -1;
    return relay_agent_look(req, s, pi, e);
}

int relay_socket(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    struct relay_pi pi;
    int rc;

    req->note.operation = "socket";
    if (attach_check(req, e) < 0 || relay_open(req, &session, e) < 0)
        return -1;
    rc = relay_agent_look(req, &session, &pi, e);
    if (rc == 0)
        rc = start_again(req, &session, &pi, e);
    core_session_close(&session);
    return rc < 0 ? -1 : attach_agent(req, rep, &pi, arena_strdup(&req->arena, session.box.id), e);
}

/* ------------------------------------------------------------------ its repository */

/* "https://name:password@host/path": where the part behind the '@' begins; NULL: there is no secret. */
static const char *behind_secret(const char *url)
{
    const char *host = strstr(url, "://") + 3;
    size_t len = strcspn(host, "/?#");
    const char *at = memrchr(host, '@', len);

    return at ? at + 1 : NULL;
}

const char *relay_url_without_secret(struct request *req, const char *url)
{
    const char *host = strstr(url, "://") + 3, *behind = behind_secret(url);

    return behind ? arena_printf(&req->arena, "%.*s%s", (int)(host - url), url, behind) : url;
}

/* git gets the secret as a header for this one command, by its environment: so the secret is in no list of
 * processes and not in .git/config. */
static const char *secret_header(struct request *req, const char *url, struct cove_err *e)
{
    const char *host = strstr(url, "://") + 3, *behind = behind_secret(url);
    char *text, *encoded;

    if (!behind)
        return "";
    text = http_decode(&req->arena, host, (size_t)(behind - 1 - host), 0);
    if (!text || strlen(text) > SECRET_MAX) {
        cove_fail(e, COVE_INVALID, "repoUrl: the name and password are not readable");
        return NULL;
    }
    encoded = arena_alloc(&req->arena, BASE64_LEN(strlen(text)) + 1);
    base64_encode((unsigned char *)text, strlen(text), encoded);
    return arena_printf(&req->arena, "Authorization: Basic %s", encoded);
}

/* git's last line says what was wrong; it names the address that git was given, without the secret. */
static const char *last_line(struct core_session *s, struct buf *words)
{
    AUTO_BUF struct buf text = BUF(CLONE_WORDS_MAX);
    struct core_log_piece piece = { .text = &text, .more = true };
    char *line;

    for (int pieces = 0; piece.more && pieces < CLONE_PIECES_MAX; pieces++) {
        buf_clear(&text);
        if (core_log_read(s, CLONE_LABEL, piece.next, &piece, NULL) < 0)
            break;
        if (words->len + text.len > CLONE_WORDS_MAX)
            buf_clear(words); /* only the end is wanted */
        buf_add(words, text.data, text.len);
    }
    if (!words->len)
        return "git said nothing";
    while (words->len > 0 && strchr("\r\n", words->data[words->len - 1]))
        words->data[--words->len] = '\0';
    line = strrchr(words->data, '\n');
    return line ? line + 1 : words->data;
}

/* Waits as long as the client does. Init ends git at its time limit. */
static int await_clone(struct request *req, struct core_session *s, struct core_proc *ret,
                       struct cove_err *e)
{
    const atomic_bool *leaving = req->core->leaving;

    for (;;) {
        if (core_proc_find(s, CLONE_LABEL, ret, e) < 0)
            return -1;
        if (!ret->running)
            return 0;
        if (core_client_has_left(req->client_fd))
            return cove_fail(e, COVE_GONE, "the client has left");
        if (leaving && atomic_load(leaving))
            return cove_fail(e, COVE_BUSY, "the server is being restarted, try again");
        poll(NULL, 0, CLONE_LOOK_MS);
    }
}

/* A process with a name, so that what git says is in the sandbox's log, as it comes. */
static int run_clone(struct request *req, struct core_session *s, const char *const *argv,
                     const char *const *env, const struct policy_filter *filter, struct cove_err *e)
{
    AUTO_BUF struct buf words = BUF(CLONE_WORDS_MAX);
    struct core_spawn args = {
        .argv = argv,
        .env = env,
        .cwd = "/workspace",
        .label = CLONE_LABEL,
        .filter = filter,
        .dialect = DIALECT_RELAY,
        .timeout_ms = CLONE_MS,
    };
    struct box_spawned spawned;
    struct core_proc git;

    if (core_spawn(s, &args, &spawned, e) < 0 || await_clone(req, s, &git, e) < 0)
        return -1;
    if (git.end.cause == END_OWN && end_exit_code(&git.end) == 0)
        return 0;
    return cove_fail(e, COVE_INVALID, "repoUrl: git clone failed: %.160s", last_line(s, &words));
}

int relay_clone(struct request *req, struct core_session *s, const char *url, const char *branch,
                struct cove_err *e)
{
    const char *plain = relay_url_without_secret(req, url), *header = secret_header(req, url, e);
    const char *const argv[] = {
        "git", "clone", "--progress", "--config", "advice.detachedHead=false", "--branch", branch,
        "--",  plain,   ".",          NULL
    };
    const char *const argv_default[] = { "git", "clone", "--progress", "--", plain, ".", NULL };
    const char *const env[] = {
        "GIT_TERMINAL_PROMPT=0",
        "GIT_CONFIG_COUNT=1",
        "GIT_CONFIG_KEY_0=http.extraHeader",
        header ? arena_printf(&req->arena, "GIT_CONFIG_VALUE_0=%s", header) : NULL,
        NULL,
    };
    const char *command = arena_printf(&req->arena, "git clone %s", plain);
    struct core_permit permit;
    int rc;

    if (!header ||
        core_permit_one(req->core, DIALECT_RELAY, req->tenant, s->box.id, command, &permit, e) < 0)
        return -1;
    if (permit.forbidden)
        rc = cove_fail(e, COVE_FORBIDDEN, "repoUrl: refused by the rule %s: %s",
                       permit.verdict.rule, permit.verdict.reason);
    else
        rc = run_clone(req, s, branch ? argv : argv_default, env, &permit.filter, e);
    core_permit_put(&permit);
    return rc;
}
