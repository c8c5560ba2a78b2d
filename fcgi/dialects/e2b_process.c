/* The process service: what can be asked of processes that run. Starting and following them is in
 * e2b_start.c. */
#include <signal.h>
#include <string.h>

#include "fcgi/dialects/e2b_process.h"

/* ------------------------------------------------------------------ which process */

struct search {
    const Process__ProcessSelector *which;
    struct e2b_process found;
    bool any;
};

static bool fits(const Process__ProcessSelector *which, const struct box_proc *p, const char *label)
{
    if (which->selector_case == PROCESS__PROCESS_SELECTOR__SELECTOR_PID)
        return p->pid == which->pid;
    return *which->tag && strcmp(label, which->tag) == 0;
}

/* Several processes may have had one pid. The newest that runs is meant, or else the newest that has ended. */
static int look(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    struct search *s = arg;

    (void)command;
    if (!(p->flags & SPAWN_LOG) || !fits(s->which, p, label) ||
        (s->any && s->found.running && !p->running))
        return 0;
    s->any = true;
    s->found = (struct e2b_process){
        .proc = p->proc,
        .pid = p->pid,
        .running = p->running,
        .pty = p->flags & SPAWN_PTY,
    };
    return 0;
}

int e2b_process_find(struct rpc *r, const Process__ProcessSelector *which, struct e2b_process *ret,
                     struct cove_err *e)
{
    struct search s = { .which = which };

    if (!which || which->selector_case == PROCESS__PROCESS_SELECTOR__SELECTOR__NOT_SET)
        return cove_fail(e, COVE_INVALID, "process: neither a pid nor a tag is given");
    if (box_procs(&r->envd->session.conn, look, &s, e) < 0)
        return -1;
    if (!s.any && which->selector_case == PROCESS__PROCESS_SELECTOR__SELECTOR_PID)
        return cove_fail(e, COVE_NOT_FOUND, "process with pid %u not found", which->pid);
    if (!s.any)
        return cove_fail(e, COVE_NOT_FOUND, "process with tag '%.100s' not found", which->tag);
    *ret = s.found;
    return 0;
}

int e2b_process_running(struct rpc *r, const Process__ProcessSelector *which,
                        struct e2b_process *ret, struct cove_err *e)
{
    if (e2b_process_find(r, which, ret, e) < 0)
        return -1;
    if (!ret->running)
        return cove_fail(e, COVE_NOT_FOUND, "process with pid %u not found", ret->pid);
    return 0;
}

static int answer_empty(struct rpc *r, struct cove_err *e)
{
    Process__Empty empty = PROCESS__EMPTY__INIT;

    return rpc_answer(r, &empty.base, e);
}

/* ------------------------------------------------------------------ List */

enum { LISTED_MAX = 4096 };

struct listing {
    struct arena *arena;
    Process__ProcessInfo *items[LISTED_MAX];
    uint32_t procs[LISTED_MAX];
    size_t count;
};

/* Splits a command, as init shows it, into words. All that follows -c is one word. */
static void split_command(struct arena *a, const char *text, Process__ProcessConfig *config)
{
    char **args = arena_alloc(a, (strlen(text) + 1) * sizeof(char *));
    size_t len = strcspn(text, " ");
    bool last = false;

    config->cmd = arena_strndup(a, text, len);
    config->args = args;
    while (text[len]) {
        text += len + 1;
        len = last ? strlen(text) : strcspn(text, " ");
        last = len == 2 && strncmp(text, "-c", 2) == 0;
        args[config->n_args++] = arena_strndup(a, text, len);
    }
}

static int add_process(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    struct listing *l = arg;
    Process__ProcessConfig *config;
    Process__ProcessInfo *info;

    if (!p->running || !(p->flags & SPAWN_LOG))
        return 0;
    info = arena_alloc(l->arena, sizeof(*info));
    config = arena_alloc(l->arena, sizeof(*config));
    process__process_info__init(info);
    process__process_config__init(config);
    split_command(l->arena, command, config);
    info->config = config;
    info->has_pid = 1;
    info->pid = p->pid;
    info->tag = *label ? arena_strdup(l->arena, label) : NULL;
    l->procs[l->count] = p->proc;
    l->items[l->count++] = info;
    return l->count == LISTED_MAX || l->arena->starved;
}

/* The process's configuration as its client gave it, if init still has that. The text comes from inside the
 * sandbox, so it is parsed like any input. */
static int add_config(struct rpc *r, uint32_t proc, Process__ProcessInfo *info, struct cove_err *e)
{
    struct cove_err ignored;
    ProtobufCMessage *config;
    const char *note;

    if (box_note(&r->envd->session.conn, proc, &note, e) < 0)
        return e->code == COVE_NOT_FOUND ? 0 : -1;
    if (*note && connect_decode(&r->req->arena, CONNECT_JSON, &process__process_config__descriptor,
                                note, strlen(note), &config, &ignored) == 0)
        info->config = (Process__ProcessConfig *)config;
    return 0;
}

