/*
 * A verdict: may this program be run with these arguments? The question comes from a sandbox's init, so nothing in it
 * is trusted but the sandbox it came from. A denial goes to the log and to the audit log; a try that is repeated at once
 * is written down once.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/dialect.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/policy.h"
#include "cove/text.h"
#include "helpers/judge/judge_private.h"
#include "process/audit_send.h"
#include "process/manifests_live.h"
#include "process/policy_live.h"

enum {
    ARGV_BYTES_MAX = 4 * 1024 * 1024,
    AUDIT_COMMAND_MAX = 4096,
    SAME_TRY_MS = 200,
    LOG_EVERY_MS = 1000
};

static void join_argv(const char *const argv[], size_t argc, struct buf *out)
{
    for (size_t i = 0; i < argc; i++) {
        if (i > 0)
            buf_add_char(out, ' ');
        if (buf_add(out, argv[i], strnlen(argv[i], AUDIT_COMMAND_MAX)) < 0)
            return;
    }
}

/* A loop of refused programs must not fill the disk: at most one line a second for a sandbox, with the
 * number of denials that the line stands for. The audit log has bounds of its own. */
static void log_denial(struct conversation *talk, const struct box_info *box, const char *rule)
{
    uint64_t now = clock_boot_ms();

    talk->unlogged++;
    if (talk->logged_ms && now - talk->logged_ms < LOG_EVERY_MS)
        return;
    log_event(LOG_LEVEL_WARN, "exec denied", LOG_S("tenant", box->tenant),
              LOG_S("project", box->project), LOG_S("sandbox", box->id), LOG_S("rule", rule),
              LOG_N("count", talk->unlogged));
    talk->logged_ms = now;
    talk->unlogged = 0;
}

static void record_denial(struct judge *j, struct conversation *talk, const struct box_info *box,
                          const char *dialect, const struct policy_result *r,
                          const char *const argv[], size_t argc)
{
    struct keeper_audit_entry entry = {
        .event = "exec-denied",
        .dialect = dialect,
        .tenant = box->tenant,
        .project = box->project,
        .sandbox = box->id,
        .rule = r->rule,
        .form = policy_form_name(r->form),
    };
    AUTO_BUF struct buf command = BUF(AUDIT_COMMAND_MAX);
    struct cove_err e = { 0 };

    join_argv(argv, argc, &command);
    entry.command = command.data ? command.data : "";
    log_denial(talk, box, r->rule);
    if (j->config.audit_file[0] && audit_send(&j->keeper, &entry, &e) < 0)
        log_error("audit line lost", &e, LOG_S("sandbox", box->id), LOG_S("rule", r->rule));
}

/* The text that the denied command's caller reads in its stderr. */
static void describe(const struct policy_result *r, const char *const argv[], size_t argc,
                     struct buf *out)
{
    AUTO_BUF struct buf command = BUF(160);

