/* What the document's bridge answers, on port 4000 of the sandbox's name or below /api/sandboxes/ID/bridge: the
 * agent's state, a shell command, and the files of /workspace and /data/agent as one archive. */

#include "cove/dialect.h"
#include "fcgi/check.h"
#include "fcgi/dialects/relay.h"
#include "fcgi/transfer.h"
#include "process/policy_live.h"

enum { ERROR_MAX = 64 * 1024 };

#define SPOOL "/tmp/.cove-restore.tar"
#define STAGE "/workspace/.cove-restore" /* on the file system that the files go to */

/* ------------------------------------------------------------------ /health */

struct health {
    const char *status;
    struct relay_pi *pi;
};

static const struct json_field health_fields[] = {
    JSON_STR(struct health, status, "status", JSON_REQUIRED, JSON_ANY),
    JSON_OBJECT(struct health, pi, "pi", JSON_REQUIRED, relay_pi_fields),
    JSON_END,
};

static int reply_health(struct request *req, struct reply *rep, struct core_session *s,
                        struct cove_err *e)
{
    struct relay_pi pi;

    if (relay_agent_look(req, s, &pi, e) < 0)
        return -1;
    reply_json(rep, health_fields, &(struct health){ "ok", &pi });
    return 0;
}

int relay_health(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_session session;
    int rc;

    req->note.operation = "health";
    if (relay_open(req, &session, e) < 0)
        return -1;
    rc = reply_health(req, rep, &session, e);
    core_session_close(&session);
    return rc;
}

/* ------------------------------------------------------------------ /start-pi */

int relay_start_pi(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct core_attributes attributes;
    struct core_session session;
    int rc;

    req->note.operation = "start-pi";
    if (relay_open(req, &session, e) < 0)
        return -1;
    core_attributes_read(req->core, &req->arena, session.box.id, &attributes);
    if (!relay_agent_command(&attributes.env))
        rc = cove_fail(
            e, COVE_CONFLICT,
            "this sandbox has no agent: give PI_COMMAND in the envVars of create or resume");
    else
        rc = relay_agent_release(&session, e) < 0 ||
                     relay_agent_start(req, &session, &attributes.env, e) < 0
                 ? -1
                 : reply_health(req, rep, &session, e);
    core_session_close(&session);
    return rc;
}

/* ------------------------------------------------------------------ /exec */

struct exec_args {
    const char *command;
};

static const struct json_field exec_fields[] = {
    JSON_STR(struct exec_args, command, "command", JSON_REQUIRED, SIZE_MAX / 2),
    JSON_END,
};

struct exec_reply {
    struct json_text out, err;
    int64_t exit_code;
    const char *reason;
};

static const struct json_field exec_reply_fields[] = {
    JSON_TEXT(struct exec_reply, out, "stdout", JSON_REQUIRED, JSON_ANY),
    JSON_TEXT(struct exec_reply, err, "stderr", JSON_REQUIRED, JSON_ANY),
    JSON_INT(struct exec_reply, exit_code, "exitCode", JSON_REQUIRED, 0, 255),
    JSON_STR(struct exec_reply, reason, "reason", JSON_OPTIONAL, JSON_ANY),
    JSON_END,
};

struct output {
    struct buf streams[2]; /* by enum run_stream */
};

static int keep(void *arg, enum run_stream stream, uint64_t offset, const char *bytes, size_t len)
{
    struct output *o = arg;

    (void)offset;
    buf_add(&o->streams[stream], bytes, len);
    return o->streams[stream].overflow || o->streams[stream].starved;
}

static struct json_text text_of(const struct buf *b)
{
    return (struct json_text){ b->data ? b->data : "", b->len };
}

static void reply_output(struct reply *rep, const struct output *o, const struct cove_end *end)
{
    char reason[160] = "";

    end_describe(end, reason, sizeof(reason));
    reply_json(rep, exec_reply_fields,
               &(struct exec_reply){
                   .out = text_of(&o->streams[RUN_STDOUT]),
                   .err = text_of(&o->streams[RUN_STDERR]),
                   .exit_code = end_exit_code(end),
                   .reason = *reason && end->cause != END_OWN ? reason : NULL,
               });
}

