/*
 * What init refuses to itself, and so to everything it starts: filter.c makes a seccomp filter of
 * this list. No profile of policy/profiles/ allows any of these calls, which
 * tests/unit/test_init_filter.c compares.
 *
 * REFUSED_CALLS(CALL): CALL(name, number on 32-bit x86, number on 32-bit ARM), -1 where there is
 * none. REFUSED_OLD_CALLS: further numbers that only 32-bit programs have.
 */
#ifndef SANDBOX_INIT_REFUSED_H
#define SANDBOX_INIT_REFUSED_H

/* clang-format off */
#define REFUSED_CALLS(CALL)                                                                        \
    /* A second way to make nearly every call. */                                                  \
    CALL(io_uring_setup, 425, 425)                                                                 \
    CALL(io_uring_enter, 426, 426)                                                                 \
    CALL(io_uring_register, 427, 427)                                                              \
    /* Programs in the kernel, events that tell about others, faults handled in user space. */     \
    CALL(bpf, 357, 386)                                                                            \
    CALL(perf_event_open, 336, 364)                                                                \
    CALL(userfaultfd, 374, 388)                                                                    \
    /* Kernel keys are not divided by namespaces. */                                               \
    CALL(add_key, 286, 309)                                                                        \
    CALL(request_key, 287, 310)                                                                    \
    CALL(keyctl, 288, 311)                                                                         \
    /* Mounts, old and new ways. */                                                                \
    CALL(mount, 21, 21)                                                                            \
    CALL(umount2, 52, 52)                                                                          \
    CALL(pivot_root, 217, 218)                                                                     \
    CALL(open_tree, 428, 428)                                                                      \
    CALL(move_mount, 429, 429)                                                                     \
    CALL(fsopen, 430, 430)                                                                         \
    CALL(fsconfig, 431, 431)                                                                       \
    CALL(fsmount, 432, 432)                                                                        \
    CALL(fspick, 433, 433)                                                                         \
    CALL(mount_setattr, 442, 442)                                                                  \
    /* Namespaces. */                                                                              \
    CALL(unshare, 310, 337)                                                                        \
    CALL(setns, 346, 375)                                                                          \
    /* File handles go round the permissions of the folders above a file. */                       \
    CALL(name_to_handle_at, 341, 370)                                                              \
    CALL(open_by_handle_at, 342, 371)                                                              \
    /* The machine itself. */                                                                      \
    CALL(kexec_load, 283, 347)                                                                     \
    CALL(kexec_file_load, -1, 401)                                                                 \
    CALL(init_module, 128, 128)                                                                    \
    CALL(finit_module, 350, 379)                                                                   \
    CALL(delete_module, 129, 129)                                                                  \
    CALL(reboot, 88, 88)                                                                           \
    CALL(swapon, 87, 87)                                                                           \
    CALL(swapoff, 115, 115)                                                                        \
    CALL(acct, 51, 51)                                                                             \
    CALL(syslog, 103, 103)                                                                         \
    CALL(quotactl, 131, 131)                                                                       \
    CALL(quotactl_fd, 443, 443)                                                                    \
    CALL(settimeofday, 79, 79)                                                                     \
    CALL(clock_settime, 264, 262)                                                                  \
    CALL(sethostname, 74, 74)                                                                      \
    CALL(setdomainname, 121, 121)                                                                  \
    CALL(vhangup, 111, 111)                                                                        \
    /* Other processes' memory, and files that others open. */                                     \
    CALL(process_madvise, 440, 440)                                                                \
    CALL(move_pages, 317, 344)                                                                     \
    CALL(migrate_pages, 294, 400)                                                                  \
    CALL(fanotify_init, 338, 367)                                                                  \
    CALL(memfd_secret, 447, -1)

/* umount, stime, clock_settime64 */
#define REFUSED_OLD_X86 22, 25, 404
#define REFUSED_OLD_ARM 404
/* clang-format on */

#endif
