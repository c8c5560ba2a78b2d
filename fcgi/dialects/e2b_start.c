/* Start begins a process, Connect finds one that runs. Both tell the client what it does until it ends. The
 * process belongs to init and goes on when the client leaves. */
#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "cove/dialect.h"
#include "cove/text.h"
#include "fcgi/check.h"
#include "fcgi/core_follow.h"
#include "fcgi/dialects/e2b_process.h"

enum { CHUNK_BYTES = 32 * 1024, PTY_CHUNK_BYTES = 16 * 1024, NOTE_MAX_BYTES = 32 * 1024 };

/* ------------------------------------------------------------------ events */

struct told { /* whom events go to */
    struct rpc *rpc;
    bool pty;
};

static void tell_event(struct rpc *r, Process__ProcessEvent *event)
{
    Process__EventResponse out = PROCESS__EVENT_RESPONSE__INIT;

    out.event = event;
    rpc_tell(r, &out.base);
}

static void tell_start(struct rpc *r, uint32_t pid)
{
    Process__ProcessEvent__StartEvent start = PROCESS__PROCESS_EVENT__START_EVENT__INIT;
    Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;

    start.has_pid = 1;
    start.pid = pid;
    event.event_case = PROCESS__PROCESS_EVENT__EVENT_START;
    event.start = &start;
    tell_event(r, &event);
}

static void tell_output(void *arg, enum run_stream stream, const char *bytes, size_t len)
{
    struct told *t = arg;
    ProtobufCBinaryData chunk = { .len = len, .data = (uint8_t *)bytes };
    Process__ProcessEvent__DataEvent output;
    Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;

    process__process_event__data_event__init(&output);
    if (t->pty) {
        output.output_case = PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_PTY;
        output.pty = chunk;
    } else if (stream == RUN_STDOUT) {
        output.output_case = PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDOUT;
        output.stdout = chunk;
    } else {
        output.output_case = PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDERR;
        output.stderr = chunk;
    }
    event.event_case = PROCESS__PROCESS_EVENT__EVENT_DATA;
    event.data = &output;
    tell_event(t->rpc, &event);
}

static void tell_alive(struct stream *s, void *arg)
{
    Process__Empty empty = PROCESS__EMPTY__INIT;
    Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;

    (void)s;
    event.event_case = PROCESS__PROCESS_EVENT__EVENT_KEEPALIVE;
    event.keepalive = &empty;
    tell_event(arg, &event);
}

/* "signal: killed", as clients know it. */
static char *signal_status(struct arena *a, int signo)
{
    const char *name = sigdescr_np(signo);
    char *text = arena_printf(a, "signal: %s", name ? name : "unknown");

    text[8] = (char)tolower((unsigned char)text[8]);
    return text;
}

/* The error says why a process ended, unless it ended by itself or was killed by request. */
static char *error_text(struct arena *a, const struct cove_end *end, const char *status)
{
    char why[160];

    if (end->signal == 0 && end->exit_code == 0)
        return NULL;
    if (end->cause == END_OWN || end->cause == END_KILLED)
        return arena_strdup(a, status);
    end_describe(end, why, sizeof(why));
    return arena_printf(a, "%s: %s", status, why);
}

static void tell_end(struct rpc *r, const struct cove_end *end)
{
    Process__ProcessEvent__EndEvent out = PROCESS__PROCESS_EVENT__END_EVENT__INIT;
    Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
    struct arena *a = &r->req->arena;

    out.exit_code = end->signal ? -1 : end->exit_code;
    out.has_exit_code = out.exit_code != 0;
    out.has_exited = out.exited = end->signal == 0;
    out.status = end->signal ? signal_status(a, end->signal)
                             : arena_printf(a, "exit status %d", (int)end->exit_code);
    out.error = error_text(a, end, out.status);
    event.event_case = PROCESS__PROCESS_EVENT__EVENT_END;
    event.end = &out;
    tell_event(r, &event);
}

/* ------------------------------------------------------------------ following */

