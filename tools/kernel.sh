# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# What the kernel must have.

readonly KERNEL_MIN=5.19 # idmapped mounts below overlayfs

check_kernel() {
    local release
    release=$(uname -r)
    [ "$(printf '%s\n%s\n' "$KERNEL_MIN" "${release%%-*}" | sort -V | head -n 1)" = "$KERNEL_MIN" ] ||
        die "Linux $release is too old: cove needs $KERNEL_MIN or newer (Debian 12 has 6.1)."
    [ "$(cat /proc/sys/user/max_user_namespaces 2>/dev/null || echo 0)" -gt 0 ] ||
        die "user namespaces are off: sysctl -w user.max_user_namespaces=65536 turns them on."
    unshare --user --mount --pid --net --ipc --uts --cgroup --fork true 2>/dev/null ||
        die "the kernel refuses new namespaces: run a container with --privileged; in a plain chroot it cannot work at all."
    grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null ||
        die "the kernel has no overlayfs: modprobe overlay, or boot a kernel that has it."
    awk '$0 ~ / - cgroup2 / { found = 1 } END { exit !found }' /proc/self/mountinfo ||
        die "cgroup v2 is not mounted: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified"
}

# overlayfs does not take every file system for its upper directory (not overlayfs itself, not NFS).
check_state_dir() {
    local probe=$dir/state/.probe
    mkdir -p "$probe"/{lower,upper,work,root}
    unshare --mount mount -t overlay overlay \
        -o "lowerdir=$probe/lower,upperdir=$probe/upper,workdir=$probe/work" "$probe/root" 2>/dev/null || {
        rm -rf "$probe"
        die "$dir/state is on $(stat -f -c %T "$dir"), which overlayfs cannot write to: name a directory on ext4, xfs," \
            "btrfs or tmpfs with --dir."
    }
    rm -rf "$probe"
}
