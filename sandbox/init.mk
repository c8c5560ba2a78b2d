# cove-init: static and small, and built of its sources alone, so that a sanitizer's libbase.a never gets into it.
pkglibexec_PROGRAMS += cove-init
cove_init_SOURCES = \
	sandbox/init_fds.h sandbox/init_private.h sandbox/weak.h include/cove/ring.h \
	sandbox/init.c sandbox/init_conn.c sandbox/init_proc.c sandbox/init_spawn.c sandbox/init_spare.c \
	sandbox/init_exec.c sandbox/init_log.c sandbox/init_cgroup.c sandbox/init_users.c \
	sandbox/init_files.c sandbox/init_remove.c sandbox/init_ports.c sandbox/init_judge.c sandbox/init_drain.c \
	sandbox/init_landlock.c sandbox/init_meminfo.c \
	sandbox/ring.c base/err.c base/mem.c base/msg.c base/text.c
cove_init_CFLAGS = $(COVE_CFLAGS) -Os -fno-pie -ffunction-sections -fdata-sections
cove_init_LDFLAGS = -static -no-pie -Wl,--gc-sections -Wl,-z,noexecstack
