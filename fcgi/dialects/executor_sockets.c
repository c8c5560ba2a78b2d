/* WebSockets on a process (extensions): a terminal, new or existing, and the lines of a process that is there.
 * See fcgi/attach.h. */
#include <string.h>

#include "cove/dialect.h"
#include "cove/text.h"
#include "cove/which.h"
#include "fcgi/attach.h"
#include "fcgi/check.h"
#include "fcgi/dialects/executor.h"

enum { SIDE_MAX = 10000, DEFAULT_ROWS = 24, DEFAULT_COLS = 80 };

/* A login shell: bash where there is one. */
#define SHELL "if [ -x /bin/bash ]; then exec /bin/bash -l; fi; exec /bin/sh -l"

/* ------------------------------------------------------------------ the query */

static int query_number(const struct request *req, const char *name, uint64_t least, uint64_t most,
                        uint64_t *ret, struct cove_err *e)
{
    const char *text = request_query(req, name);
    struct cove_err ignored;
    uint64_t n;

    if (!text)
        return 0;
    if (text_parse_u64(text, &n, &ignored) < 0 || n < least || n > most)
        return cove_fail(e, COVE_INVALID, "%s: must be a number from %llu to %llu", name,
                         (unsigned long long)least, (unsigned long long)most);
    *ret = n;
    return 0;
}

static int query_flag(const struct request *req, const char *name, bool *ret, struct cove_err *e)
{
    const char *text = request_query(req, name);

    if (!text || strcmp(text, "0") == 0)
        return 0;
    if (strcmp(text, "1") != 0)
        return cove_fail(e, COVE_INVALID, "%s: must be 0 or 1", name);
    *ret = true;
    return 0;
}

/* ------------------------------------------------------------------ which sandbox */

/* The sandbox's name: ?sandbox=, because browsers cannot set headers; otherwise as everywhere in this dialect. A
 * sandbox that ?sandbox= names must exist. */
static const char *sandbox_name(struct request *req)
{
    const char *given = request_query(req, "sandbox");

    return given && !req->host_box ? given : executor_project(req);
}

static int open_named(struct request *req, const char *name, struct core_session *ret,
                      struct cove_err *e)
{
    struct which w;

    if (check_project("sandbox", name, e) < 0)
        return -1;
    if (which_sandbox(req->core->state, req->tenant, name, &w) == WHICH_NONE)
        return cove_fail(e, COVE_NOT_FOUND, "no such sandbox: %.64s", name);
    if (core_session_open_found(req->core, req->tenant, &w, ret, e) < 0)
        return -1;
    req->note.sandbox = arena_strdup(&req->arena, ret->box.id);
    return 0;
}

static int open_session(struct request *req, struct core_session *ret, struct cove_err *e)
{
    const char *given = request_query(req, "sandbox");

    return given && !req->host_box ? open_named(req, given, ret, e) : executor_open(req, ret, e);
}

/* ------------------------------------------------------------------ which process */

struct search {
    const char *name; /* its number or its id */
    uint64_t number;  /* 0: the name is no number */
    struct box_proc found;
};

static int look(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    struct search *s = arg;

    (void)command;
    if (!(p->flags & SPAWN_LOG) || (p->proc != s->number && strcmp(label, s->name) != 0))
        return 0;
    s->found = *p;
    return 1;
}

static int find_process(struct core_session *s, const char *name, struct box_proc *ret,
                        struct cove_err *e)
{
    struct search search = { .name = name };
    struct cove_err ignored;

    if (!*name)
        return cove_fail(e, COVE_INVALID, "process: must not be empty");
    if (text_parse_u64(name, &search.number, &ignored) < 0)
        search.number = 0;
    if (box_procs(&s->conn, look, &search, e) < 0)
        return -1;
    if (!search.found.proc)
        return cove_fail(e, COVE_NOT_FOUND, "process: there is no process %.64s with a log", name);
    *ret = search.found;
    return 0;
}

/* ------------------------------------------------------------------ /terminal */

struct terminal {
    struct request *req;
    uint64_t rows, cols;
    const char *user, *cwd, *command; /* of a new one */
    struct attach_target target;
};

static int read_terminal(struct request *req, struct terminal *t, struct cove_err *e)
{
    const char *cwd = request_query(req, "cwd"), *user = request_query(req, "user");
    const char *text = request_query(req, "text"), *command = request_query(req, "cmd");

    *t = (struct terminal){ .req = req,
                            .user = user && *user ? user : NULL,
                            .cwd = cwd && *cwd ? cwd : NULL,
                            .command = command && *command ? command : SHELL,
                            .target.kind = "terminal",
                            .target.has_from = request_query(req, "offset") != NULL };
    if (query_number(req, "rows", 1, SIDE_MAX, &t->rows, e) < 0 ||
        query_number(req, "cols", 1, SIDE_MAX, &t->cols, e) < 0 ||
        query_number(req, "offset", 0, INT64_MAX, &t->target.from, e) < 0 ||
        query_flag(req, "readonly", &t->target.read_only, e) < 0 || check_cwd(t->cwd, e) < 0)
        return -1;
    if (!t->rows != !t->cols)
        return cove_fail(e, COVE_INVALID, "rows: rows and cols are given together or not at all");
    if (text && strcmp(text, "input") != 0)
        return cove_fail(e, COVE_INVALID, "text: must be input, or not be given");
    t->target.plain_text = text != NULL;
    t->target.rows = (unsigned)t->rows;
    t->target.cols = (unsigned)t->cols;
    return 0;
}

