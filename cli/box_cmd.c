/* cove exec, cove logs, cove kill: one sandbox, looked into by its operator. */
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boxes.h"
#include "cove/client.h"
#include "cove/mem.h"
#include "cove/ring.h"
#include "cove/text.h"

/* ------------------------------------------------------------------ exec */

/* The operator's command is inside the same wall as everybody's: the default seccomp profile holds
 * for it too. */
static int open_filter(const struct cove_config *c)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/profiles/default.bpf", c->run_dir);
    return open(path, O_RDONLY | O_CLOEXEC);
}

static int wait_for_end(struct box_conn *conn, struct cove_end *ret, struct cove_err *e)
{
    struct box_event event;
    int rc;

    while ((rc = box_next_event(conn, 60000, &event, e)) >= 0) {
        if (rc == 1 && event.kind == BOX_EVENT_EXITED) {
            *ret = event.exited.end;
            return 0;
        }
        if (rc == 1 && event.kind == BOX_EVENT_DENIED)
            fprintf(stderr, "cove: denied: %s\n", event.text);
    }
    return -1;
}

static int run(const struct cove_config *config, const char *id, struct spawn_args *args,
               struct cove_end *ret, struct cove_err *e)
{
    AUTO_CLOSE int filter = open_filter(config);
    struct box_spawned spawned;
    struct box_conn conn;
    int rc;

    if (filter < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "the default seccomp profile");
    if (box_open(config->run_dir, id, &conn, e) < 0)
        return -1;
    args->filter_fd = filter;
    rc = box_spawn(&conn, args, &spawned, NULL, e);
    if (rc == 0)
        rc = wait_for_end(&conn, ret, e);
    box_close(&conn);
    return rc;
}

int cli_exec(int argc, char **argv)
{
    static const struct option longs[] = { { "user", required_argument, NULL, 'u' },
                                           { "cwd", required_argument, NULL, 'w' },
                                           { 0 } };
    struct spawn_args args = { .stdin_fd = 0, .stdout_fd = 1, .stderr_fd = 2, .flags = SPAWN_TIED };
    struct cove_end end = { 0 };
    struct cove_config config;
    struct box_info box;
    struct cove_err e;
    int c;

    optind = 1;
    while ((c = getopt_long(argc, argv, "+u:w:", longs, NULL)) != -1) {
        if (c == 'u')
            args.user = optarg;
        else if (c == 'w')
            args.cwd = optarg;
        else
            return CLI_ERROR;
    }
    if (optind < argc - 1 && strcmp(argv[optind + 1], "--") == 0) {
        argv[optind + 1] = argv[optind]; /* SANDBOX -- PROGRAM: the dashes may stand there, too */
        optind++;
    }
    if (argc - optind < 2)
        return cli_usage("cove exec [--user U] [--cwd DIR] SANDBOX PROGRAM [ARG]...");
    args.argv = (const char *const *)argv + optind + 1;
    if (boxes_open(argv[optind], &config, &box, &e) < 0 ||
        run(&config, box.id, &args, &end, &e) < 0)
        return cli_fail(&e);
    if (end.cause != END_OWN) {
        char why[160];

        end_describe(&end, why, sizeof(why));
        fprintf(stderr, "cove: %s\n", why);
    }
    return end_exit_code(&end);
}

/* ------------------------------------------------------------------ logs */

static int show_proc(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    (void)arg;
    printf("%-6u  %-6u  %-8s  %-4s  %-16s  %.100s\n", p->proc, p->pid,
           p->running ? "running" : "ended", p->flags & SPAWN_LOG ? "yes" : "-",
           *label ? label : "-", command);
    return 0;
}

static int list_procs(struct box_conn *conn, struct cove_err *e)
{
    printf("%-6s  %-6s  %-8s  %-4s  %-16s  %s\n", "PROC", "PID", "STATE", "LOG", "LABEL",
           "COMMAND");
    return box_procs(conn, show_proc, NULL, e);
}

