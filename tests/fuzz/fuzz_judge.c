/*
 * What the judge and the keeper take from an init that was taken over. The judge: packets on its
 * conversation, some with a descriptor that should hold the arguments. The keeper: the last words
 * of a set-up that failed, a struct cove_err. The judge is one program, so it is included whole, on a
 * state and a keeper that say nothing.
 */
#include <sys/mman.h>

#define main judge_main
#include "helpers/judge/judge.c"
#include "helpers/judge/verdict.c"
#undef main

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void state_box_read(const struct state *s, uint32_t index, struct box_info *ret)
{
    (void)s;
    (void)index;
    *ret = (struct box_info){ 0 };
}

uint32_t state_box_count(const struct state *s)
{
    (void)s;
    return 0;
}

uint32_t state_policy_generation(const struct state *s)
{
    (void)s;
    return 0;
}

int state_attach(const char *path, struct state **ret, struct cove_err *e)
{
    (void)ret;
    return cove_fail(e, COVE_INTERNAL, "%s", path);
}

int keeper_audit(struct keeper_link *k, const struct keeper_audit_entry *entry, struct cove_err *e)
{
    (void)k;
    return strlen(entry->command) ? 0 : cove_fail(e, COVE_INVALID, "nothing"); /* it is text */
}

void keeper_link_done(struct keeper_link *k)
{
    (void)k;
}

int box_open(const char *run_dir, const char *id, struct box_conn *ret, struct cove_err *e)
{
    (void)run_dir;
    (void)ret;
    return cove_fail(e, COVE_GONE, "%s", id);
}

void box_close(struct box_conn *c)
{
    (void)c;
}

int confine(enum confine_kind kind, const char *own_dir, struct cove_err *e)
{
    (void)kind;
    (void)own_dir;
    (void)e;
    return 0;
}

int process_start(const char *name, struct cove_config *ret, struct cove_err *e)
{
    (void)name;
    (void)ret;
    (void)e;
    return 0;
}

/* The live policy is one that is always there. */
static struct policy *the_policy;
const struct live_kind policy_kind;

void live_init(struct live *l, const struct live_kind *kind, const struct state *state,
               const char *run_dir, const char *name)
{
    (void)l;
    (void)kind;
    (void)state;
    (void)run_dir;
    (void)name;
}

struct live_ref *live_get(struct live *l)
{
    static struct live_ref ref;

    (void)l;
    return &ref;
}

void live_put(struct live_ref *ref)
{
    (void)ref;
}

const struct policy *policy_set_policy(const struct policy_set *set)
{
    (void)set;
    return the_policy;
}

static void last_words(const uint8_t *data, size_t size)
{
    struct cove_err e = { 0 };

    memcpy(&e, data, size < sizeof(e) ? size : sizeof(e));
    cove_err_sanitize(&e);
    if (!memchr(e.msg, '\0', sizeof(e.msg)) || e.code <= COVE_OK || e.code >= COVE_CODE_COUNT)
        abort();
    for (const char *c = e.msg; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127)
            abort();
}

static struct policy *make_policy(void)
{
    static const char text[] = "deny a words /^rm( \\S+)* -rf/ \"r\"\ndeny b raw /:\\(\\)/ \"r\"\n";
    struct policy *p = NULL;

    if (policy_compile(text, sizeof(text) - 1, &p, NULL) < 0)
        abort();
    return p;
}

/* The first byte says how: 0 in the packet, 1 in a memory file, 2 in a pipe, 3 in a device. */
static int arguments(uint8_t how, const uint8_t *data, size_t size)
{
    int fd = -1, ends[2];

    if (how == 1) {
        fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (write(fd, data, size) != (ssize_t)size)
            abort();
    } else if (how == 2) {
        if (pipe(ends) < 0)
            abort();
        close(ends[1]);
        fd = ends[0];
    } else if (how == 3) {
        fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    }
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct judge judge;
    struct conversation *first = calloc(1, sizeof(*first));
    struct box_exec_ask ask = { .ask = 1, .pid = 7 };
    uint8_t how = size > 1 ? data[0] % 4 : 0, kind = size > 1 ? data[1] : 0;
    int pair[2], fd;

    if (!first || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    last_words(data, size);
    if (!the_policy) {
        the_policy = make_policy();
        if (loop_init(&judge.loop, NULL) < 0)
            abort();
    }
    if (size > 2) {
        data += 2;
        size -= 2;
    }
    ask.context = kind;
    ask.truncated = kind & 1;
    fd = arguments(how, data, size);
    if (kind == 255) /* no message at all */
        send(pair[1], data, size, MSG_NOSIGNAL);
    else
        msg_send(pair[1],
                 &(struct msg_out){ BOX_EXEC_ASK, MSG_BODY(ask), .tail = fd < 0 ? data : NULL,
                                    .tail_len = fd < 0 ? size : 0, .fds = &fd,
                                    .fd_count = fd >= 0 },
                 MSG_DONTWAIT, NULL);
    cove_close(fd);
    if (watch_start(&judge.loop, &first->watch, pair[0], EPOLLIN, conversation_ready) < 0)
        abort();
    LIST_INSERT_HEAD(&judge.conversations, first, link);
    conversation_ready(&first->watch, EPOLLIN);
    if (!LIST_EMPTY(&judge.conversations))
        conversation_close(&judge, first);
    close(pair[1]);
    return 0;
}
