noinst_LIBRARIES += libbox.a
libbox_a_SOURCES = \
	include/cove/init_fds.h include/cove/weak.h sandbox/box/build.h sandbox/box/cgroup.h sandbox/box/disk.h sandbox/box/disk_private.h sandbox/box/loop.h \
	sandbox/box/mounts.h sandbox/box/sweep.h sandbox/box/template.h sandbox/box/tools.h \
	sandbox/box/userns.h sandbox/box/boxed.h sandbox/box/boxed.c sandbox/box/bucket_start.h sandbox/box/bucket_start.c \
	sandbox/box/tools.c sandbox/box/cgroup_private.h sandbox/box/cgroup_corner.c sandbox/box/cgroup.c sandbox/box/userns.c sandbox/box/mounts.c sandbox/box/template.c sandbox/box/template_base.c \
	sandbox/box/empty_ns.h sandbox/box/empty_ns.c sandbox/box/build_private.h sandbox/box/build.c sandbox/box/build_child.c sandbox/box/sweep.c sandbox/box/disk.c sandbox/box/project.h sandbox/box/project.c sandbox/box/disk_project.c sandbox/box/btrfs_pool.h sandbox/box/btrfs_pool.c sandbox/box/disk_btrfs.c sandbox/box/disk_image.c sandbox/box/disk_snapshot.c sandbox/box/tree_copy.h sandbox/box/tree_copy.c sandbox/box/loop.c
EXTRA_DIST += sandbox/box/README.md
# What makes layers reads archives: the keeper does without it.
noinst_LIBRARIES += liblayer.a
liblayer_a_SOURCES = sandbox/box/layer.h sandbox/box/layer.c sandbox/box/unpack.c