static int list(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    struct listing *l = arena_alloc(&r->req->arena, sizeof(*l));
    Process__ListResponse out = PROCESS__LIST_RESPONSE__INIT;

    (void)in;
    l->arena = &r->req->arena;
    if (box_procs(&r->envd->session.conn, add_process, l, e) < 0)
        return -1;
    for (size_t i = 0; i < l->count && !l->arena->starved; i++)
        if (add_config(r, l->procs[i], l->items[i], e) < 0)
            return -1;
    if (l->arena->starved)
        return core_fail_memory(e);
    out.processes = l->items;
    out.n_processes = l->count;
    return rpc_answer(r, &out.base, e);
}

/* ------------------------------------------------------------------ SendInput, CloseStdin */

int e2b_process_input(struct rpc *r, const struct e2b_process *p,
                      const Process__ProcessInput *input, struct cove_err *e)
{
    bool pty = input && input->input_case == PROCESS__PROCESS_INPUT__INPUT_PTY;
    struct core_proc proc = { .proc = p->proc, .running = true };
    const ProtobufCBinaryData *bytes;
    size_t written;

    if (!input || input->input_case == PROCESS__PROCESS_INPUT__INPUT__NOT_SET)
        return cove_fail(e, COVE_UNSUPPORTED, "input: neither stdin nor pty is given");
    if (pty != p->pty)
        return cove_fail(e, COVE_CONFLICT, "process %u %s", p->pid,
                         p->pty ? "has a terminal, send its input as pty" : "has no terminal");
    bytes = pty ? &input->pty : &input->stdin;
    return core_proc_stdin(&r->envd->session, &proc, (const char *)bytes->data, bytes->len, false,
                           &written, e);
}

static int send_input(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const Process__SendInputRequest *args = (const Process__SendInputRequest *)in;
    struct e2b_process p;

    if (e2b_process_running(r, args->process, &p, e) < 0 ||
        e2b_process_input(r, &p, args->input, e) < 0)
        return -1;
    return answer_empty(r, e);
}

static int close_stdin(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const Process__SelectRequest *args = (const Process__SelectRequest *)in;
    struct e2b_process p;

    if (e2b_process_running(r, args->process, &p, e) < 0)
        return -1;
    if (p.pty)
        return cove_fail(e, COVE_CONFLICT,
                         "cannot close stdin for PTY process, send Ctrl+D (0x04) instead");
    if (box_stdin(&r->envd->session.conn, p.proc, NULL, true, NULL, e) < 0 &&
        e->code != COVE_CONFLICT) /* stdin was closed before: that is what the client wants */
        return -1;
    return answer_empty(r, e);
}

/* ------------------------------------------------------------------ SendSignal, Update */

/* SIGKILL takes all that the process ever started with it, SIGTERM goes to its group. */
static int send_signal(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const Process__SendSignalRequest *args = (const Process__SendSignalRequest *)in;
    struct box_signal order = { .cause = END_KILLED };
    struct e2b_process p;

    if (args->signal != PROCESS__SIGNAL__SIGNAL_SIGKILL &&
        args->signal != PROCESS__SIGNAL__SIGNAL_SIGTERM)
        return cove_fail(e, COVE_UNSUPPORTED, "invalid signal: %d", (int)args->signal);
    if (e2b_process_running(r, args->process, &p, e) < 0)
        return -1;
    order.proc = p.proc;
    order.signo = (int)args->signal;
    order.scope = order.signo == SIGKILL ? SIGNAL_TREE : SIGNAL_GROUP;
    if (box_signal(&r->envd->session.conn, &order, NULL, e) < 0)
        return -1;
    return answer_empty(r, e);
}

static int update(struct rpc *r, const ProtobufCMessage *in, struct cove_err *e)
{
    const Process__UpdateRequest *args = (const Process__UpdateRequest *)in;
    const Process__Pty__Size *size = args->pty ? args->pty->size : NULL;
    struct e2b_process p;

    if (e2b_process_running(r, args->process, &p, e) < 0)
        return -1;
    if (size && (size->rows > UINT16_MAX || size->cols > UINT16_MAX))
        return cove_fail(e, COVE_INVALID, "pty.size: above %d", UINT16_MAX);
    if (size && box_resize(&r->envd->session.conn, p.proc, NULL, (uint16_t)size->rows,
                           (uint16_t)size->cols, e) < 0)
        return -1;
    return answer_empty(r, e);
}

/* ------------------------------------------------------------------ the service */

static const struct rpc_method methods[] = {
    { "List", &process__list_request__descriptor, list, false, "internal" },
    { "Start", &process__start_request__descriptor, e2b_process_start, true, "internal" },
    { "Connect", &process__select_request__descriptor, e2b_process_connect, true, "internal" },
    { "SendInput", &process__send_input_request__descriptor, send_input, false, "internal" },
    { "CloseStdin", &process__select_request__descriptor, close_stdin, false, "unknown" },
    { "SendSignal", &process__send_signal_request__descriptor, send_signal, false, "internal" },
    { "Update", &process__update_request__descriptor, update, false, "internal" },
};

int envd_process(struct request *req, struct reply *rep, struct cove_err *e)
{
    return rpc_serve(req, rep, methods, ARRAY_SIZE(methods), e);
}
