/* What workers may ask of the keeper. The table of calls is everything that a worker can make root do. */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/operators.h"
#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/life.h"
#include "sandbox/keeper/store.h"

/* Strings of a message end within their field and hold no control characters. */
static bool is_text(const char *s, size_t size, bool may_be_empty)
{
    size_t len = strnlen(s, size);

    if (len == size || (len == 0 && !may_be_empty))
        return false;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)s[i] < ' ')
            return false;
    return true;
}

#define IS_TEXT(field, may_be_empty) is_text((field), sizeof(field), (may_be_empty))

static void answer_result(struct keeper *k, const struct waiter *w, int rc,
                          const struct cove_err *err)
{
    if (rc < 0)
        keeper_answer_error(k, w, err);
    else
        keeper_answer(k, w, MSG_DONE, NULL, 0);
}

static bool attributes_fit(const struct msg *m)
{
    return m->fd_count == 0 || attributes_are_sealed(m->fds[0]);
}

/* Safe for any caller: at most it makes a sandbox for a tenant, within max_sandboxes. Attributes are
 * a bounded number of bytes that nobody here looks at. */
static bool on_claim(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    struct keeper_claim args;
    struct claim c = { &args, m->fd_count ? m->fds[0] : -1 };

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.template, true) || !IS_TEXT(args.key, true) ||
        !IS_TEXT(args.project, true) || !attributes_fit(m) ||
        (args.project[0] != '\0') == ((args.flags & CLAIM_OWN_PROJECT) != 0))
        return false;
    claim_box(k, &c, w);
    return true;
}

/* Safe: only what carries the tenant's name can die, and a worker speaks for all tenants anyway. */
static bool on_retire(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    struct keeper_retire args;

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.id, true) ||
        !IS_TEXT(args.project, args.id[0] != '\0'))
        return false;
    life_retire(k, &args, w);
    return true;
}

/* Safe: it moves the end of a tenant's own sandbox, within a bound. */
static bool on_extend(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    struct keeper_extend args;
    struct cove_err err = { 0 };

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.id, false))
        return false;
    answer_result(k, w, life_extend(k, &args, &err), &err);
    return true;
}

/* Safe: it can only take away from what the operator allows. Names and address ranges are parsed here, and
 * rules are written from the parsed form. */
static bool on_network(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    static struct keeper_network args; /* too large for the stack */
    struct cove_err err = { 0 };

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.id, false))
        return false;
    answer_result(k, w, life_set_network(k, &args, &err), &err);
    return true;
}

static bool freeze_or_thaw(struct keeper *k, const struct msg *m, bool freeze,
                           const struct waiter *w)
{
    struct keeper_extend args;
    struct cove_err err = { 0 };

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.id, false))
        return false;
    if (life_freeze(k, &args, freeze, w, &err) < 0)
        keeper_answer_error(k, w, &err);
    return true;
}

/* Safe: attributes are a bounded number of bytes, copied unread, as with a claim. */
static bool on_attributes(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    struct keeper_which args;
    struct cove_err err = { 0 };

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.id, false) || !attributes_fit(m))
        return false;
    answer_result(k, w, life_set_attributes(k, &args, m->fds[0], &err), &err);
    return true;
}

/* The text of a sealed memory file. Any other descriptor counts as an empty text. */
static char *read_text(int fd, char *buf, size_t size)
{
    ssize_t n = attributes_are_sealed(fd) ? pread(fd, buf, size - 1, 0) : -1;

    buf[n > 0 && (size_t)n < size ? n : 0] = '\0';
    return buf;
}

/* Safe: a snapshot is made of what carries the tenant's name, and only that tenant's sandboxes can be
 * made of it. The files are not looked into, only copied, by a child process that follows no link.
 * Number and bytes are within the tenant's quota, and few are taken at a time. A manifest says what
 * runs inside such a sandbox, as any client can; what it says of limits and policy counts for nothing. */
static bool on_capture(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    static char manifest[SNAPSHOT_MANIFEST_MAX]; /* too large for the stack */
    struct keeper_capture args;

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.id, false) || !IS_TEXT(args.name, true) ||
        !IS_TEXT(args.tag, true) || args.flags & ~(uint32_t)(CAPTURE_PASSING | CAPTURE_IMAGE))
        return false;
    capture_box(k, &args, m->fd_count ? read_text(m->fds[0], manifest, sizeof(manifest)) : NULL, w);
    return true;
}

/* Safe: it lists snapshots of a tenant, for which a worker speaks anyway. */
static bool on_snapshots(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    static struct keeper_snapshot_list list; /* too large for the stack */
    struct keeper_snapshots args;

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, true))
        return false;
    snapshots_list(k, &args, &list);
    keeper_answer(k, w, KEEPER_SNAPSHOT_LIST, &list, sizeof(list));
    return true;
}

/* Safe: only a snapshot that carries the tenant's name is removed. Its files stay as long as sandboxes or
 * other snapshots need them. */
