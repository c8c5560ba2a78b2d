/*
 * The words behind `if` in a seccomp profile:
 *
 *   TEST [and TEST]... [else pretend|invalid]
 *
 *   argN == A,B           one of these values
 *   argN != A,B           none of these values
 *   argN & A|B == C,D     the same, looking at the bits A and B only
 *   argN == NULL          no pointer is given
 */
#include <asm/ioctls.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>

#include "cove/mem.h"
#include "policy/seccomp/profile_private.h"

static const struct {
    const char *name;
    uint32_t value;
} constants[] = {
    { "AF_UNIX", AF_UNIX },
    { "AF_INET", AF_INET },
    { "AF_INET6", AF_INET6 },
    { "AF_NETLINK", AF_NETLINK },
    { "AF_PACKET", AF_PACKET },
    { "AF_VSOCK", AF_VSOCK },
    { "AF_ALG", AF_ALG },
    { "SOL_SOCKET", SOL_SOCKET },
    { "SO_ATTACH_FILTER", SO_ATTACH_FILTER },
    { "SO_ATTACH_BPF", SO_ATTACH_BPF },
    { "SO_ATTACH_REUSEPORT_CBPF", SO_ATTACH_REUSEPORT_CBPF },
    { "SO_ATTACH_REUSEPORT_EBPF", SO_ATTACH_REUSEPORT_EBPF },
    { "SOCK_TYPE_MASK", 0xf }, /* the kernel's name: socket()'s type without its flags */
    { "SOCK_STREAM", SOCK_STREAM },
    { "SOCK_DGRAM", SOCK_DGRAM },
    { "SOCK_RAW", SOCK_RAW },
    { "SOCK_SEQPACKET", SOCK_SEQPACKET },
    { "IPPROTO_ICMP", IPPROTO_ICMP },
    { "IPPROTO_TCP", IPPROTO_TCP },
    { "IPPROTO_UDP", IPPROTO_UDP },
    { "IPPROTO_ICMPV6", IPPROTO_ICMPV6 },
    { "IPPROTO_SCTP", IPPROTO_SCTP },
    { "IPPROTO_UDPLITE", IPPROTO_UDPLITE },
    { "IPPROTO_RAW", IPPROTO_RAW },
    { "IPPROTO_MPTCP", 262 },
    { "NETLINK_ROUTE", NETLINK_ROUTE },
    { "NETLINK_SOCK_DIAG", NETLINK_SOCK_DIAG },
    { "NETLINK_AUDIT", NETLINK_AUDIT },
    { "NETLINK_KOBJECT_UEVENT", NETLINK_KOBJECT_UEVENT },
    { "NETLINK_GENERIC", NETLINK_GENERIC },
    { "RLIMIT_CORE", RLIMIT_CORE },
    { "F_SETPIPE_SZ", F_SETPIPE_SZ },
    { "MAP_HUGETLB", MAP_HUGETLB },
    { "MFD_HUGETLB", MFD_HUGETLB },
    { "SHM_HUGETLB", SHM_HUGETLB },
    { "CLONE_NEWNS", CLONE_NEWNS },
    { "CLONE_NEWCGROUP", CLONE_NEWCGROUP },
    { "CLONE_NEWUTS", CLONE_NEWUTS },
    { "CLONE_NEWIPC", CLONE_NEWIPC },
    { "CLONE_NEWUSER", CLONE_NEWUSER },
    { "CLONE_NEWPID", CLONE_NEWPID },
    { "CLONE_NEWNET", CLONE_NEWNET },
    { "TIOCSTI", TIOCSTI },
    { "TIOCLINUX", TIOCLINUX },
    { "PR_SET_SECCOMP", PR_SET_SECCOMP },
    { "SECCOMP_SET_MODE_FILTER", SECCOMP_SET_MODE_FILTER },
    { "SECCOMP_FILTER_FLAG_NEW_LISTENER", SECCOMP_FILTER_FLAG_NEW_LISTENER },
};

static bool parse_value(const char *word, size_t len, uint32_t *ret)
{
    char text[40], *end;
    unsigned long v;

    if (len == 0 || len >= sizeof(text))
        return false;
    memcpy(text, word, len);
    text[len] = '\0';
    for (size_t i = 0; i < ARRAY_SIZE(constants); i++) {
        if (strcmp(constants[i].name, text) == 0) {
            *ret = constants[i].value;
            return true;
        }
    }
    if (text[0] < '0' || text[0] > '9')
        return false;
    v = strtoul(text, &end, 0);
    *ret = (uint32_t)v;
    return *end == '\0' && v <= UINT32_MAX;
}