typedef int with_filter(struct request *req, struct reply *rep, struct core_session *s,
                        const char *command, const struct policy_filter *filter,
                        struct cove_err *e);

/* A command of the caller's, or one of ours in its name: the policy is asked either way. */
static int with_permit(struct request *req, struct reply *rep, const char *command,
                       with_filter *verb, struct cove_err *e)
{
    struct core_session session;
    struct core_permit permit;
    int rc;

    if (relay_open(req, &session, e) < 0)
        return -1;
    rc =
        core_permit_one(req->core, DIALECT_RELAY, req->tenant, session.box.id, command, &permit, e);
    if (rc == 0) {
        rc = permit.forbidden ? cove_fail(e, COVE_FORBIDDEN, "refused by the rule %s: %s",
                                          permit.verdict.rule, permit.verdict.reason)
                              : verb(req, rep, &session, command, &permit.filter, e);
        core_permit_put(&permit);
    }
    core_session_close(&session);
    return rc;
}

static int run(struct request *req, struct core_session *s, const char *command,
               const struct policy_filter *filter, struct output *o, struct cove_end *ret,
               struct cove_err *e)
{
    const char *const argv[] = { "/bin/sh", "-c", command, NULL };
    struct core_attributes attributes;
    struct run_result result;
    struct run_args args = {
        .argv = argv,
        .cwd = "/workspace",
        .timeout_ms = s->limits.command_timeout_ms,
        .output_max_bytes = s->limits.output_max_bytes,
        .filter_fd = filter->fd,
        .exec_time = filter->exec_time,
        .dialect = DIALECT_RELAY,
        .leaving = req->core->leaving,
        .client_fd = req->client_fd,
        .sink = keep,
        .sink_arg = o,
    };

    core_attributes_read(req->core, &req->arena, s->box.id, &attributes);
    if (check_env(&req->arena, &attributes.env, &args.env, e) < 0 ||
        core_run(s, &args, &result, e) < 0)
        return -1;
    *ret = result.end;
    return 0;
}

static void init_output(struct request *req, struct output *o, size_t max_bytes)
{
    for (size_t i = 0; i < ARRAY_SIZE(o->streams); i++)
        buf_init_within(&o->streams[i], max_bytes, req->core->bytes);
}

static void free_output(struct output *o)
{
    for (size_t i = 0; i < ARRAY_SIZE(o->streams); i++)
        buf_done(&o->streams[i]);
}

static int exec(struct request *req, struct reply *rep, struct core_session *s, const char *command,
                const struct policy_filter *filter, struct cove_err *e)
{
    struct output o;
    struct cove_end end;
    int rc;

    init_output(req, &o, s->limits.output_max_bytes);
    rc = run(req, s, command, filter, &o, &end, e);
    if (rc == 0)
        reply_output(rep, &o, &end);
    free_output(&o);
    return rc;
}

int relay_exec(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct exec_args args = { 0 };

    req->note.operation = "exec";
    if (request_json(req, exec_fields, &args, e) < 0)
        return -1;
    if (!*args.command)
        return cove_fail(e, COVE_INVALID, "command: must not be empty");
    return with_permit(req, rep, args.command, exec, e);
}

/* ------------------------------------------------------------------ /backup */

static int backup(struct request *req, struct reply *rep, struct core_session *s,
                  const char *command, const struct policy_filter *filter, struct cove_err *e)
{
    static const char *const argv[] = { "tar",       "--create",   "--directory", "/",
                                        "workspace", "data/agent", NULL };

    (void)command;
    if (core_make_dir(s, core_default_user(s), "/data/agent", e) < 0)
        return -1;
    reply_header(rep, "Content-Type", "application/x-tar");
    return transfer_output(req, rep, s, argv, filter, e);
}

int relay_backup(struct request *req, struct reply *rep, struct cove_err *e)
{
    req->note.operation = "backup";
    return with_permit(req, rep, "tar --create workspace data/agent", backup, e);
}

