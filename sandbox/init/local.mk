# cove-init: static and small, and built of its sources alone, so that a sanitizer's libbase.a never gets into it.
pkglibexec_PROGRAMS += cove-init
cove_init_SOURCES = \
	include/cove/init_fds.h include/cove/libc.h sandbox/init/init_private.h include/cove/weak.h include/cove/ring.h \
	sandbox/init/init.c sandbox/init/conn.c sandbox/init/proc.c sandbox/init/proc_cause.c sandbox/init/proc_verbs.c sandbox/init/spawn.c sandbox/init/start.c sandbox/init/spare.c sandbox/init/launcher.c \
	sandbox/init/exec.c sandbox/init/log.c sandbox/init/cgroup.c sandbox/init/users.c \
	sandbox/init/paths.c sandbox/init/files.c sandbox/init/files_look.c sandbox/init/watchers.c sandbox/init/marks.c sandbox/init/remove.c sandbox/init/ports.c sandbox/init/judge.c sandbox/init/exec_words.c sandbox/init/drain.c \
	sandbox/init/landlock.c sandbox/init/filter.c sandbox/init/refused.h sandbox/init/meminfo.c sandbox/init/idle.c sandbox/init/clock.c \
	include/cove/setup_plan.h sandbox/setup/setup.h sandbox/setup/setup_private.h sandbox/setup/procfiles.h \
	sandbox/setup/setup.c sandbox/setup/setup_mounts.c sandbox/setup/setup_network.c sandbox/setup/procfiles.c \
	sandbox/client/ring.c base/err.c base/mem.c base/budget.c base/buf.c base/file.c base/msg.c base/text.c base/loop.c
cove_init_CFLAGS = $(COVE_CFLAGS) $(INIT_LIBC_CFLAGS) -Os -fno-pie -ffunction-sections -fdata-sections
# Objects that were made for another C library do not link: a build from before is made anew when configure has changed its mind.
$(cove_init_OBJECTS): config.status
cove_init_LDFLAGS = -static -no-pie -Wl,--gc-sections -Wl,--sort-section=name -Wl,-z,noexecstack
EXTRA_DIST += sandbox/init/README.md sandbox/setup/README.md
