noinst_LIBRARIES += libbox.a
libbox_a_SOURCES = \
	include/cove/init_fds.h include/cove/weak.h sandbox/box/box_private.h \
	sandbox/box/tools.c sandbox/box/cgroup.c sandbox/box/userns.c sandbox/box/mounts.c sandbox/box/template.c \
	sandbox/box/build.c sandbox/box/sweep.c sandbox/box/disk.c sandbox/box/procfiles.c