/* All there is; with follow, until the process has ended. */
static int copy_log(struct box_conn *conn, uint32_t proc, struct ring_reader *ring, bool follow,
                    struct cove_err *e)
{
    static char bytes[RING_REC_MAX];
    bool more = true;

    for (;;) {
        struct ring_rec rec;
        struct box_event event;
        uint64_t gap;
        int rc;

        while ((rc = ring_read(ring, &rec, bytes, &gap, e)) == 1) {
            if (gap)
                fprintf(stderr, "cove: %" PRIu64 " bytes of older output are gone\n", gap);
            fwrite(bytes, 1, rec.len, rec.stream == RING_STDERR ? stderr : stdout);
        }
        fflush(stdout);
        if (rc < 0 || !follow || !more)
            return rc;
        if (box_log_arm(conn, proc, ring->pos, e) < 0)
            return -1;
        while ((rc = box_next_event(conn, 60000, &event, e)) == 0)
            ;
        if (rc < 0)
            return -1;
        more = event.kind != BOX_EVENT_TICK || event.tick.running;
    }
}

static int show_log(struct box_conn *conn, const char *which, bool follow, struct cove_err *e)
{
    struct box_log_opened opened;
    struct ring_reader ring;
    AUTO_CLOSE int fd = -1;
    uint64_t proc = 0;
    bool by_number = text_parse_u64(which, &proc, NULL) == 0 && proc <= UINT32_MAX;

    if (box_log(conn, by_number ? (uint32_t)proc : 0, by_number ? "" : which, &opened, &fd, e) <
            0 ||
        ring_reader_init(&ring, fd, 0, e) < 0)
        return -1;
    return copy_log(conn, opened.proc, &ring, follow, e);
}

int cli_logs(int argc, char **argv)
{
    static const struct option longs[] = { { "follow", no_argument, NULL, 'f' }, { 0 } };
    struct cove_config config;
    struct box_conn conn;
    struct box_info box;
    struct cove_err e;
    bool follow = false;
    int c, rc;

    optind = 1;
    while ((c = getopt_long(argc, argv, "f", longs, NULL)) != -1) {
        if (c != 'f')
            return CLI_ERROR;
        follow = true;
    }
    if (argc - optind < 1 || argc - optind > 2)
        return cli_usage("cove logs SANDBOX [PROC|LABEL [--follow]]");
    if (boxes_open(argv[optind], &config, &box, &e) < 0 ||
        box_open(config.run_dir, box.id, &conn, &e) < 0)
        return cli_fail(&e);
    rc = argc - optind == 1 ? list_procs(&conn, &e) : show_log(&conn, argv[optind + 1], follow, &e);
    box_close(&conn);
    return rc < 0 ? cli_fail(&e) : CLI_OK;
}

/* ------------------------------------------------------------------ kill */

static int kill_one(const char *word, struct cove_err *e)
{
    struct keeper_retire args = { 0 };
    struct keeper_link keeper;
    struct cove_config config;
    struct box_info box;
    int rc;

    if (boxes_open(word, &config, &box, e) < 0)
        return -1;
    if (!box.tenant[0])
        return cove_fail(e, COVE_CONFLICT, "sandbox '%s' is nobody's yet", box.id);
    keeper = KEEPER_LINK(config.run_dir);
    text_copy(args.tenant, sizeof(args.tenant), box.tenant);
    text_copy(args.id, sizeof(args.id), box.id);
    rc = keeper_retire(&keeper, &args, e);
    keeper_link_done(&keeper);
    if (rc == 0)
        printf("%s\n", box.id);
    return rc;
}

int cli_kill(int argc, char **argv)
{
    struct cove_err e;
    int rc = CLI_OK;

    if (argc < 2 || argv[1][0] == '-')
        return cli_usage("cove kill SANDBOX...");
    for (int i = 1; i < argc; i++)
        if (kill_one(argv[i], &e) < 0)
            rc = cli_fail(&e);
    return rc;
}
