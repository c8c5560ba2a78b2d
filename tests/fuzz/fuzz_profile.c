/* Any bytes as a seccomp profile: read, listed, and if that works compiled both ways. */
#include <linux/filter.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cove/seccomp_profile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look(void *ctx, const struct seccomp_line *line)
{
    size_t *count = ctx;

    if (!line->syscall || !line->action[0] || !line->condition)
        abort();
    (*count)++;
}

static void check(int rc, const struct cove_err *e)
{
    if (rc < 0 && e->msg[0] == '\0')
        abort(); /* a refusal always says why */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd = memfd_create("profile", MFD_CLOEXEC);
    struct cove_err e = { 0 };
    size_t lines = 0, count;
    char path[64];
    int rc;

    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    rc = seccomp_profile_list(path, look, &lines, &e);
    check(rc, &e);
    for (int notify = 0; rc == 0 && notify < 2; notify++) {
        struct sock_filter *filter = NULL;
        int compiled = seccomp_profile_compile(path, notify, &filter, &count, &e);

        check(compiled, &e);
        if (compiled == 0 && (count == 0 || count > BPF_MAXINSNS))
            abort();
        free(filter);
    }
    close(fd);
    return 0;
}
