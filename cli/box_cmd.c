/* cove logs, cove kill: what an operator does with one sandbox. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/boxes.h"
#include "cli/json.h"
#include "cove/client.h"
#include "cove/json.h"
#include "cove/mem.h"
#include "cove/ring.h"
#include "cove/text.h"

/* ------------------------------------------------------------------ logs */

struct logs {
    bool follow, json, to_terminal;
    struct cli_json list; /* of processes */
};

/* Text that comes out of a sandbox must not steer the terminal of the person who looks at it: control
 * characters become '?'. */
static void put_plain(const char *text, size_t len, bool keep_lines, FILE *out)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        bool is_line = keep_lines && (c == '\n' || c == '\t');

        putc((c < ' ' && !is_line) || c == 0x7f ? '?' : c, out);
    }
}

struct proc_json {
    int64_t proc, pid;
    bool running, log;
    const char *label, *command;
};

static const struct json_field proc_fields[] = {
    JSON_INT(struct proc_json, proc, "proc", JSON_ALWAYS, 0, INT64_MAX),
    JSON_INT(struct proc_json, pid, "pid", JSON_ALWAYS, 0, INT64_MAX),
    JSON_BOOL(struct proc_json, running, "running", JSON_ALWAYS),
    JSON_BOOL(struct proc_json, log, "log", JSON_ALWAYS),
    JSON_STR(struct proc_json, label, "label", JSON_ALWAYS, JSON_ANY),
    JSON_STR(struct proc_json, command, "command", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

static void put_proc(struct json_writer *w, const struct box_proc *p, const char *label,
                     const char *command)
{
    struct proc_json out = {
        .proc = p->proc,
        .pid = p->pid,
        .running = p->running,
        .log = p->flags & SPAWN_LOG,
        .label = label,
        .command = command,
    };

    json_put_object(w, NULL, proc_fields, &out);
}

static int show_proc(void *arg, const struct box_proc *p, const char *label, const char *command)
{
    struct logs *o = arg;

    if (o->json) {
        put_proc(&o->list.w, p, label, command);
        return 0;
    }
    printf("%-6u  %-6u  %-8s  %-4s  ", p->proc, p->pid, p->running ? "running" : "ended",
           p->flags & SPAWN_LOG ? "yes" : "-");
    put_plain(*label ? label : "-", *label ? strlen(label) : 1, false, stdout);
    printf("%*s  ", (int)(strlen(label) < 16 ? 16 - (*label ? strlen(label) : 1) : 0), "");
    put_plain(command, strnlen(command, 100), false, stdout);
    putchar('\n');
    return 0;
}

static int list_procs(struct box_conn *conn, struct logs *o, struct cove_err *e)
{
    int rc;

    if (o->json)
        cli_json_begin(&o->list, '[');
    else
        printf("%-6s  %-6s  %-8s  %-4s  %-16s  %s\n", "PROC", "PID", "STATE", "LOG", "LABEL",
               "COMMAND");
    rc = box_procs(conn, show_proc, o, e);
    if (o->json)
        cli_json_end(&o->list, ']');
    return rc;
}

struct record_json {
    int64_t time_unix_ms;
    const char *stream;
    struct json_text text;
};

static const struct json_field record_fields[] = {
    JSON_INT(struct record_json, time_unix_ms, "time_unix_ms", JSON_ALWAYS, 0, INT64_MAX),
    JSON_STR(struct record_json, stream, "stream", JSON_ALWAYS, JSON_ANY),
    JSON_TEXT(struct record_json, text, "text", JSON_ALWAYS, JSON_ANY),
    JSON_END,
};

static void show_record_json(const struct ring_rec *rec, const char *bytes)
{
    struct record_json out = {
        .time_unix_ms = (int64_t)(rec->unix_ns / 1000000),
        .stream = rec->stream == RING_STDERR ? "stderr" : "stdout",
        .text = { bytes, rec->len },
    };

    cli_json_print(record_fields, &out);
}

static void show_record(const struct logs *o, const struct ring_rec *rec, const char *bytes)
{
    FILE *out = rec->stream == RING_STDERR ? stderr : stdout;

    if (o->json)
        show_record_json(rec, bytes);
    else if (o->to_terminal)
        put_plain(bytes, rec->len, true, out);
    else
        fwrite(bytes, 1, rec->len, out);
}

/* Copies what the log holds; with `follow`, goes on until the process has ended. */
static int copy_log(struct box_conn *conn, uint32_t proc, struct ring_reader *ring,
                    const struct logs *o, struct cove_err *e)
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
            show_record(o, &rec, bytes);
        }
        fflush(stdout);
        if (rc < 0 || !o->follow || !more)
            return rc;
        if (box_log_arm(conn, proc, ring->pos, 0, e) < 0)
            return -1;
        while ((rc = box_next_event(conn, 60000, &event, e)) == 0)
            ;
        if (rc < 0)
            return -1;
        more = event.kind != BOX_EVENT_TICK || event.tick.running;
    }
}

