/* A command in the build's sandbox. The build's thread feeds its input and reads its output, line by line
 * into the log. init ends the command when this conversation closes, so it ends with the build. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cove/dialect.h"
#include "cove/mem.h"
#include "cove/text.h"
#include "helpers/builder/builder_private.h"

enum {
    READ_BYTES = 8192,
    REST_READS = 8,       /* of READ_BYTES: all that a pipe holds */
    LAST_WORDS_MS = 1000, /* how long output of background processes is read after the end */
    LOOK_MS = 500,        /* how often the thread looks whether the template was deleted */
};

struct line { /* the beginning of a line whose end has not come yet */
    int fd;
    enum build_level level;
    char text[BUILD_MESSAGE_MAX];
    size_t len;
};

struct run {
    struct build_job *job;
    const struct build_command *command;
    struct line out, err;
    int input; /* our end of the command's stdin; -1 = none, or all was sent */
    char block[READ_BYTES];
    size_t block_len, block_sent;
    uint32_t proc;
    bool ended;
    struct cove_end end;
    char *last;
};

/* ------------------------------------------------------------------ output */

static void tell(struct run *r, struct line *l)
{
    if (l->level == BUILD_WARN && l->len > 0)
        snprintf(r->last, 256, "%.*s", (int)(l->len < 255 ? l->len : 255), l->text);
    if (!r->command->quiet)
        log_add(r->job->build, l->level, r->job->step, l->text, l->len);
    l->len = 0;
}

static void take_output(struct run *r, struct line *l)
{
    char bytes[READ_BYTES];
    ssize_t n = read(l->fd, bytes, sizeof(bytes));

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        l->fd = cove_close(l->fd);
        tell(r, l);
        return;
    }
    if (l == &r->out && r->command->output) {
        buf_add(r->command->output, bytes, (size_t)n);
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] != '\n')
            l->text[l->len++] = bytes[i];
        if (bytes[i] == '\n' || l->len == sizeof(l->text) - 1)
            tell(r, l);
    }
}

/* What the command wrote is in the pipes when its end is told. On a busy machine LAST_WORDS_MS may have passed before this
 * thread ran again, so both pipes are read once more, however late it is. */
static void take_rest(struct run *r, struct line *l)
{
    for (int i = 0; i < REST_READS && l->fd >= 0; i++)
        take_output(r, l);
    if (l->fd >= 0)
        tell(r, l); /* a line without an end, whose pipe a background process keeps open */
}

/* ------------------------------------------------------------------ input */

static void feed(struct run *r)
{
    ssize_t n;

    if (r->block_sent == r->block_len) {
        n = read(r->command->input, r->block, sizeof(r->block));
        r->block_len = n > 0 ? (size_t)n : 0;
        r->block_sent = 0;
    }
    n = r->block_len ? write(r->input, r->block + r->block_sent, r->block_len - r->block_sent) : 0;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0)
        r->input = cove_close(r->input); /* all was sent, or the command has closed its stdin */
    else
        r->block_sent += (size_t)n;
}

/* ------------------------------------------------------------------ the command's end */

static int take_event(struct run *r, struct cove_err *e)
{
    struct box_event event;
    int n = box_next_event(&r->job->conn, 0, &event, e);

    if (n < 0)
        return -1;
    if (n > 0 && event.kind == BOX_EVENT_DENIED)
        log_add(r->job->build, BUILD_ERROR, r->job->step, event.text, strlen(event.text));
    if (n > 0 && event.kind == BOX_EVENT_EXITED && event.exited.proc == r->proc) {
        r->ended = true;
        r->end = event.exited.end;
    }
    return 0;
}