static bool on_snapshot_remove(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    struct keeper_snapshot_name args;
    struct cove_err err = { 0 };

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.name, false))
        return false;
    answer_result(k, w, snapshots_remove(k, &args, &err), &err);
    return true;
}

/* Safe: it names one of the tenant's own snapshots, in words of bounded length. */
static bool on_snapshot_tag(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    struct keeper_snapshot_tag args;
    struct keeper_snapshot made;
    struct cove_err err = { 0 };

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.which, true) || !IS_TEXT(args.name, false) ||
        !IS_TEXT(args.tag, false) || !IS_TEXT(args.build, true))
        return false;
    if (snapshot_change_tag(k, &args, &made, &err) < 0)
        keeper_answer_error(k, w, &err);
    else
        keeper_answer(k, w, KEEPER_SNAPSHOT, &made, sizeof(made));
    return true;
}

/* Safe: it stops one of the tenant's own sandboxes from running, or lets it go on. */
static bool on_freeze(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    return freeze_or_thaw(k, m, true, w);
}

static bool on_thaw(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    return freeze_or_thaw(k, m, false, w);
}

/* Safe: the tenant's own sandbox and no other; an archive of bounded size in the store, within its
 * tenant's quota; the sandbox ends only after its archive was verified. */
static bool on_save(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    struct keeper_which args;
    struct cove_err err = { 0 };

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.id, false))
        return false;
    if (saving_ask(k, &args, w, &err) < 0)
        keeper_answer_error(k, w, &err);
    return true;
}

/* Safe: like a claim, for a sandbox that the tenant had before. */
static bool on_wake(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    struct keeper_extend args;
    struct cove_err err = { 0 };

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.id, false))
        return false;
    if (waking_ask(k, &args, w, &err) < 0)
        keeper_answer_error(k, w, &err);
    return true;
}

/* The archive of a saved sandbox, opened for reading. */
static int open_archive(struct keeper *k, const struct keeper_which *args,
                        struct keeper_archive *ret, int *ret_fd, struct cove_err *e)
{
    const struct saved_info *info;
    AUTO_CLOSE int dir = -1;
    struct stat st;
    uint32_t index;

    if (!saved_find_id(k, args->tenant, args->id, &index))
        return cove_fail(e, COVE_NOT_FOUND, "no saved sandbox '%s'", args->id);
    info = &k->saved[index].info;
    if (saved_open_dir(k, args->id, &dir, e) < 0)
        return -1;
    *ret = (struct keeper_archive){ .bytes = info->stored_bytes, .encrypted = info->encrypted };
    if (saved_place_of(dir) >= SAVED_IS_OURS)
        return bucket_read(k, index, ret_fd, e);
    *ret_fd = openat(dir, saved_archive_name(info), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (*ret_fd < 0 || fstat(*ret_fd, &st) < 0)
        return cove_fail_errno(e, COVE_NOT_FOUND, "archive of '%s'", args->id);
    ret->bytes = (uint64_t)st.st_size;
    return 0;
}

/* Safe: the tenant's own saved sandbox and no other, for reading. A worker could wake it and read the
 * same files; the archive was written by the keeper's own helpers, and nothing in it is looked at. From a
 * bucket it comes through a helper of its own, of which there are few, and one for a tenant. */
static bool on_saved_archive(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    struct keeper_archive body;
    struct keeper_which args;
    struct cove_err err = { 0 };
    AUTO_CLOSE int fd = -1;

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.id, false))
        return false;
    if (open_archive(k, &args, &body, &fd, &err) < 0)
        keeper_answer_error(k, w, &err);
    else
        keeper_answer_file(k, w, KEEPER_ARCHIVE, &body, sizeof(body), fd);
    return true;
}

/* Safe: it adds a line of bounded length to a file that only root reads, and no more lines than audit_log.c
 * allows. The worker has taken secrets out of the command: no pattern runs over it here, its bytes are only
 * written as JSON. If the line cannot be written, the caller is told. */
static bool on_audit(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    const char *at = (const char *)m->body + sizeof(struct keeper_audit);
    const char *end = (const char *)m->body + m->body_len, *field[9];
    struct keeper_audit head;
    struct cove_err err = { 0 };
    struct audit_entry entry;

    memcpy(&head, m->body, sizeof(head));
    for (size_t i = 0; i < ARRAY_SIZE(field); i++)
        if (!(field[i] = msg_next_str(&at, end)))
            return false;
    entry = (struct audit_entry){
        .event = field[0],
        .dialect = field[1],
        .tenant = field[2],
        .key = field[3][0] ? field[3] : NULL,
        .project = field[4],
        .sandbox = field[5][0] ? field[5] : NULL,
        .rule = field[6][0] ? field[6] : NULL,
        .form = field[7][0] ? field[7] : NULL,
        .command = field[8],
        .command_len = strlen(field[8]),
        .command_bytes = head.command_bytes,
        .ran = strcmp(field[0], "ran") == 0,
    };
    refusals_note(k, &entry);
    answer_result(k, w, k->audit ? audit_append(k->audit, &entry, &err) : 0, &err);
    return true;
}

