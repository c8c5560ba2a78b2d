/*
 * cove-bucket: moves saved sandboxes to an S3-compatible bucket and back.
 *
 * privilege  own user (the workers'), no capabilities; seccomp, Landlock: reads /etc for names and
 *            certificates, opens no other file
 * does       one order of the keeper or of `cove store`, and ends
 * never      opens an archive, reads what is in one, keeps the credentials anywhere
 *
 * Descriptor 0 is the archive to put, 1 where an archive or a list goes, 3 the connection on which the
 * order comes, with the credentials and the small files of the sandbox beside it, and the report goes.
 * When the process that gave the order dies, so does this one.
 */
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cove/file.h"
#include "cove/log.h"
#include "cove/mem.h"
#include "cove/msg.h"
#include "helpers/bucket/bucket_private.h"
#include "process/confine.h"

enum {
    MEMORY_MAX = 512 << 20,
    OUT_FD = 1,
    ORPHAN_MS = 24 * 3600 * 1000,
};

struct task {
    struct bucket_order order;
    int credentials;
    int ca;                  /* -1: the system's certificates are used */
    int notes[BUCKET_NOTES]; /* -1: there is none */
};

/* ------------------------------------------------------------------ the order */

static bool ends(const char *text, size_t size)
{
    return memchr(text, '\0', size) != NULL;
}

static int check(const struct bucket_order *o, unsigned fds, struct cove_err *e)
{
    const struct bucket_place *p = &o->place;

    if (!ends(p->endpoint, sizeof(p->endpoint)) || !ends(p->region, sizeof(p->region)) ||
        !ends(p->bucket, sizeof(p->bucket)) || !ends(p->prefix, sizeof(p->prefix)) ||
        !ends(o->digest, sizeof(o->digest)) || !ends(o->id, sizeof(o->id)) ||
        !ends(o->name, sizeof(o->name)) || !ends(o->owner, sizeof(o->owner)) || p->has_ca > 1 ||
        o->notes >> BUCKET_NOTES || fds != 1 + p->has_ca + (unsigned)__builtin_popcount(o->notes))
        return cove_fail(e, COVE_INVALID, "not an order");
    return 0;
}

static int take_order(struct task *ret, struct cove_err *e)
{
    static const struct msg_rule rules[] = {
        { BUCKET_ORDER, sizeof(struct bucket_order), 0, 1, 2 + BUCKET_NOTES },
        { 0 },
    };
    char buf[sizeof(struct msg_head) + sizeof(struct bucket_order)];
    unsigned next = 1;
    struct msg m;

    if (msg_recv(BUCKET_SOCK_FD, buf, sizeof(buf), rules, 0, &m, e) != 1)
        return cove_fail(e, COVE_INTERNAL, "no order came");
    memcpy(&ret->order, m.body, sizeof(ret->order));
    if (check(&ret->order, (unsigned)m.fd_count, e) < 0)
        return -1;
    ret->credentials = m.fds[0];
    ret->ca = ret->order.place.has_ca ? m.fds[next++] : -1;
    for (unsigned i = 0; i < BUCKET_NOTES; i++)
        ret->notes[i] = ret->order.notes & 1u << i ? m.fds[next++] : -1;
    return 0;
}

/* ------------------------------------------------------------------ put */

static int put_note(struct s3 *s, const struct task *t, unsigned i, struct cove_err *e)
{
    AUTO_BUF struct buf back = BUF(BUCKET_NOTE_MAX);
    char key[KEY_MAX], bytes[4096];
    uint64_t at = 0;
    bool there;
    ssize_t n;
    struct stat st;

    object_key(s, &t->order, bucket_notes[i], key);
    if (fstat(t->notes[i], &st) < 0 || st.st_size > BUCKET_NOTE_MAX)
        return cove_fail(e, COVE_TOO_LARGE, "%s of the saved sandbox has more than %d bytes",
                         bucket_notes[i], BUCKET_NOTE_MAX);
    if (object_put(s, key, t->notes[i], (uint64_t)st.st_size, e) < 0 ||
        object_read(s, key, &back, &there, e) < 0)
        return -1;
    while ((n = pread(t->notes[i], bytes, sizeof(bytes), (off_t)at)) > 0) {
        if (at + (size_t)n > back.len || memcmp(back.data + at, bytes, (size_t)n) != 0)
            break;
        at += (uint64_t)n;
    }
    if (n != 0 || at != back.len)
        return cove_fail(e, COVE_INVALID, "%s is in the bucket with other bytes", bucket_notes[i]);
    return 0;
}