static int pump(struct run *r, struct cove_err *e)
{
    uint64_t until = 0;

    while (!r->ended || ((r->out.fd >= 0 || r->err.fd >= 0) && clock_boot_ms() < until)) {
        struct pollfd p[] = { { r->out.fd, POLLIN, 0 },
                              { r->err.fd, POLLIN, 0 },
                              { r->input, POLLOUT, 0 },
                              { r->ended ? -1 : r->job->conn.sock, POLLIN, 0 } };

        if (poll(p, ARRAY_SIZE(p), LOOK_MS) < 0 && errno != EINTR)
            return cove_fail_errno(e, COVE_INTERNAL, "poll");
        if (p[0].revents)
            take_output(r, &r->out);
        if (p[1].revents)
            take_output(r, &r->err);
        if (p[2].revents)
            feed(r);
        if (p[3].revents && take_event(r, e) < 0)
            return -1;
        if (r->ended && !until)
            until = clock_boot_ms() + LAST_WORDS_MS;
        if (!r->ended && build_is_dropped(r->job->build))
            return cove_fail(e, COVE_GONE, "the template was deleted");
    }
    take_rest(r, &r->out);
    take_rest(r, &r->err);
    return 0;
}

/* ------------------------------------------------------------------ the command's beginning */

static int make_pipe(int *ret_ours, int *ret_theirs, bool we_read, struct cove_err *e)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC) < 0)
        return cove_fail_errno(e, COVE_BUSY, "pipe");
    *ret_ours = we_read ? fds[0] : fds[1];
    *ret_theirs = we_read ? fds[1] : fds[0];
    fcntl(*ret_ours, F_SETFL, O_NONBLOCK);
    return 0;
}

static int spawn(struct run *r, int in, int out, int err, struct cove_err *e)
{
    const struct build_command *c = r->command;
    const struct build_job *j = r->job;
    const struct cove_config *config = &j->builder->config;
    bool no_bash = (j->own ? j->own : j->template)->no_bash;
    const char *const shell[] = { no_bash ? "/bin/sh" : "/bin/bash", "-l", "-c", c->text, NULL };
    struct spawn_args args = {
        .user = c->user,
        .cwd = c->cwd,
        .argv = c->argv ? c->argv : shell,
        .base_env = c->own ? NULL : (const char *const *)j->env,
        .common_env = c->own ? NULL : config->environment,
        .flags = SPAWN_TIED | (j->filter.exec_time ? SPAWN_NOTIFY : 0),
        .context = j->build->dialect,
        .stdin_fd = in,
        .stdout_fd = out,
        .stderr_fd = err,
        .filter_fd = j->filter.fd,
        .timeout_ms = (uint32_t)config->build_timeout_ms,
        .max_open_files = config->open_files_max,
        .max_file_bytes = config->file_max_bytes,
    };
    struct box_spawned spawned;

    if (box_spawn(&r->job->conn, &args, &spawned, NULL, e) < 0)
        return -1;
    r->proc = spawned.proc;
    return 0;
}

int command_run(struct build_job *j, const struct build_command *c, struct cove_end *ret,
                char last[256], struct cove_err *e)
{
    struct run *r = calloc(1, sizeof(*r));
    int out = -1, err = -1, in = -1, rc;

    if (!r)
        abort();
    *r = (struct run){ .job = j, .command = c, .input = -1, .last = last };
    r->out = (struct line){ .fd = -1, .level = BUILD_INFO };
    r->err = (struct line){ .fd = -1, .level = BUILD_WARN };
    last[0] = '\0';
    rc = make_pipe(&r->out.fd, &out, true, e) < 0 || make_pipe(&r->err.fd, &err, true, e) < 0 ||
                 (c->input >= 0 && make_pipe(&r->input, &in, false, e) < 0)
             ? -1
             : spawn(r, in, out, err, e);
    cove_close(out);
    cove_close(err);
    cove_close(in);
    if (rc == 0)
        rc = pump(r, e);
    cove_close(r->out.fd);
    cove_close(r->err.fd);
    cove_close(r->input);
    if (rc == 0)
        *ret = r->end;
    free(r);
    return rc;
}
