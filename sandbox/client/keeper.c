/* What can be asked of the keeper. See client.c. */
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "sandbox/client/client_private.h"

enum {
    KEEPER_ANSWER_MS = 30000,
    KEEPER_CAPTURE_MS = 600000,   /* long, for disks where files are copied */
    KEEPER_STORE_MS = 30 * 60000, /* a sandbox goes to the store or comes from there */
    KEEPER_RETRY_MS = 5000,
    KEEPER_COMMAND_MS = 90000, /* an operator's command */
    AUDIT_COMMAND_BYTES = 4096,
};

/* ------------------------------------------------------------------ the keeper */

void keeper_link_done(struct keeper_link *k)
{
    k->sock = cove_close(k->sock);
}

static const struct msg_rule keeper_answers[] = {
    { MSG_ERROR, sizeof(struct cove_err), 0, 0, 0 },
    { MSG_DONE, 0, 0, 0, 0 },
    { KEEPER_BOX, sizeof(struct keeper_box), 0, 0, 0 },
    { KEEPER_SNAPSHOT, sizeof(struct keeper_snapshot), 0, 0, 0 },
    { KEEPER_SNAPSHOT_LIST, sizeof(struct keeper_snapshot_list), 0, 0, 0 },
    { KEEPER_NONCE, sizeof(struct keeper_nonce), 0, 0, 0 },
    { KEEPER_REFUSAL_LIST, sizeof(struct keeper_refusal_list), 0, 0, 0 },
    { KEEPER_OUTPUT, sizeof(struct keeper_output), 0, 1, 1 },
    { KEEPER_ARCHIVE, sizeof(struct keeper_archive), 0, 1, 1 },
    { 0 },
};

struct question {
    uint32_t type;
    const void *body;
    size_t len;
    int fd;           /* sent with the request; -1 = none */
    uint32_t want;    /* type of the answer */
    uint64_t wait_ms; /* how long to wait for the answer; 0 = KEEPER_ANSWER_MS */
    int *ret_fd;      /* a file comes with the answer; NULL: none does */
};

static int keeper_try(struct keeper_link *k, const struct question *q, void *ret, size_t ret_size,
                      struct cove_err *e)
{
    char buf[1024 + sizeof(struct keeper_snapshot_list)];
    uint64_t most_ms = q->wait_ms ? q->wait_ms : KEEPER_ANSWER_MS;
    struct msg m;
    int rc;

    if (k->sock < 0 && client_connect(k->run_dir, "keeper.sock", &k->sock, e) < 0)
        return -1;
    if (msg_send(k->sock,
                 &(struct msg_out){ q->type, .tag = ++k->tag, .body = q->body, .body_len = q->len,
                                    .fds = &q->fd, .fd_count = q->fd >= 0 },
                 0, e) < 0)
        return -1;
    if (!client_wait(k->sock, POLLIN, clock_boot_ms() + most_ms))
        return cove_fail(e, COVE_BUSY, "the keeper does not answer");
    rc = msg_recv(k->sock, buf, sizeof(buf), keeper_answers, 0, &m, e);
    if (rc == 0)
        return cove_fail(e, COVE_GONE, "the keeper closed the connection");
    if (rc < 0)
        return -1;
    if (m.head.type == MSG_ERROR) {
        client_raise(&m, e);
        return 1; /* an error is an answer, too: the connection is good */
    }
    if (m.head.type != q->want || m.head.tag != k->tag) {
        msg_close_fds(&m);
        return cove_fail(e, COVE_INTERNAL, "the keeper answered with the wrong type of message");
    }
    if (q->ret_fd)
        *q->ret_fd = m.fds[0];
    if (ret)
        memcpy(ret, m.body, ret_size);
    return 0;
}

/*
 * Asks, and asks again while the keeper is being restarted. All requests of workers may be sent twice: a second
 * claim finds the sandbox of the first, a second retirement finds none. A claim without a project makes a
 * second sandbox only if the keeper died between making the first one and answering; the first one then ends
 * when its lifetime is over.
 */