/* Every failure leaves at most objects without a manifest, and the next try writes over them. */
static int put(struct s3 *s, const struct task *t, struct cove_err *e)
{
    const struct bucket_order *o = &t->order;
    char key[KEY_MAX];

    /* `taken` names this machine, so that no other one wakes the sandbox before the keeper has noted that
     * it is in the bucket. */
    if (owner_write(s, o, e) < 0)
        return -1;
    object_key(s, o, o->name, key);
    object_abort_uploads(s, key, UINT64_MAX);
    if (object_put(s, key, 0, o->bytes, e) < 0 ||
        object_get(s, key, -1, o->bytes, o->digest, NULL, e) < 0)
        return cove_context(e, "putting the archive into the bucket");
    for (unsigned i = 0; i < BUCKET_NOTES; i++)
        if (t->notes[i] >= 0 && put_note(s, t, i, e) < 0)
            return cove_context(e, "putting %s into the bucket", bucket_notes[i]);
    return 0;
}

/* ------------------------------------------------------------------ take, remove */

static void wait_until(uint64_t ms)
{
    for (uint64_t now; (now = clock_boot_ms()) < ms;)
        poll(NULL, 0, (int)(ms - now));
}

static int get_archive(struct s3 *s, const struct bucket_order *o, char *ret_last,
                       struct cove_err *e)
{
    char key[KEY_MAX];

    object_key(s, o, o->name, key);
    return object_get(s, key, OUT_FD, o->bytes, o->digest, ret_last, e);
}

/* While it is not decided yet which machine has the sandbox, the archive is read all the same, but its last byte is
 * kept back: without that byte no archive has the digest of the record, so nothing is made of it. */
static int get_undecided(struct s3 *s, const struct bucket_order *o, uint64_t settled_ms,
                         struct cove_err *e)
{
    char last;

    if (get_archive(s, o, &last, e) < 0)
        return -1;
    wait_until(settled_ms);
    if (owner_check(s, o, e) < 0)
        return -1;
    return write_all(OUT_FD, &last, 1) < 0
               ? cove_fail_errno(e, COVE_LIMIT, "writing what came from the bucket")
               : 0;
}

static int take_and_get(struct s3 *s, const struct bucket_order *o, struct cove_err *e)
{
    uint64_t settled_ms;
    int rc;

    if (owner_take(s, o, &settled_ms, e) < 0)
        return -1;
    rc = settled_ms ? get_undecided(s, o, settled_ms, e) : get_archive(s, o, NULL, e);
    if (rc == 0 || e->code != COVE_NOT_FOUND)
        return rc;
    /* Another machine woke it and removed its objects; only our `taken` is left. */
    owner_release(s, o, NULL);
    return owner_fail(e);
}

static int read_note(struct s3 *s, const struct bucket_order *o, struct cove_err *e)
{
    AUTO_BUF struct buf text = BUF(BUCKET_NOTE_MAX);
    char key[KEY_MAX];
    bool there;

    object_key(s, o, o->name, key);
    if (object_read(s, key, &text, &there, e) < 0)
        return -1;
    if (!there)
        return cove_fail(e, COVE_NOT_FOUND, "the bucket has no %s of this sandbox", o->name);
    return write(OUT_FD, text.data ? text.data : "", text.len) == (ssize_t)text.len
               ? 0
               : cove_fail_errno(e, COVE_LIMIT, "writing what came from the bucket");
}

static int remove_objects(struct s3 *s, const struct bucket_order *o, struct cove_err *e)
{
    static const char *const archives[] = { SAVED_ARCHIVE, SAVED_AGE, BUCKET_TAKEN };
    char key[KEY_MAX];

    /* The manifest goes first: without it no machine takes the rest for a saved sandbox. */
    for (unsigned i = BUCKET_NOTES; i-- > 0;) {
        object_key(s, o, bucket_notes[i], key);
        if (object_remove(s, key, e) < 0)
            return -1;
    }
    for (unsigned i = 0; i < ARRAY_SIZE(archives); i++) {
        object_key(s, o, archives[i], key);
        if (object_remove(s, key, e) < 0)
            return -1;
    }
    object_key(s, o, "", key);
    object_abort_uploads(s, key, UINT64_MAX);
    return 0;
}

static int remove_one(struct s3 *s, const struct bucket_order *o, struct cove_err *e)
{
    char owner[BUCKET_OWNER_TEXT];

    if (owner_read(s, o, owner, e) < 0)
        return -1;
    if (owner[0] && strcmp(owner, o->owner) != 0)
        return 0; /* another machine has taken the sandbox: its objects are that machine's */
    return remove_objects(s, o, e);
}

/* ------------------------------------------------------------------ list, collect */