/* Safe: it answers with what workers have reported before, for the tenant's own sandbox. */
static bool on_refusals(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    struct keeper_refusal_list list;
    struct keeper_which args;

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.tenant, false) || !IS_TEXT(args.id, false))
        return false;
    refusals_list(k, args.tenant, args.id, &list);
    keeper_answer(k, w, KEEPER_REFUSAL_LIST, &list, sizeof(list));
    return true;
}

/* Safe: a nonce is worth nothing without an operator's signature. */
static bool on_operator_nonce(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    struct keeper_nonce nonce;

    (void)m;
    operator_nonce(k, &nonce);
    keeper_answer(k, w, KEEPER_NONCE, &nonce, sizeof(nonce));
    return true;
}

/* Safe: nothing is done that an operator has not signed for this very moment. Until the signature was
 * checked the text is bytes of a bounded length that only a hash is made of. The worker cannot sign, and
 * cannot use a signed request a second time. It sees the answer, which holds no key: new keys are made
 * in the operator's browser, and only their hashes come here. */
static bool on_operator(struct keeper *k, const struct msg *m, const struct waiter *w)
{
    const char *at = (const char *)m->body + sizeof(struct keeper_operator);
    const char *text = msg_next_str(&at, (const char *)m->body + m->body_len);
    char copy[OPERATOR_TEXT_MAX];
    struct keeper_operator args;

    memcpy(&args, m->body, sizeof(args));
    if (!IS_TEXT(args.name, false) || !text || !text_copy(copy, sizeof(copy), text))
        return false;
    operator_ask(k, &args, copy, w);
    return true;
}

struct keeper_call {
    struct msg_rule rule;
    bool (*handle)(struct keeper *k, const struct msg *m, const struct waiter *w);
};

static const struct keeper_call calls[] = {
    /* everything that a worker can make root do */
    { { KEEPER_CLAIM, sizeof(struct keeper_claim), 0, 0, 1 }, on_claim },
    { { KEEPER_RETIRE, sizeof(struct keeper_retire), 0, 0, 0 }, on_retire },
    { { KEEPER_EXTEND, sizeof(struct keeper_extend), 0, 0, 0 }, on_extend },
    { { KEEPER_FREEZE, sizeof(struct keeper_extend), 0, 0, 0 }, on_freeze },
    { { KEEPER_THAW, sizeof(struct keeper_extend), 0, 0, 0 }, on_thaw },
    { { KEEPER_ATTRIBUTES, sizeof(struct keeper_which), 0, 1, 1 }, on_attributes },
    { { KEEPER_SAVE, sizeof(struct keeper_which), 0, 0, 0 }, on_save },
    { { KEEPER_WAKE, sizeof(struct keeper_extend), 0, 0, 0 }, on_wake },
    { { KEEPER_NETWORK, sizeof(struct keeper_network), 0, 0, 0 }, on_network },
    { { KEEPER_CAPTURE, sizeof(struct keeper_capture), 0, 0, 1 }, on_capture },
    { { KEEPER_SNAPSHOTS, sizeof(struct keeper_snapshots), 0, 0, 0 }, on_snapshots },
    { { KEEPER_SNAPSHOT_REMOVE, sizeof(struct keeper_snapshot_name), 0, 0, 0 },
      on_snapshot_remove },
    { { KEEPER_SNAPSHOT_TAG, sizeof(struct keeper_snapshot_tag), 0, 0, 0 }, on_snapshot_tag },
    { { KEEPER_AUDIT, sizeof(struct keeper_audit), 8192, 0, 0 }, on_audit },
    { { KEEPER_REFUSALS, sizeof(struct keeper_which), 0, 0, 0 }, on_refusals },
    { { KEEPER_SAVED_ARCHIVE, sizeof(struct keeper_which), 0, 0, 0 }, on_saved_archive },
    { { KEEPER_OPERATOR_NONCE, 0, 0, 0, 0 }, on_operator_nonce },
    { { KEEPER_OPERATOR, sizeof(struct keeper_operator), OPERATOR_TEXT_MAX, 0, 0 }, on_operator },
};

static const struct keeper_call *find_call(uint32_t type)
{
    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        if (calls[i].rule.type == type)
            return &calls[i];
    return NULL;
}

int calls_take(struct keeper *k, int sock, struct waiter *w, struct cove_err *e)
{
    struct msg_rule rules[ARRAY_SIZE(calls) + 1] = { 0 };
    char buf[16384];
    struct msg m;
    int rc;

    for (size_t n = 0; n < ARRAY_SIZE(calls); n++)
        rules[n] = calls[n].rule;
    rc = msg_recv(sock, buf, sizeof(buf), rules, MSG_DONTWAIT, &m, e);
    if (rc != 1)
        return -1;
    w->tag = m.head.tag;
    rc = find_call(m.head.type)->handle(k, &m, w) ? 0 : -1;
    msg_close_fds(&m);
    return rc;
}
