/*
 * The clock, by a system call. libc would read it through the vdso, pages that recent kernels map far from all others of a
 * process. Their page tables would take 8 to 12 KiB in each idle sandbox, so init unmaps them before it does anything else.
 * What malloc() maps later lies there alone, and when all of it is freed the kernel frees the page tables with it.
 *
 * Older kernels (Debian 12's 6.1) map the vdso right above the stack, where it shares the stack's page tables: there it
 * stays. With glibc it stays as well: its static start-up has put addresses of it into tables already.
 */
#include "config.h" /* _GNU_SOURCE */

#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sandbox/init/init_private.h"

#ifdef __GLIBC__
void clock_leave_vdso(void)
{
}
#else
/* Under both names, so that nothing of musl's own looks for the vdso. */
int __clock_gettime(clockid_t which, struct timespec *ret);

int __clock_gettime(clockid_t which, struct timespec *ret)
{
    return (int)syscall(SYS_clock_gettime, which, ret);
}

int clock_gettime(clockid_t which, struct timespec *ret) __attribute__((alias("__clock_gettime")));

enum {
    VDSO_REACH = 64 * 1024, /* neither the vdso nor its data below it is as long as this */
    FAR = 1 << 30,          /* from the stack: a static program has nothing else mapped there */
};

void clock_leave_vdso(void)
{
    uintptr_t vdso = getauxval(AT_SYSINFO_EHDR), stack = (uintptr_t)__builtin_frame_address(0);
    uintptr_t distance = vdso > stack ? vdso - stack : stack - vdso;

    if (vdso && distance > FAR)
        munmap((void *)(vdso - VDSO_REACH), (size_t)2 * VDSO_REACH);
}
#endif
