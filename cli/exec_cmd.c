/*
 * cove exec: a program in a sandbox, with this terminal's input and output. With -t it gets a
 * terminal of its own, made inside: what is typed here goes to it byte by byte, what it shows comes
 * back, and the window's size follows. With --json the output is kept and told at the end, in one
 * object with how the program ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "cli/boxes.h"
#include "cli/json.h"
#include "cove/client.h"
#include "cove/file.h"
#include "cove/mem.h"

enum {
    END_OF_INPUT = 4 /* ^D */,
    CHUNK = 1024,
    TOLD_MAX = 8 << 20 /* bytes of each output with --json */
};

struct session {
    struct box_conn conn;
    struct cove_end end;
    bool ended;
    /* with -t: */
    int pty, signals;
    bool input_open, is_raw;
    struct termios before; /* the settings that this terminal had before */
};

/* The default seccomp profile applies to the operator's command too. */
static int open_filter(const struct cove_config *c)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/profiles/default.bpf", c->run_dir);
    return open(path, O_RDONLY | O_CLOEXEC);
}

/* Takes one message of init, if there is one within timeout_ms. */
static int hear(struct session *s, int timeout_ms, struct cove_err *e)
{
    struct box_event event;
    int rc = box_next_event(&s->conn, timeout_ms, &event, e);

    if (rc == 1 && event.kind == BOX_EVENT_EXITED) {
        s->end = event.exited.end;
        s->ended = true;
    }
    if (rc == 1 && event.kind == BOX_EVENT_DENIED)
        fprintf(stderr, "cove: denied: %s\n", event.text);
    return rc < 0 ? -1 : 0;
}

/* ------------------------------------------------------------------ the terminal here */

static void follow_window(const struct session *s)
{
    struct winsize size;

    if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0)
        ioctl(s->pty, TIOCSWINSZ, &size); /* the kernel tells the programs in it (SIGWINCH) */
}

/* From here on every key, ^C included, goes to the terminal inside. */
static void make_raw(struct session *s)
{
    struct termios raw;

    if (tcgetattr(STDIN_FILENO, &s->before) < 0)
        return;
    raw = s->before;
    cfmakeraw(&raw);
    s->is_raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

static void restore(struct session *s)
{
    if (s->is_raw)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &s->before);
    s->is_raw = false;
}

static int watch_signals(struct session *s, struct cove_err *e)
{
    static const int handled[] = { SIGWINCH, SIGTERM, SIGHUP, SIGINT, SIGQUIT };
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(handled); i++)
        sigaddset(&set, handled[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals < 0 ? cove_fail_errno(e, COVE_INTERNAL, "signalfd") : 0;
}

/* ------------------------------------------------------------------ the terminal inside */

static void pass_input(struct session *s)
{
    char bytes[CHUNK];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));

    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0) { /* the input has ended: type what a person would type then, ^D */
        bytes[0] = END_OF_INPUT;
        n = 1;
        s->input_open = false;
    }
    if (write_all(s->pty, bytes, (size_t)n) < 0)
        s->input_open = false;
}

/* Returns 0 at the end of the output: no process has the terminal open any longer. */
static int pass_output(struct session *s)
{
    char bytes[16 * CHUNK];
    ssize_t n = read(s->pty, bytes, sizeof(bytes));

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 1;
    if (n <= 0 || write_all(STDOUT_FILENO, bytes, (size_t)n) < 0)
        return 0;
    return 1;
}

/* Reads what the program wrote before its end. A background process may still hold the terminal: it is not waited
 * for. */
static void drain_output(struct session *s)
{
    struct pollfd p = { .fd = s->pty, .events = POLLIN };

    while (poll(&p, 1, 0) == 1 && pass_output(s))
        ;
}

static int on_signal(struct session *s, struct cove_err *e)
{
    struct signalfd_siginfo info;

    while (read(s->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo != SIGWINCH)
            return cove_fail(e, COVE_GONE, "ended by signal %u", info.ssi_signo);
        follow_window(s);
    }
    return 0;
}