static int follow(struct rpc *r, const struct e2b_process *p, bool started, struct cove_err *e)
{
    struct told told = { .rpc = r, .pty = p->pty };
    struct core_follow args = {
        .proc = p->proc,
        .only_new = !started,
        .whole = started,
        .chunk_bytes = p->pty ? PTY_CHUNK_BYTES : CHUNK_BYTES,
        .stream = &r->stream,
        .output = tell_output,
        .arg = &told,
    };
    enum core_follow_end how;
    struct cove_end end;

    r->heartbeat = tell_alive;
    rpc_begin(r);
    tell_start(r, p->pid);
    if (stream_send(&r->stream) != 0)
        return 0;
    if (core_follow(&r->envd->session, &args, &how, &end, e) < 0)
        return -1;
    switch (how) {
    case FOLLOW_ENDED:
        if (end.cause == END_DEADLINE)
            return cove_fail(e, COVE_TIMEOUT, "the command was killed after %llu ms",
                             (unsigned long long)end.limit);
        tell_end(r, &end);
        return 0;
    case FOLLOW_SERVER:
        return cove_fail(e, COVE_GONE, "the server restarts");
    case FOLLOW_LEFT:
        break;
    }
    return 0;
}

int e2b_process_connect(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const Process__SelectRequest *args = (const Process__SelectRequest *)in;
    struct e2b_process p;

    if (e2b_process_find(r, args->process, &p, e) < 0)
        return -1;
    return follow(r, &p, false, e);
}

/* ------------------------------------------------------------------ starting */

static bool is_shell(const char *cmd)
{
    static const char *const shells[] = { "sh", "bash", "dash", "zsh" };
    const char *name = strrchr(cmd, '/');

    name = name ? name + 1 : cmd;
    for (size_t i = 0; i < ARRAY_SIZE(shells); i++)
        if (strcmp(name, shells[i]) == 0)
            return true;
    return false;
}

static void add_quoted(struct buf *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=:,./@%";

    if (out->len > 0)
        buf_add_char(out, ' ');
    if (*word && strspn(word, plain) == strlen(word)) {
        buf_add_str(out, word);
        return;
    }
    buf_add_char(out, '\'');
    for (; *word; word++)
        buf_add_str(out, *word == '\'' ? "'\\''" : (char[]){ *word, '\0' });
    buf_add_char(out, '\'');
}

/* What the policy judges: the text of `bash -l -c TEXT`, or any other command as a shell would
 * write it. */
static int command_text(struct rpc *r, const Process__ProcessConfig *c, const char **ret,
                        struct cove_err *e)
{
    size_t n = c->n_args;
    struct buf text;

    if (n >= 2 && is_shell(c->cmd) && strcmp(c->args[n - 2], "-c") == 0) {
        *ret = c->args[n - 1];
        return 0;
    }
    buf_init(&text, r->req->core->config->command_max_bytes + 1024);
    add_quoted(&text, c->cmd);
    for (size_t i = 0; i < n; i++)
        add_quoted(&text, c->args[i]);
    *ret = arena_strndup(&r->req->arena, text.data, text.len);
    buf_done(&text);
    return text.overflow ? cove_fail(e, COVE_INVALID, "process: the command is too long") : 0;
}

static void put_env(struct json_map *env, const char *name, const char *value)
{
    for (size_t i = 0; i < env->count; i++) {
        if (strcmp(env->items[i].name, name) == 0) {
            env->items[i].value = value;
            return;
        }
    }
    env->items[env->count++] = (struct pair){ name, value };
}

/* The sandbox's own variables, and over them those of this call. */
static int make_env(struct rpc *r, const Process__ProcessConfig *c, const char *const **ret,
                    struct cove_err *e)
{
    const struct json_map *global = &r->envd->attributes.env;
    struct json_map env = { 0 };

    if (c->n_envs > ENV_MAX_COUNT)
        return cove_fail(e, COVE_INVALID, "envs: more than %d", ENV_MAX_COUNT);
    env.items = arena_alloc(&r->req->arena, (global->count + c->n_envs + 3) * sizeof(struct pair));
    put_env(&env, "E2B_SANDBOX", "true");
    put_env(&env, "E2B_SANDBOX_ID", r->envd->found.box.id);
    put_env(&env, "E2B_TEMPLATE_ID", r->envd->found.box.template);
    for (size_t i = 0; i < global->count; i++)
        put_env(&env, global->items[i].name, global->items[i].value);
    for (size_t i = 0; i < c->n_envs; i++)
        put_env(&env, c->envs[i]->key ? c->envs[i]->key : "",
                c->envs[i]->value ? c->envs[i]->value : "");
    return check_env(&r->req->arena, &env, ret, e);
}

static int check_dir(struct rpc *r, const char *given, const char **ret, struct cove_err *e)
{
    struct box_stat st;

    if (!given || !*given) {
        *ret = NULL;
        return 0;
    }
    if (envd_path(r->envd, given, ret, e) < 0)
        return -1;
    if (box_file_stat(&r->envd->session.conn, "root", *ret, 0, &st, e) < 0)
        return e->code == COVE_NOT_FOUND
                   ? cove_fail(e, COVE_INVALID, "cwd '%.160s' does not exist", given)
                   : -1;
    return 0;
}