static int start_shell(struct core_session *s, const struct terminal *t,
                       const struct policy_filter *filter, uint32_t *ret_proc, struct cove_err *e)
{
    const char *const argv[] = { "/bin/sh", "-c", t->command, NULL };
    const char *const env[] = { "TERM=xterm-256color", NULL };
    char id[COVE_UUID_LEN + 1];
    struct core_spawn args = {
        .argv = argv,
        .env = env,
        .user = t->user,
        .cwd = t->cwd,
        .label = id,
        .filter = filter,
        .dialect = DIALECT_EXECUTOR,
        .pty = true,
        .rows = (uint16_t)(t->rows ? t->rows : DEFAULT_ROWS),
        .cols = (uint16_t)(t->cols ? t->cols : DEFAULT_COLS),
    };
    struct box_spawned spawned;

    text_new_uuid(id);
    if (core_spawn(s, &args, &spawned, e) < 0)
        return cove_context(e, "Failed to start process");
    *ret_proc = spawned.proc;
    return 0;
}

static int find_terminal(struct core_session *s, const char *name, uint32_t *ret_proc,
                         struct cove_err *e)
{
    struct box_proc p = { 0 };

    if (find_process(s, name, &p, e) < 0)
        return -1;
    if (!(p.flags & SPAWN_PTY))
        return cove_fail(e, COVE_CONFLICT, "process: %.64s has no terminal", name);
    *ret_proc = p.proc;
    return 0;
}

/* filter NULL: no process is to be started, `process` names one. */
static int open_terminal(struct reply *rep, struct terminal *t, const struct policy_filter *filter,
                         struct cove_err *e)
{
    struct core_session session;
    int rc;

    if (open_session(t->req, &session, e) < 0)
        return -1;
    rc = filter ? start_shell(&session, t, filter, &t->target.proc, e)
                : find_terminal(&session, request_query(t->req, "process"), &t->target.proc, e);
    core_session_close(&session);
    if (rc < 0)
        return -1;
    t->target.id = session.box.id;
    return attach_to(t->req, rep, &t->target);
}

static int new_terminal(struct reply *rep, struct terminal *t, struct cove_err *e)
{
    struct core_permit permit;
    int rc = 0;

    if (core_permit_one(t->req->core, DIALECT_EXECUTOR, t->req->tenant, sandbox_name(t->req),
                        t->command, &permit, e) < 0)
        return -1;
    /* The client sees the output from its first byte on, however much the process writes before the gate looks at it. */
    t->target.has_from = true;
    if (permit.forbidden)
        executor_forbidden(t->req, rep, &permit);
    else
        rc = open_terminal(rep, t, &permit.filter, e);
    core_permit_put(&permit);
    return rc;
}

int executor_terminal(struct request *req, struct reply *rep, struct cove_err *e)
{
    struct terminal t;

    req->note.operation = "terminal";
    if (attach_check(req, e) < 0 || read_terminal(req, &t, e) < 0)
        return -1;
    return request_query(req, "process") ? open_terminal(rep, &t, NULL, e)
                                         : new_terminal(rep, &t, e);
}

/* ------------------------------------------------------------------ /process_lines */

int executor_lines(struct request *req, struct reply *rep, struct cove_err *e)
{
    const char *name = request_query(req, "process");
    struct attach_target target = { .kind = "lines",
                                    .has_from = request_query(req, "from") != NULL };
    struct core_session session;
    struct box_proc p = { 0 };
    int rc;

    req->note.operation = "process_lines";
    if (attach_check(req, e) < 0 || query_number(req, "from", 1, INT64_MAX, &target.from, e) < 0 ||
        query_flag(req, "numbered", &target.numbered, e) < 0 ||
        query_flag(req, "readonly", &target.read_only, e) < 0)
        return -1;
    if (!name)
        return cove_fail(e, COVE_INVALID, "process: is missing");
    if (open_session(req, &session, e) < 0)
        return -1;
    rc = find_process(&session, name, &p, e);
    core_session_close(&session);
    if (rc < 0)
        return -1;
    target.id = session.box.id;
    target.proc = p.proc;
    return attach_to(req, rep, &target);
}