/* ------------------------------------------------------------------ /restore */

static int spool(struct request *req, struct core_session *s, struct cove_err *e)
{
    struct core_file file;
    int rc;

    if (core_file_create(s, core_default_user(s), SPOOL, true, &file, e) < 0)
        return -1;
    rc = transfer_receive(req, &file, e) < 0 || core_file_commit(&file, e) < 0 ? -1 : 0;
    core_file_done(&file);
    return rc;
}

/*
 * The archive is read by the sandbox's own tar, as the sandbox's user: whatever is in it can hurt nobody
 * else. It is unpacked into a directory of its own first, and only when all of it is there do its files
 * take their places, as hard links, which need no room. So an archive that is damaged, or larger than the
 * sandbox's disk, or of too many members, changes nothing. The directories that a backup has are there
 * from the beginning, as they are outside: an archive that does not name them does not change them.
 */
static const char unpack[] =
    "rm -rf " STAGE "; mkdir " STAGE " || exit 1; result=0; "
    "refused=$(tar --list --file " SPOOL " 2>/dev/null | sed -n "
    "-e '\\,^/,{s,,a member with an absolute name: /,p;q}' "
    "-e '\\,^\\(.*/\\)*[.][.]\\(/\\|$\\),{s,^,a member that leads out: ,p;q}' "
    "-e '1000001{s/.*/more than 1000000 members/p;q}'); "
    "if [ \"$refused\" ]; then echo \"$refused\" >&2; exit 1; fi; "
    "for dir in workspace data data/agent; do if [ -d /$dir ]; then mkdir " STAGE "/$dir; "
    "chown --reference=/$dir " STAGE "/$dir 2>/dev/null; "
    "chmod --reference=/$dir " STAGE "/$dir; fi; done; "
    "tar --extract --directory " STAGE " --file " SPOOL " || exit; "
    "for file in " STAGE "/* " STAGE "/.[!.]*; do "
    "if [ -e \"$file\" ] || [ -L \"$file\" ]; then "
    "cp --archive --link --remove-destination \"$file\" / || result=1; fi; done; "
    "exit $result";

/* Also after a command that was ended by its time limit or for its memory, and when the client has left. It is
 * a command of its own, which is waited for: a removal that went on would meet the next archive's files. */
static void clean_up(struct request *req, struct core_session *s,
                     const struct policy_filter *filter)
{
    int client_fd = req->client_fd;
    struct cove_err ignored;
    struct cove_end end;
    struct output o;

    init_output(req, &o, ERROR_MAX);
    req->client_fd = -1;
    run(req, s, "rm -rf " SPOOL " " STAGE, filter, &o, &end, &ignored);
    req->client_fd = client_fd;
    free_output(&o);
}

/* What tar has said is the cause. If a limit ended it, it has said nothing, and the limit is named. */
static int fail_restore(const struct output *o, const struct cove_end *end, struct cove_err *e)
{
    char why[120];

    end_describe(end, why, sizeof(why));
    return cove_fail(e, COVE_INVALID, "body: tar could not read it: %.120s",
                     o->streams[RUN_STDERR].len ? o->streams[RUN_STDERR].data : why);
}

static int restore(struct request *req, struct reply *rep, struct core_session *s,
                   const char *command, const struct policy_filter *filter, struct cove_err *e)
{
    struct output o;
    struct cove_end end;
    int rc;

    if (spool(req, s, e) < 0)
        return -1;
    init_output(req, &o, ERROR_MAX);
    rc = run(req, s, command, filter, &o, &end, e);
    clean_up(req, s, filter);
    if (rc == 0 && end_exit_code(&end) != 0)
        rc = fail_restore(&o, &end, e);
    free_output(&o);
    if (rc < 0 || relay_agent_release(s, e) < 0)
        return -1;
    return reply_health(req, rep, s, e);
}

int relay_restore(struct request *req, struct reply *rep, struct cove_err *e)
{
    req->note.operation = "restore";
    return with_permit(req, rep, unpack, restore, e);
}