static const char *const *make_argv(struct arena *a, const Process__ProcessConfig *c, bool by_shell)
{
    const char **argv = arena_alloc(a, (c->n_args + 6) * sizeof(char *));
    size_t n = 0;

    if (by_shell) {
        argv[n++] = "/bin/sh";
        argv[n++] = "-c";
        argv[n++] = "exec \"$@\"";
        argv[n++] = "sh";
    }
    argv[n++] = c->cmd;
    for (size_t i = 0; i < c->n_args; i++)
        argv[n++] = c->args[i];
    return argv;
}

/* A program that does not exist does not make the call fail: as in a shell, stderr says so and the exit code is 127. */
static int spawn_or_explain(struct rpc *r, const Process__ProcessConfig *c,
                            struct core_spawn *spawn, struct box_spawned *ret, struct cove_err *e)
{
    spawn->argv = make_argv(&r->req->arena, c, false);
    if (core_spawn(&r->envd->session, spawn, ret, e) == 0)
        return 0;
    if (e->code != COVE_NOT_FOUND)
        return -1;
    spawn->argv = make_argv(&r->req->arena, c, true);
    return core_spawn(&r->envd->session, spawn, ret, e);
}

/* The client's configuration of the process as a text, which init keeps with the process for List. A longer text than
 * init takes is not kept, and List then shows the beginning of the command alone. */
static const char *note_of(struct rpc *r, const Process__ProcessConfig *c)
{
    const char *note = NULL;
    struct buf text;

    buf_init(&text, NOTE_MAX_BYTES);
    if (connect_json_encode(&c->base, &text) == 0 && !text.overflow)
        note = arena_strndup(&r->req->arena, text.data, text.len);
    buf_done(&text);
    return note;
}

static int spawn(struct rpc *r, const Process__StartRequest *args,
                 const struct policy_filter *filter, struct e2b_process *ret, struct cove_err *e)
{
    const Process__Pty__Size *size = args->pty ? args->pty->size : NULL;
    struct core_spawn spawn = {
        .user = r->envd->user,
        .label = args->tag ? args->tag : "",
        .note = note_of(r, args->process),
        .filter = filter,
        .dialect = DIALECT_E2B,
        .timeout_ms = r->call.timeout_ms < UINT32_MAX ? (uint32_t)r->call.timeout_ms : 0,
        .pty = args->pty != NULL,
        .rows = (uint16_t)(size ? size->rows : 0),
        .cols = (uint16_t)(size ? size->cols : 0),
        .keep_stdin = !args->pty && (!args->has_stdin || args->stdin),
        .whole = true,
    };
    struct box_spawned spawned;

    if (check_dir(r, args->process->cwd, &spawn.cwd, e) < 0 ||
        make_env(r, args->process, &spawn.env, e) < 0 ||
        spawn_or_explain(r, args->process, &spawn, &spawned, e) < 0)
        return -1;
    *ret = (struct e2b_process){
        .proc = spawned.proc,
        .pid = spawned.pid,
        .running = true,
        .pty = spawn.pty,
    };
    return 0;
}

static int start_permitted(struct rpc *r, const Process__StartRequest *args,
                           const struct core_permit *permit, struct e2b_process *ret,
                           struct cove_err *e)
{
    if (permit->forbidden) {
        r->req->note.cause = arena_printf(&r->req->arena, "policy: %s", permit->verdict.rule);
        return cove_fail(e, COVE_FORBIDDEN, "the command is not allowed: rule %s: %s",
                         permit->verdict.rule, permit->verdict.reason);
    }
    return spawn(r, args, &permit->filter, ret, e);
}

int e2b_process_start(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const Process__StartRequest *args = (const Process__StartRequest *)in;
    struct core_permit permit;
    const char *command;
    struct e2b_process p;
    int rc;

    if (!args->process || !args->process->cmd || !*args->process->cmd)
        return cove_fail(e, COVE_INVALID, "process.cmd: is missing");
    if (command_text(r, args->process, &command, e) < 0)
        return -1;
    if (core_permit_one(r->req->core, DIALECT_E2B, r->req->tenant, r->envd->found.box.id, command,
                        &permit, e) < 0)
        return -1;
    rc = start_permitted(r, args, &permit, &p, e);
    core_permit_put(&permit);
    return rc < 0 ? -1 : follow(r, &p, true, e);
}