    join_argv(argv, argc, &command);
    buf_addf(out, "cove: refused by policy (%s): %s%s: %s", r->rule,
             command.data ? command.data : "", command.overflow ? " ..." : "", r->reason);
    buf_add(out, "", 1);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/*
 * `words` is the file, then argv. The kernel runs the file, but programs such as busybox do what argv[0]
 * says, so both are judged as the command's name.
 */
static void check_words(const struct policy *policy, const struct policy_query *q,
                        const char *words[], size_t count, struct policy_result *ret)
{
    const char *file = words[0];

    if (count == 1) {
        policy_check_argv(policy, q, words, 1, ret);
        return;
    }
    policy_check_argv(policy, q, words + 1, count - 1, ret);
    if (ret->denied || strcmp(base_name(file), base_name(words[1])) == 0)
        return;
    words[1] = file;
    policy_check_argv(policy, q, words + 1, count - 1, ret);
}

static void send_verdict(struct conversation *talk, uint64_t ask, const struct policy_result *r,
                         const char *const argv[], size_t argc)
{
    const struct judge *j = container_of(talk->watch.loop, struct judge, loop);
    struct box_exec_answer answer = { .ask = ask,
                                      .allow = !r->denied,
                                      .refusals_max = (uint32_t)j->config.exec_refusals_max };
    AUTO_BUF struct buf reason = BUF(1024);

    if (r->denied)
        describe(r, argv, argc, &reason);
    else
        buf_add(&reason, "", 1);
    if (msg_send(talk->watch.fd,
                 &(struct msg_out){ BOX_EXEC_ANSWER, MSG_BODY(answer), .tail = reason.data,
                                    .tail_len = reason.len },
                 MSG_DONTWAIT, NULL) < 0)
        shutdown(talk->watch.fd, SHUT_RDWR);
}

static uint64_t hash_words(const char *const words[], size_t count)
{
    uint64_t hash = TEXT_HASH_START;

    for (size_t i = 0; i < count; i++)
        hash = text_hash_part(hash, words[i]);
    return hash;
}

/*
 * A shell that is denied one folder's program tries the next folder of PATH, with the same
 * arguments: that is one event, not five. Other arguments are another event.
 */
static bool is_same_try(struct conversation *talk, uint32_t pid, uint64_t what)
{
    uint64_t now = clock_boot_ms();
    bool same =
        talk->denied_pid == pid && talk->denied_what == what && now - talk->denied_ms < SAME_TRY_MS;

    talk->denied_pid = pid;
    talk->denied_what = what;
    talk->denied_ms = now;
    return same;
}

/* Reads the sandbox's record. If the slot has another sandbox by now, only the id is filled in. */
static void read_box(struct judge *j, const struct conversation *talk, struct box_info *ret)
{
    state_box_read(j->state, talk->index, ret);
    if (strcmp(ret->id, talk->id) != 0) {
        *ret = (struct box_info){ 0 };
        text_copy(ret->id, sizeof(ret->id), talk->id);
    }
}

/* A manifest may give its template another name for the sections of the policy. */
static const char *policy_name(const struct live_ref *manifests, const char *template)
{
    const struct manifest *m = manifests ? manifests_find(manifests->value, template) : NULL;

    return m && m->policy ? m->policy : template;
}

static void judge_words(struct judge *j, struct conversation *talk, const struct box_exec_ask *ask,
                        const char *words[], size_t count)
{
    const char *dialect = dialect_name(ask->context);
    const char *name = count > 1 ? words[1] : NULL;
    size_t skip = count > 1;
    struct policy_result r = { .denied = true,
                               .form = POLICY_FORM_LIMIT,
                               .rule = "limit",
                               .reason = "its arguments cannot be read, or are too long" };
    struct live_ref *policy = live_get(&j->policy), *manifests = live_get(&j->manifests);
    struct box_info box;

    read_box(j, talk, &box);
    if (count > 0 && !ask->truncated) {
        const char *template = policy_name(manifests, box.template);
        struct policy_query q = { .dialect = dialect, .tenant = box.tenant, .template = template };

        check_words(policy_set_policy(policy->value), &q, words, count, &r);
    }
    send_verdict(talk, ask->ask, &r, words + skip, count - skip);
    if (name)
        words[1] = name; /* check_words() may have put the file there */
    if (r.denied && !is_same_try(talk, ask->pid, hash_words(words + skip, count - skip)))
        record_denial(j, talk, &box, dialect, &r, words + skip, count - skip);
    live_put(manifests);
    live_put(policy); /* not earlier: the verdict points into the policy */
}

/* The words of [at, end), each ended by a NUL; *ret is malloc()ed and has *ret_count of them. */
static int split_words(const char *at, const char *end, const char ***ret, size_t *ret_count)
{
    size_t most = 1, count = 0;
    const char **words;

    for (const char *c = at; c < end; c++)
        most += *c == '\0';
    words = calloc(most, sizeof(*words));
    if (!words)
        return -1;
    while (count < most && (words[count] = msg_next_str(&at, end)))
        count++;
    *ret = words;
    *ret_count = count;
    return 0;
}

/* Long arguments come as a file. It must be one that has seals, which only memory files have: reading
 * any other kind might make the judge wait. */
static ssize_t read_arguments(int fd, char **ret)
{
    char *bytes = fcntl(fd, F_GET_SEALS) >= 0 ? malloc(ARGV_BYTES_MAX) : NULL;
    size_t len = 0;
    ssize_t n = 0;

    while (bytes && len < ARGV_BYTES_MAX &&
           (n = pread(fd, bytes + len, ARGV_BYTES_MAX - len, (off_t)len)) > 0)
        len += (size_t)n;
    *ret = bytes;
    return !bytes || n < 0 ? -1 : (ssize_t)len;
}

void verdict_answer(struct judge *j, struct conversation *talk, const struct msg *m)
{
    static const char *none[] = { NULL };
    AUTO_FREE const char **words = NULL;
    AUTO_FREE char *file = NULL;
    const char *bytes = (const char *)m->body + sizeof(struct box_exec_ask);
    ssize_t len = (ssize_t)(m->body_len - sizeof(struct box_exec_ask));
    struct box_exec_ask ask;
    size_t count = 0;

    memcpy(&ask, m->body, sizeof(ask));
    if (m->fd_count) {
        len = read_arguments(m->fds[0], &file);
        bytes = file;
    }
    if (len < 0 || split_words(bytes, bytes + len, &words, &count) < 0)
        ask.truncated = 1;
    judge_words(j, talk, &ask, words ? words : none, count);
}
