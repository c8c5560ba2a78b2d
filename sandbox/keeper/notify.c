/*
 * Messages to the service manager, sent by its own library (sd_notify(3)). Without $NOTIFY_SOCKET, and in a
 * build without libsystemd, all of this does nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "cove/text.h"
#include "sandbox/keeper/keeper_private.h"
#include "sandbox/keeper/manager.h"

void notify_init(struct notify *n)
{
    const char *path = getenv("NOTIFY_SOCKET");
    uint64_t period_us = 0;

    *n = (struct notify){ 0 };
    if (path)
        text_copy(n->path, sizeof(n->path), path);
    unsetenv("NOTIFY_SOCKET"); /* no process that we start may send messages in our name */
    if (sd_watchdog_enabled(1, &period_us) > 0)
        n->period_ms = period_us / 2000; /* half the period that the manager allows */
}

void notify_tell(const struct notify *n, const char *text)
{
    notify_tell_fd(n, text, -1);
}

/* The manager keeps a copy of fd, if one is given. The library finds the manager by the environment
 * alone, so the variable is there for the length of this call; the keeper has one thread. */
void notify_tell_fd(const struct notify *n, const char *text, int fd)
{
    if (!n->path[0] || setenv("NOTIFY_SOCKET", n->path, 1) < 0)
        return;
    sd_pid_notify_with_fds(0, 1, text, &fd, fd >= 0);
}

void notify_reloading(const struct notify *n)
{
    char text[64];
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000);
    notify_tell(n, text);
}

/* The loop calls this at least once a second: a keeper that hangs stops calling. */
void notify_alive(struct notify *n)
{
    uint64_t now = clock_boot_ms();

    if (!n->period_ms || now < n->next_ms)
        return;
    notify_tell(n, "WATCHDOG=1");
    n->next_ms = now + n->period_ms;
}