static int show_log(struct box_conn *conn, const char *which, const struct logs *o,
                    struct cove_err *e)
{
    struct box_log_opened opened;
    struct ring_reader ring;
    AUTO_CLOSE int fd = -1;
    uint64_t proc = 0;
    bool by_number = text_parse_u64(which, &proc, NULL) == 0 && proc <= UINT32_MAX;

    if (box_log(conn, by_number ? (uint32_t)proc : 0, by_number ? "" : which, &opened, &fd, e) < 0)
        return cove_context(e,
                            "process '%.40s' has no log to show (`cove logs SANDBOX` lists the "
                            "processes; LOG says which have one)",
                            which);
    if (ring_reader_init(&ring, fd, 0, e) < 0)
        return -1;
    return copy_log(conn, opened.proc, &ring, o, e);
}

int cli_logs(int argc, char **argv)
{
    static const struct option longs[] = { { "follow", no_argument, NULL, 'f' },
                                           { "json", no_argument, NULL, 'j' },
                                           { 0 } };
    struct logs o = { .to_terminal = isatty(STDOUT_FILENO) };
    struct cove_config config;
    struct box_conn conn;
    struct box_info box;
    struct cove_err e;
    int c, rc;

    optind = 1;
    while ((c = getopt_long(argc, argv, "fj", longs, NULL)) != -1) {
        if (c != 'f' && c != 'j')
            return CLI_ERROR;
        *(c == 'f' ? &o.follow : &o.json) = true;
    }
    if (argc - optind < 1 || argc - optind > 2)
        return cli_usage("cove logs SANDBOX [PROC|LABEL [--follow]] [--json]");
    if (boxes_open(argv[optind], &config, &box, &e) < 0 ||
        box_open(config.run_dir, box.id, &conn, &e) < 0)
        return cli_fail(&e);
    rc = argc - optind == 1 ? list_procs(&conn, &o, &e) : show_log(&conn, argv[optind + 1], &o, &e);
    box_close(&conn);
    return rc < 0 ? cli_fail(&e) : CLI_OK;
}

/* ------------------------------------------------------------------ kill */

static int kill_one(const char *word, char ret_id[24], struct cove_err *e)
{
    struct keeper_retire args = { 0 };
    struct keeper_link keeper;
    struct cove_config config;
    struct box_info box;
    int rc;

    if (boxes_open(word, &config, &box, e) < 0)
        return -1;
    if (!box.tenant[0])
        return cove_fail(e, COVE_CONFLICT,
                         "sandbox '%s' is one of the pool: it belongs to no tenant yet", box.id);
    keeper = KEEPER_LINK(config.run_dir);
    text_copy(args.tenant, sizeof(args.tenant), box.tenant);
    text_copy(args.id, sizeof(args.id), box.id);
    rc = keeper_retire(&keeper, &args, e);
    keeper_link_done(&keeper);
    text_copy(ret_id, 24, box.id);
    return rc;
}

int cli_kill(int argc, char **argv)
{
    static const struct option longs[] = { { "json", no_argument, NULL, 'j' }, { 0 } };
    struct json_writer *w = NULL;
    struct cli_json out;
    int c, rc = CLI_OK;
    bool json = false;
    struct cove_err e;
    char id[24];

    optind = 1;
    while ((c = getopt_long(argc, argv, "j", longs, NULL)) != -1) {
        if (c != 'j')
            return cli_usage("cove kill SANDBOX... [--json]");
        json = true;
    }
    if (optind == argc)
        return cli_usage("cove kill SANDBOX... [--json]");
    if (json)
        w = cli_json_begin(&out, '[');
    for (int i = optind; i < argc; i++) {
        if (kill_one(argv[i], id, &e) < 0)
            rc = cli_fail(&e);
        else if (json)
            cli_json_put_id(w, id);
        else
            printf("%s\n", id);
    }
    if (json)
        cli_json_end(&out, ']');
    return rc;
}