static int ask_until_answered(struct keeper_link *k, const struct question *q, void *ret,
                              size_t ret_size, struct cove_err *e)
{
    uint64_t until = clock_boot_ms() + KEEPER_RETRY_MS;
    struct cove_err err = { 0 };

    for (;;) {
        int rc = keeper_try(k, q, ret, ret_size, &err);

        if (rc == 0)
            return 0;
        if (rc < 0)
            keeper_link_done(k);
        if (rc > 0 || err.code != COVE_GONE || clock_boot_ms() >= until)
            break;
        poll(NULL, 0, 50);
    }
    if (err.code == COVE_GONE)
        err.code = COVE_BUSY; /* COVE_GONE is for sandboxes; the keeper comes back */
    if (e)
        *e = err;
    return -1;
}

/* For requests that are answered with MSG_DONE. */
static int keeper_tell(struct keeper_link *k, uint32_t type, const void *body, size_t len,
                       struct cove_err *e)
{
    const struct question q = { type, body, len, -1, MSG_DONE, 0, NULL };

    return ask_until_answered(k, &q, NULL, 0, e);
}

/* The keeper takes attributes only in a sealed file, which can no longer change. */
static int seal_attributes(const void *bytes, size_t len, int *ret, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;

    if (len > COVE_ATTRIBUTES_MAX)
        return cove_fail(e, COVE_INVALID, "attributes of %zu bytes, the limit is %d", len,
                         COVE_ATTRIBUTES_MAX);
    fd = memfd_create("cove-attributes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || write(fd, bytes, len) != (ssize_t)len ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return cove_fail_errno(e, COVE_INTERNAL, "attributes");
    *ret = take_fd(&fd);
    return 0;
}

int keeper_claim(struct keeper_link *k, const struct keeper_claim *args, const void *attributes,
                 size_t attributes_len, struct keeper_box *ret, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;
    struct keeper_box box;
    struct question q = {
        KEEPER_CLAIM, args, sizeof(*args), -1, KEEPER_BOX, KEEPER_STORE_MS, NULL
    };

    if (attributes && seal_attributes(attributes, attributes_len, &fd, e) < 0)
        return -1;
    q.fd = fd;
    if (ask_until_answered(k, &q, &box, sizeof(box), e) < 0)
        return -1;
    box.id[sizeof(box.id) - 1] = '\0';
    *ret = box;
    return 0;
}

int keeper_attributes(struct keeper_link *k, const struct keeper_which *args, const void *bytes,
                      size_t len, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;
    struct question q = { KEEPER_ATTRIBUTES, args, sizeof(*args), -1, MSG_DONE, 0, NULL };

    if (seal_attributes(bytes, len, &fd, e) < 0)
        return -1;
    q.fd = fd;
    return ask_until_answered(k, &q, NULL, 0, e);
}

int keeper_retire(struct keeper_link *k, const struct keeper_retire *args, struct cove_err *e)
{
    return keeper_tell(k, KEEPER_RETIRE, args, sizeof(*args), e);
}

int keeper_extend(struct keeper_link *k, const struct keeper_extend *args, struct cove_err *e)
{
    return keeper_tell(k, KEEPER_EXTEND, args, sizeof(*args), e);
}

int keeper_network(struct keeper_link *k, const struct keeper_network *args, struct cove_err *e)
{
    return keeper_tell(k, KEEPER_NETWORK, args, sizeof(*args), e);
}

int keeper_freeze(struct keeper_link *k, const struct keeper_extend *args, struct cove_err *e)
{
    return keeper_tell(k, KEEPER_FREEZE, args, sizeof(*args), e);
}

int keeper_thaw(struct keeper_link *k, const struct keeper_extend *args, struct cove_err *e)
{
    return keeper_tell(k, KEEPER_THAW, args, sizeof(*args), e);
}

/* ------------------------------------------------------------------ snapshots */

int keeper_capture(struct keeper_link *k, const struct keeper_capture *args,
                   struct keeper_snapshot *ret, struct cove_err *e)
{
    const struct question q = { KEEPER_CAPTURE,    args, sizeof(*args), -1, KEEPER_SNAPSHOT,
                                KEEPER_CAPTURE_MS, NULL };

    return ask_until_answered(k, &q, ret, sizeof(*ret), e);
}

int keeper_capture_as(struct keeper_link *k, const struct keeper_capture *args,
                      const char *manifest, struct keeper_snapshot *ret, struct cove_err *e)
{
    struct question q = { KEEPER_CAPTURE,   args, sizeof(*args), -1, KEEPER_SNAPSHOT,
                          KEEPER_CAPTURE_MS };
    AUTO_CLOSE int fd = -1;

    if (seal_attributes(manifest, strlen(manifest), &fd, e) < 0)
        return -1;
    q.fd = fd;
    return ask_until_answered(k, &q, ret, sizeof(*ret), e);
}

int keeper_snapshot_tag(struct keeper_link *k, const struct keeper_snapshot_tag *args,
                        struct keeper_snapshot *ret, struct cove_err *e)
{
    const struct question q = { KEEPER_SNAPSHOT_TAG, args, sizeof(*args), -1, KEEPER_SNAPSHOT, 0 };

    return ask_until_answered(k, &q, ret, sizeof(*ret), e);
}

bool keeper_snapshot_has_tag(const struct keeper_snapshot *s, const char *tag)
{
    size_t len = strlen(tag);

    for (const char *at = s->tags; at && *at; at = strchr(at, ' '), at += at != NULL)
        if (strcspn(at, " ") == len && strncmp(at, tag, len) == 0)
            return true;
    return false;
}

/* Does `word` mean this snapshot? It is an id, NAME or NAME:TAG. */
static bool keeper_snapshot_is(const struct keeper_snapshot *s, const char *word)
{
    size_t len = strcspn(word, ":");
    const char *tag = word[len] ? word + len + 1 : COVE_TAG_DEFAULT;

    if (strcmp(tag, COVE_TAG_DEFAULT) == 0 && strlen(s->id) == len &&
        strncmp(s->id, word, len) == 0)
        return true;
    return len > 0 && strlen(s->name) == len && strncmp(s->name, word, len) == 0 &&
           keeper_snapshot_has_tag(s, tag);
}

int keeper_snapshots(struct keeper_link *k, const char *tenant, keeper_snapshot_fn each, void *arg,
                     struct cove_err *e)
{
    struct keeper_snapshots args = { 0 };
    struct keeper_snapshot_list page;
    const struct question q = { KEEPER_SNAPSHOTS,     &args, sizeof(args), -1,
                                KEEPER_SNAPSHOT_LIST, 0,     NULL };

    text_copy(args.tenant, sizeof(args.tenant), tenant);
    do {
        if (ask_until_answered(k, &q, &page, sizeof(page), e) < 0)
            return -1;
        for (uint32_t i = 0; i < page.head.count && i < KEEPER_SNAPSHOT_PAGE; i++)
            if (each(arg, &page.items[i]) != 0)
                return 0;
        args.from = page.head.next;
    } while (page.head.more);
    return 0;
}

struct snapshot_search {
    const char *word;
    struct keeper_snapshot *ret;
    bool found;
};

static int compare(void *arg, const struct keeper_snapshot *s)
{
    struct snapshot_search *search = arg;

    search->found = keeper_snapshot_is(s, search->word);
    if (search->found)
        *search->ret = *s;
    return search->found;
}

int keeper_snapshot_find(struct keeper_link *k, const char *tenant, const char *word,
                         struct keeper_snapshot *ret, struct cove_err *e)
{
    struct snapshot_search search = { .word = word, .ret = ret };

    return keeper_snapshots(k, tenant, compare, &search, e) < 0 ? -1 : search.found;
}

int keeper_snapshot_remove(struct keeper_link *k, const struct keeper_snapshot_name *args,
                           struct cove_err *e)
{
    return keeper_tell(k, KEEPER_SNAPSHOT_REMOVE, args, sizeof(*args), e);
}

/* ------------------------------------------------------------------ operators */

int keeper_operator_nonce(struct keeper_link *k, struct keeper_nonce *ret, struct cove_err *e)
{
    const struct question q = { KEEPER_OPERATOR_NONCE, NULL, 0, -1, KEEPER_NONCE, 0, NULL };
    struct keeper_nonce nonce;

    if (ask_until_answered(k, &q, &nonce, sizeof(nonce), e) < 0)
        return -1;
    nonce.nonce[sizeof(nonce.nonce) - 1] = '\0';
    *ret = nonce;
    return 0;
}

int keeper_operator(struct keeper_link *k, const struct keeper_operator *ask, const char *text,
                    struct keeper_output *ret, int *ret_fd, struct cove_err *e)
{
    AUTO_BUF struct buf body = BUF(8192);
    struct question q = { KEEPER_OPERATOR, NULL, 0, -1, KEEPER_OUTPUT, KEEPER_COMMAND_MS, ret_fd };

    buf_add(&body, ask, sizeof(*ask));
    buf_add(&body, text, strlen(text) + 1);
    q.body = body.data;
    q.len = body.len;
    return ask_until_answered(k, &q, ret, sizeof(*ret), e);
}

/* ------------------------------------------------------------------ audit */

int keeper_refusals(struct keeper_link *k, const struct keeper_which *args,
                    struct keeper_refusal_list *ret, struct cove_err *e)
{
    const struct question q = { KEEPER_REFUSALS,     args, sizeof(*args), -1,
                                KEEPER_REFUSAL_LIST, 0,    NULL };

    if (ask_until_answered(k, &q, ret, sizeof(*ret), e) < 0)
        return -1;
    ret->count = ret->count < KEEPER_REFUSALS_MAX ? ret->count : KEEPER_REFUSALS_MAX;
    return 0;
}

int keeper_saved_archive(struct keeper_link *k, const struct keeper_which *args,
                         struct keeper_archive *ret, int *ret_fd, struct cove_err *e)
{
    const struct question q = { KEEPER_SAVED_ARCHIVE, args, sizeof(*args), -1,
                                KEEPER_ARCHIVE,       0,    ret_fd };

    return ask_until_answered(k, &q, ret, sizeof(*ret), e);
}

int keeper_save(struct keeper_link *k, const struct keeper_which *args, struct cove_err *e)
{
    const struct question q = { KEEPER_SAVE,     args, sizeof(*args), -1, MSG_DONE,
                                KEEPER_STORE_MS, NULL };

    return ask_until_answered(k, &q, NULL, 0, e);
}

int keeper_wake(struct keeper_link *k, const struct keeper_extend *args, struct keeper_box *ret,
                struct cove_err *e)
{
    const struct question q = { KEEPER_WAKE,     args, sizeof(*args), -1, KEEPER_BOX,
                                KEEPER_STORE_MS, NULL };
    struct keeper_box box;

    if (ask_until_answered(k, &q, &box, sizeof(box), e) < 0)
        return -1;
    box.id[sizeof(box.id) - 1] = '\0';
    *ret = box;
    return 0;
}

static void add_str(struct buf *tail, const char *s)
{
    buf_add(tail, s ? s : "", (s ? strlen(s) : 0) + 1);
}

int keeper_audit(struct keeper_link *k, const struct keeper_audit_entry *entry, struct cove_err *e)
{
    const char *const fields[] = { entry->event,   entry->dialect, entry->tenant, entry->key,
                                   entry->project, entry->sandbox, entry->rule,   entry->form };
    const struct keeper_audit head = { .command_bytes = entry->command_bytes };
    const char *command = entry->command ? entry->command : "";
    AUTO_BUF struct buf body = BUF(8192);

    buf_add(&body, &head, sizeof(head));
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        add_str(&body, fields[i]);
    buf_add(&body, command, strnlen(command, AUDIT_COMMAND_BYTES));
    buf_add(&body, "", 1);
    return keeper_tell(k, KEEPER_AUDIT, body.data, body.len, e);
}
