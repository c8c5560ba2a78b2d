/* Writing to a background process: it may not read for long, or ever, so nothing here waits without
 * a limit. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "cove/mem.h"
#include "cove/text.h"
#include "fcgi/core.h"

enum { STDIN_MS = 5000 };

static int write_within(int fd, const char *bytes, size_t len, uint64_t until_ms,
                        size_t *ret_written)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        uint64_t now = clock_boot_ms();
        struct pollfd p = { .fd = fd, .events = POLLOUT };

        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        if (n < 0 && (now >= until_ms || poll(&p, 1, (int)(until_ms - now)) == 0)) {
            errno = EAGAIN;
            return -1;
        }
        if (n > 0) {
            bytes += n;
            len -= (size_t)n;
            *ret_written += (size_t)n;
        }
    }
    return 0;
}

int core_proc_stdin(struct core_session *s, const struct core_proc *p, const char *bytes,
                    size_t len, bool close_it, size_t *ret_written, struct cove_err *e)
{
    AUTO_CLOSE int fd = -1;

    *ret_written = 0;
    if (len > 0) {
        if (box_stdin(&s->conn, p->proc, NULL, false, &fd, e) < 0)
            return -1;
        /* This flag is of our end of the pipe only; the end that the process reads has flags of its own. */
        fcntl(fd, F_SETFL, O_NONBLOCK);
        if (write_within(fd, bytes, len, clock_boot_ms() + STDIN_MS, ret_written) < 0)
            return cove_fail_errno(e, errno == EAGAIN ? COVE_TIMEOUT : COVE_CONFLICT,
                                   "the process does not read: %zu of %zu bytes written",
                                   *ret_written, len);
    }
    return close_it ? box_stdin(&s->conn, p->proc, NULL, true, NULL, e) : 0;
}