/* A,B or A|B: every value of the list. */
static int parse_list(struct profile_reader *r, const char *list, char separator, uint32_t *values,
                      size_t *ret_count)
{
    char stops[] = { separator, '\0' };
    size_t count = 0;

    for (const char *at = list;; at++) {
        size_t len = strcspn(at, stops);

        if (count == PROFILE_VALUES_MAX)
            return profile_fail_at(r, at, "too many values");
        if (!parse_value(at, len, &values[count++]))
            return profile_fail_at(r, at, "neither a number nor a name that is known here");
        at += len;
        if (*at == '\0')
            break;
    }
    *ret_count = count;
    return 0;
}

/* The word behind argN is "&": reads the mask and leaves the comparison's word in *op. */
static int parse_mask(struct profile_reader *r, struct profile_test *test, char **op)
{
    char *list = profile_take_word(r);
    uint32_t bits[PROFILE_VALUES_MAX];
    size_t count;

    if (!list || parse_list(r, list, '|', bits, &count) < 0)
        return list ? -1 : profile_fail_at(r, r->at, "the bits behind & are missing");
    test->mask = 0;
    for (size_t i = 0; i < count; i++)
        test->mask |= bits[i];
    *op = profile_take_word(r);
    return *op ? 0 : profile_fail_at(r, list, "a mask must be compared, as in & BITS == 0");
}

static int parse_test(struct profile_reader *r, struct profile_test *test)
{
    char *begin = r->at, *arg = profile_take_word(r), *op = profile_take_word(r), *values;

    *test = (struct profile_test){ .mask = UINT32_MAX };
    if (!arg || strlen(arg) != 4 || memcmp(arg, "arg", 3) != 0 || arg[3] < '0' || arg[3] > '5')
        return profile_fail_at(r, arg ? arg : begin, "a test begins with arg0 to arg5");
    test->arg = (unsigned)(arg[3] - '0');
    if (op && strcmp(op, "&") == 0 && parse_mask(r, test, &op) < 0)
        return -1;
    values = profile_take_word(r);
    if (!op || !values)
        return profile_fail_at(r, arg, "the condition has no end");
    if (strcmp(op, "==") != 0 && strcmp(op, "!=") != 0)
        return profile_fail_at(r, op, "neither == nor != nor &");
    test->negated = op[0] == '!';
    test->pointer = strcmp(values, "NULL") == 0;
    if (test->pointer && (test->mask != UINT32_MAX || test->negated))
        return profile_fail_at(r, values, "NULL stands behind == only, without a mask");
    return test->pointer ? 0 : parse_list(r, values, ',', test->values, &test->value_count);
}

static int parse_else(struct profile_reader *r, struct profile_entry *entry)
{
    char *begin = r->at, *word = profile_take_word(r);

    if (word && strcmp(word, "pretend") == 0)
        entry->otherwise = PROFILE_PRETEND;
    else if (word && strcmp(word, "invalid") == 0)
        entry->otherwise = PROFILE_INVALID;
    else
        return profile_fail_at(r, word ? word : begin, "behind else stands pretend or invalid");
    word = profile_take_word(r);
    return word ? profile_fail_at(r, word, "something behind the condition") : 0;
}

static int parse_way(struct profile_reader *r, struct profile_entry *entry, struct profile_way *way)
{
    char *word;

    do {
        if (way->test_count == PROFILE_TESTS_MAX)
            return profile_fail_at(r, r->at, "too many tests in one condition");
        if (parse_test(r, &way->tests[way->test_count++]) < 0)
            return -1;
        word = profile_take_word(r);
    } while (word && strcmp(word, "and") == 0);
    if (word && strcmp(word, "else") == 0)
        return parse_else(r, entry);
    return word ? profile_fail_at(r, word, "something behind the condition") : 0;
}

/* The words behind `if` as they were written, without a comment and trailing blanks. */
static int add_text(struct profile_entry *entry, const char *at, struct cove_err *e)
{
    char *joined;
    size_t len;

    at += strspn(at, " \t");
    len = strcspn(at, "#\r");
    while (len && strchr(" \t", at[len - 1]))
        len--;
    if (asprintf(&joined, "%s%s%.*s", entry->condition, entry->condition[0] ? " or " : "", (int)len,
                 at) < 0)
        return cove_fail(e, COVE_INTERNAL, "out of memory");
    free(entry->condition);
    entry->condition = joined;
    return 0;
}

int profile_read_condition(struct profile_reader *r, struct profile_entry *entry)
{
    struct profile_way way = { 0 }, *more;

    if (entry->way_count == PROFILE_WAYS_MAX)
        return profile_fail_at(r, r->at, "too many conditions for one call");
    if (add_text(entry, r->at, r->e) < 0 || parse_way(r, entry, &way) < 0)
        return -1;
    more = reallocarray(entry->ways, entry->way_count + 1, sizeof(*more));
    if (!more)
        return cove_fail(r->e, COVE_INTERNAL, "out of memory");
    entry->ways = more;
    entry->ways[entry->way_count++] = way;
    return 0;
}
