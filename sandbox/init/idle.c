/*
 * What init gives back while its sandbox is idle. Thousands of sandboxes may wait on one machine, so every page that
 * each of them keeps counts. When no client has come for a while (spare.c), init lets go of what earlier requests and
 * the set-up have filled: its large buffers, the deep end of its stack, tables that are empty, and the buffers that the
 * kernel has for the open files of cgroups. All of it comes back with the next request, for some page faults and the
 * opening of these files.
 */
#include "config.h" /* _GNU_SOURCE */

#include <sys/auxv.h>
#include <sys/mman.h>

#include "sandbox/init/init_private.h"

enum {
    PAGE = 4096,              /* the smallest there is */
    STACK_DEPTH = 256 * 1024, /* init's own frames never go deeper */
    STACK_IN_USE = 1024,      /* below our own frame, for the calls from here */
};

/* The sections' names put these two around all LARGE variables. The second one is as long as a page, so that the last page of
   a variable before it is given back, too. */
static char large_begin __attribute__((section(".bss.zzzz_begin")));
static char large_end[PAGE] __attribute__((section(".bss.zzzz_the_end")));

static void give_back(uintptr_t begin, uintptr_t end)
{
    uintptr_t page = getauxval(AT_PAGESZ);

    begin = (begin + page - 1) & ~(page - 1);
    end &= ~(page - 1);
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
}

void idle_rest(struct init *in)
{
    uintptr_t stack = (uintptr_t)__builtin_frame_address(0) - STACK_IN_USE;

    spare_rest(in);
    cgroup_rest(in);
    proc_rest(in);
    user_rest();
    give_back((uintptr_t)&large_begin, (uintptr_t)large_end + sizeof(large_end));
    give_back(stack - STACK_DEPTH, stack);
}
