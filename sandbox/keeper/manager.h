/*
 * The service manager's library, libsystemd, where configure found it. Without it these calls do
 * nothing: coved then says nothing to a manager, takes no descriptors from it, and the unit file is
 * made for a service that does not speak (systemd/local.mk).
 */
#pragma once

#include "config.h"

#ifdef HAVE_LIBSYSTEMD
#include <systemd/sd-daemon.h>
#else
#include <stdint.h>
#include <sys/types.h>

enum { SD_LISTEN_FDS_START = 3 };

static inline int sd_watchdog_enabled(int unset, uint64_t *ret_us)
{
    (void)unset, (void)ret_us;
    return 0;
}

static inline int sd_listen_fds_with_names(int unset, char ***ret_names)
{
    (void)unset, (void)ret_names;
    return 0;
}

static inline int sd_pid_notify_with_fds(pid_t pid, int unset, const char *text, const int *fds,
                                         unsigned count)
{
    (void)pid, (void)unset, (void)text, (void)fds, (void)count;
    return 0;
}
#endif