static int relay_terminal(struct session *s, struct cove_err *e)
{
    bool output_open = true;

    while (!s->ended) {
        struct pollfd p[] = {
            { .fd = s->conn.sock, .events = POLLIN },
            { .fd = s->signals, .events = POLLIN },
            { .fd = output_open ? s->pty : -1, .events = POLLIN },
            { .fd = s->input_open ? STDIN_FILENO : -1, .events = POLLIN },
        };

        if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
            return cove_fail_errno(e, COVE_INTERNAL, "poll");
        if (p[1].revents && on_signal(s, e) < 0)
            return -1;
        if (p[2].revents)
            output_open = pass_output(s);
        if (p[3].revents)
            pass_input(s);
        if (p[0].revents && hear(s, 0, e) < 0)
            return -1;
    }
    drain_output(s);
    return 0;
}

static int run_in_terminal(struct session *s, struct cove_err *e)
{
    int rc;

    if (s->pty < 0)
        return cove_fail(e, COVE_INTERNAL, "the sandbox gave no terminal");
    if (watch_signals(s, e) < 0)
        return -1;
    follow_window(s);
    make_raw(s);
    rc = relay_terminal(s, e);
    restore(s);
    return rc;
}

/* ------------------------------------------------------------------ running it */

static int run(const struct cove_config *config, const char *id, struct spawn_args *args,
               struct cove_end *ret, struct cove_err *e)
{
    AUTO_CLOSE int filter = open_filter(config);
    struct session s = { .pty = -1, .signals = -1, .input_open = true };
    struct box_spawned spawned;
    int rc;

    if (filter < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "the default seccomp profile");
    if (box_open(config->run_dir, id, &s.conn, e) < 0)
        return -1;
    args->filter_fd = filter;
    args->common_env = config->environment;
    rc = box_spawn(&s.conn, args, &spawned, &s.pty, e);
    if (rc == 0 && args->flags & SPAWN_PTY)
        rc = run_in_terminal(&s, e);
    while (rc == 0 && !s.ended)
        rc = hear(&s, 60000, e);
    cove_close(s.signals);
    cove_close(s.pty);
    box_close(&s.conn); /* init kills what still runs: it was started with SPAWN_TIED */
    *ret = s.end;
    return rc;
}

static void ask_for_terminal(struct spawn_args *args, const char *env[2], char term[64])
{
    struct winsize size = { .ws_row = 24, .ws_col = 80 };

    ioctl(STDIN_FILENO, TIOCGWINSZ, &size);
    args->flags |= SPAWN_PTY;
    args->stdin_fd = args->stdout_fd = args->stderr_fd = -1;
    args->rows = size.ws_row;
    args->cols = size.ws_col;
    snprintf(term, 64, "TERM=%.50s", getenv("TERM") ? getenv("TERM") : "dumb");
    env[0] = term;
    args->env = env;
}

/* ------------------------------------------------------------------ --json */

/* Files in memory take the place of both outputs. What the program writes there counts as the
 * sandbox's own memory, so its limit holds. */
static int keep_output(struct spawn_args *args, struct cove_err *e)
{
    args->stdout_fd = memfd_create("stdout", MFD_CLOEXEC);
    args->stderr_fd = memfd_create("stderr", MFD_CLOEXEC);
    if (args->stdout_fd < 0 || args->stderr_fd < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "memory for the program's output");
    return 0;
}

struct exec_json {
    const char *id;
    struct json_text out, err; /* at most TOLD_MAX bytes of each */
    bool truncated;
    int64_t exit_code;
    const char *ended_by, *reason;
};