static int print_one(struct s3 *s, const struct bucket_entry *l, void *arg, struct cove_err *e)
{
    const struct bucket_order *all = arg;
    struct bucket_order one = *all;
    char owner[BUCKET_OWNER_TEXT] = "-";

    memcpy(one.id, l->id, sizeof(one.id));
    one.saved_unix_ms = l->saved_unix_ms;
    if (l->taken && owner_read(s, &one, owner, e) < 0)
        return -1;
    if (!owner[0] || owner[strspn(owner, "0123456789abcdef")])
        text_copy(owner, sizeof(owner), l->taken ? "?" : "-");
    printf("%s %llu %llu %llu %s %s\n", l->id, (unsigned long long)l->saved_unix_ms,
           (unsigned long long)l->bytes, (unsigned long long)l->changed_unix_ms,
           l->whole ? "whole" : "part", owner);
    return 0;
}

/* A machine that is uploading right now has not written its manifest yet: only old objects are orphans. Their age is
 * counted by the bucket's own clock, because this machine's may be wrong. */
static bool is_orphan(const struct s3 *s, const struct bucket_entry *l)
{
    return !l->whole && l->changed_unix_ms + ORPHAN_MS < s->now_unix_ms;
}

static int collect_one(struct s3 *s, const struct bucket_entry *l, void *arg, struct cove_err *e)
{
    const struct bucket_order *all = arg;
    struct bucket_order one = *all;
    struct bucket_entry found = *l;

    if (!is_orphan(s, l))
        return 0;
    memcpy(one.id, l->id, sizeof(one.id));
    one.saved_unix_ms = l->saved_unix_ms;
    if (remove_objects(s, &one, e) < 0)
        return -1;
    found.taken = false;
    return print_one(s, &found, &one, e);
}

static int collect(struct s3 *s, struct bucket_order *o, struct cove_err *e)
{
    char prefix[KEY_MAX];

    if (listing_each(s, "", collect_one, o, e) < 0)
        return -1;
    snprintf(prefix, sizeof(prefix), "%s%s", s->place->prefix, s->place->prefix[0] ? "/" : "");
    if (s->now_unix_ms > ORPHAN_MS)
        object_abort_uploads(s, prefix, s->now_unix_ms - ORPHAN_MS);
    return 0;
}

/* ------------------------------------------------------------------ main */

static int carry_out(struct s3 *s, struct task *t, struct cove_err *e)
{
    switch (t->order.work) {
    case BUCKET_PUT:
        return put(s, t, e);
    case BUCKET_TAKE:
        return take_and_get(s, &t->order, e);
    case BUCKET_GET:
        return get_archive(s, &t->order, NULL, e);
    case BUCKET_RELEASE:
        return owner_release(s, &t->order, e);
    case BUCKET_READ:
        return read_note(s, &t->order, e);
    case BUCKET_REMOVE:
        return remove_one(s, &t->order, e);
    case BUCKET_LIST:
        return listing_each(s, t->order.id, print_one, &t->order, e);
    case BUCKET_COLLECT:
        return collect(s, &t->order, e);
    default:
        return cove_fail(e, COVE_INVALID, "unknown kind of order");
    }
}

/* libc loads its libraries for resolving names at the first name. That must happen now, because the filter will
 * forbid to map programs. */
static void load_resolver(void)
{
    struct addrinfo *found = NULL;

    if (getaddrinfo("localhost", NULL, NULL, &found) == 0)
        freeaddrinfo(found);
}

static int work(struct bucket_report *ret, struct cove_err *e)
{
    const struct rlimit memory = { MEMORY_MAX, MEMORY_MAX };
    struct task task = { 0 };
    struct s3 s3 = { 0 };
    int rc;

    if (take_order(&task, e) < 0)
        return -1;
    setrlimit(RLIMIT_AS, &memory);
    rc = s3_open(&s3, &task.order.place, task.credentials, task.ca, e);
    close(task.credentials);
    cove_close(task.ca);
    load_resolver();
    if (rc == 0)
        rc = confine(CONFINE_BUCKET, NULL, e);
    if (rc == 0)
        rc = carry_out(&s3, &task, e);
    if (rc == 0 && fflush(stdout) != 0)
        rc = cove_fail_errno(e, COVE_LIMIT, "writing");
    *ret = (struct bucket_report){ .bytes = task.order.bytes, .requests = s3.requests };
    s3_done(&s3);
    return rc;
}

int main(void)
{
    struct bucket_report report = { 0 };
    struct cove_err e = { 0 };
    int rc;

    log_init("bucket", LOG_LEVEL_INFO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);
    rc = work(&report, &e);
    if (rc == 0)
        rc = msg_send(BUCKET_SOCK_FD, &(struct msg_out){ BUCKET_REPORT, MSG_BODY(report) }, 0, &e);
    else
        msg_send(BUCKET_SOCK_FD, &(struct msg_out){ MSG_ERROR, MSG_BODY(e) }, 0, NULL);
    return rc < 0;
}
