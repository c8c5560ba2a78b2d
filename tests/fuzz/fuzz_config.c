/* Any bytes as cove.conf. A file that is taken gives a configuration that is in order and can be printed
 * and read again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cove/buf.h"
#include "cove/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void count(void *ctx, const struct cove_err *e)
{
    if (e->msg[0] == '\0')
        abort(); /* a mistake is always told in words */
    ++*(unsigned *)ctx;
}

static int read_bytes(const void *data, size_t size, struct cove_config *c, unsigned *mistakes)
{
    int fd = memfd_create("config", MFD_CLOEXEC), rc;
    struct cove_err e = { 0 };
    char path[64];

    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    rc = config_read(path, c, count, mistakes, &e);
    close(fd);
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cove_config c, before, again;
    unsigned mistakes = 0;
    struct buf out;
    int rc;

    config_default(&c);
    before = c;
    rc = read_bytes(data, size, &c, &mistakes);
    if ((rc < 0) != (mistakes > 0) || (rc < 0 && memcmp(&c, &before, sizeof(c)) != 0))
        abort(); /* a file with a mistake changes nothing */
    if (rc < 0)
        return 0;
    buf_init(&out, 1 << 20);
    if (config_check(&c, NULL) < 0 || config_print(&c, &out) < 0)
        abort();
    config_default(&again);
    if (read_bytes(out.data, out.len, &again, &mistakes) < 0)
        abort();
    buf_done(&out);
    return 0;
}