static const struct json_field exec_fields[] = {
    JSON_STR(struct exec_json, id, "id", JSON_ALWAYS, JSON_ANY),
    JSON_TEXT(struct exec_json, out, "stdout", JSON_ALWAYS, JSON_ANY),
    JSON_TEXT(struct exec_json, err, "stderr", JSON_ALWAYS, JSON_ANY),
    JSON_BOOL(struct exec_json, truncated, "truncated", JSON_ALWAYS),
    JSON_INT(struct exec_json, exit_code, "exit_code", JSON_ALWAYS, 0, INT64_MAX),
    JSON_STR(struct exec_json, ended_by, "ended_by", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct exec_json, reason, "reason", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

/* The kept output, up to TOLD_MAX bytes of it; the caller frees .bytes. *cut becomes true if there is more. */
static struct json_text read_output(int fd, bool *cut)
{
    char *text = malloc(TOLD_MAX + 1);
    size_t len = 0;
    ssize_t n;

    while (text && len <= TOLD_MAX &&
           (n = pread(fd, text + len, TOLD_MAX + 1 - len, (off_t)len)) > 0)
        len += (size_t)n;
    *cut |= len > TOLD_MAX;
    return (struct json_text){ text, len < TOLD_MAX ? len : TOLD_MAX };
}

static void tell_json(const struct box_info *box, const struct spawn_args *args,
                      const struct cove_end *end)
{
    char why[160];
    struct exec_json told = {
        .id = box->id,
        .exit_code = end_exit_code(end),
        .ended_by = end_cause_name(end->cause),
        .reason = why,
    };

    end_describe(end, why, sizeof(why));
    told.out = read_output(args->stdout_fd, &told.truncated);
    told.err = read_output(args->stderr_fd, &told.truncated);
    cli_json_print(exec_fields, &told);
    free((char *)told.out.bytes);
    free((char *)told.err.bytes);
}

int cli_exec(int argc, char **argv)
{
    static const struct option longs[] = {
        { "user", required_argument, NULL, 'u' }, { "cwd", required_argument, NULL, 'w' },
        { "tty", no_argument, NULL, 't' },        { "interactive", no_argument, NULL, 'i' },
        { "json", no_argument, NULL, 'j' },       { 0 },
    };
    struct spawn_args args = { .stdin_fd = 0, .stdout_fd = 1, .stderr_fd = 2, .flags = SPAWN_TIED };
    const char *env[2] = { NULL, NULL };
    struct cove_end end = { 0 };
    struct cove_config config;
    struct box_info box;
    struct cove_err e;
    bool as_json = false;
    char term[64];
    int c;

    optind = 1;
    while ((c = getopt_long(argc, argv, "+u:w:tij", longs, NULL)) != -1) {
        if (c == 'u')
            args.user = optarg;
        else if (c == 'w')
            args.cwd = optarg;
        else if (c == 't')
            ask_for_terminal(&args, env, term);
        else if (c == 'j')
            as_json = true;
        else if (c != 'i') /* -i: input is always passed on; other tools need the letter */
            return CLI_ERROR;
    }
    if (optind < argc - 1 && strcmp(argv[optind + 1], "--") == 0) {
        argv[optind + 1] = argv[optind]; /* SANDBOX -- PROGRAM: the dashes may stand there, too */
        optind++;
    }
    if (argc - optind < 2 || (as_json && args.flags & SPAWN_PTY))
        return cli_usage(
            "cove exec [-it | --json] [--user U] [--cwd DIR] SANDBOX PROGRAM [ARG]...");
    args.argv = (const char *const *)argv + optind + 1;
    if (boxes_open(argv[optind], &config, &box, &e) < 0 ||
        (as_json && keep_output(&args, &e) < 0) || run(&config, box.id, &args, &end, &e) < 0)
        return cli_fail(&e);
    if (as_json) {
        tell_json(&box, &args, &end);
    } else if (end.cause != END_OWN) {
        char why[160];

        end_describe(&end, why, sizeof(why));
        fprintf(stderr, "cove: %s\n", why);
    }
    return end_exit_code(&end);
}
