#!/bin/bash
# The VM test: cove on a machine like those it is made for. Debian 12 with its own kernel, systemd as process 1, cgroup
# v2 alone, nginx with TLS; booted in qemu without KVM. `./quickstart test-vm` calls it.
#
#   .cove/vm/root.ext4   the machine's disk, made once (debootstrap), never written to by a run
#   .cove/vm/payload     what is tested, made anew each time: the package, the same with a higher version, inside.sh; a second disk
#   .cove/vm/ext4, xfs   empty disks, for state_dir with project quotas
#   .cove/vm/console     all that the machine said
#
# --fresh makes the disk anew. --disks and --processes go through that chapter only; --many measures the memory of a thousand sandboxes and is
# no part of the whole. --same takes the package of the last run.
set -euo pipefail
export LC_ALL=C
umask 022

readonly SUITE=bookworm
readonly MINUTES=30          # one run, two boots; without KVM and among others a boot takes most of a minute
memory=1024                  # MiB; the machine must manage with little
readonly HOST_PACKAGES=(debhelper debootstrap dpkg-dev e2fsprogs qemu-system-x86)
readonly GUEST_PACKAGES=(systemd systemd-sysv udev kmod procps iproute2 linux-image-cloud-amd64
    btrfs-progs xfsprogs
    nginx openssl curl jq libcap2 libarchive13 libcurl4 libfcgi0ldbl libjson-c5 libmnl0 libnftables1 libpam0g libpcre2-8-0 libprotobuf-c1 libseccomp2 libssl3 libsystemd0 libwslay1 zlib1g)

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
readonly top
readonly work=$top/.cove/vm

say() { printf '%s\n' "$*"; }
die() { printf 'vm: %s\n' "$*" >&2; exit 1; }

quietly() { # quietly NAME COMMAND...
    local log=$work/$1.log
    shift
    "$@" >"$log" 2>&1 && return 0
    tail -n 30 "$log" >&2
    die "failed: $* (all of it: $log)"
}

install_packages() {
    local name missing=()
    for name in "${HOST_PACKAGES[@]}"; do
        dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null | grep -qx installed || missing+=("$name")
    done
    [ "${#missing[@]}" -eq 0 ] && return
    say "installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    quietly apt apt-get install -q -y --no-install-recommends "${missing[@]}"
}

# Where this machine's own apt gets its packages: no mirror is named in here.
apt_mirror() {
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(SITE) $(CODENAME) $(COMPONENT)' 2>/dev/null |
        awk -v suite="$SUITE" '$2 == suite && $3 == "main" { print $1; exit }'
}

# ------------------------------------------------------------------ the machine's disk

write_guest_files() { # write_guest_files ROOT
    printf 'cove-vm\n' >"$1/etc/hostname"
    printf '127.0.0.1 localhost cove.localhost cove-vm\n' >"$1/etc/hosts"
    printf '/dev/vda / ext4 defaults 0 1\n' >"$1/etc/fstab"
    : >"$1/etc/machine-id"
    rm -f "$1/etc/resolv.conf" "$1"/etc/apt/sources.list
    mkdir -p "$1/payload"
    cat >"$1/etc/systemd/system/cove-vm-test.service" <<'END'
[Unit]
Description=what tests/vm/run.sh wants done
After=basic.target
[Service]
ExecStartPre=/bin/mount -o ro /dev/vdb /payload
ExecStart=/bin/bash /payload/inside.sh
[Install]
WantedBy=multi-user.target
END
    ln -sf ../cove-vm-test.service "$1/etc/systemd/system/multi-user.target.wants/cove-vm-test.service"
    # A console for people is not needed.
    ln -sf /dev/null "$1/etc/systemd/system/serial-getty@.service"
    ln -sf /dev/null "$1/etc/systemd/system/getty.target"
}

make_disk() {
    local mirror root=$work/root
    # The recipe's name: another one makes another disk.
    recipe=$(sed -n '/^readonly SUITE/p; /^readonly GUEST/,/)$/p; /^write_guest/,/^}/p' "${BASH_SOURCE[0]}" | sha256sum)
    [ "$fresh" = no ] && [ -s "$work/root.ext4" ] && [ "$(cat "$work/recipe" 2>/dev/null)" = "$recipe" ] && return
    mirror=$(apt_mirror)
    [ -n "$mirror" ] || die "this machine's apt knows no $SUITE/main: the test's disk cannot be made."
    say "making the machine's disk (once; some minutes)"
    umount -l "$root/sys" "$root/proc" 2>/dev/null || true
    rm -rf "$root" "$work/root.ext4"
    quietly debootstrap nice debootstrap --variant=minbase --include="$(IFS=,; echo "${GUEST_PACKAGES[*]}")" \
        "$SUITE" "$root" "$mirror"
    # debootstrap takes its mounts away again, unless somebody was looking at them.
    umount -l "$root/sys" "$root/proc" 2>/dev/null || true
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,locale,man}/*
    write_guest_files "$root"
    cp "$root"/boot/vmlinuz-* "$work/vmlinuz"
    cp "$root"/boot/initrd.img-* "$work/initrd"
    quietly mke2fs mke2fs -q -t ext4 -E lazy_itable_init=1,lazy_journal_init=1 -d "$root" "$work/root.ext4" 2G
    rm -rf "$root"
    printf '%s\n' "$recipe" >"$work/recipe"
}

# ------------------------------------------------------------------ what is tested

build_package() { # of a clean copy; what git does not know or ignores is not in it
    rm -rf "$work/src" "$work"/cove_* "$work"/cove-dbgsym_*
    mkdir -p "$work/src"
    (cd "$top" && git ls-files -z --cached --others --exclude-standard | xargs -0 tar cf -) | tar xf - -C "$work/src"
    cd "$work/src" && ./autogen.sh && DEB_BUILD_OPTIONS=parallel=2 nice dpkg-buildpackage -us -uc -b
}

make_upgrade() { # make_upgrade DEB NEW-DEB: the same with a higher version
    rm -rf "$work/next"
    dpkg-deb -R "$1" "$work/next" && sed -i 's/^Version: .*/&+vm1/' "$work/next/DEBIAN/control" &&
        dpkg-deb -b "$work/next" "$2"
}

make_packages() {
    say "building the package"
    (quietly package build_package)
    rm -rf "$work/payload" "$work/src"
    mkdir -p "$work/payload"
    mv "$work"/cove_*.deb "$work/payload/cove-1.deb"
    quietly upgrade make_upgrade "$work/payload/cove-1.deb" "$work/payload/cove-2.deb"
}

make_payload() {
    if [ "$same" = no ] || [ ! -s "$work/payload/cove-2.deb" ]; then make_packages; fi
    rm -f "$work/payload.ext4" "$work/payload/only" "$work/ext4" "$work/xfs"
    [ -z "$only" ] || printf '%s\n' "$only" >"$work/payload/only"
    cp "$top/tests/vm/inside.sh" "$top/docs/OPERATING.md" "$work/payload/"
    truncate -s 1G "$work/ext4" "$work/xfs"
    quietly payload mke2fs -q -t ext4 -d "$work/payload" "$work/payload.ext4" 32M
}

# ------------------------------------------------------------------ the run

run_machine() {
    local began=$SECONDS status=0
    say "booting (console: $work/console)"
    # snapshot=on: what is written lives as long as this qemu does, reboots of the machine included.
    timeout "$((MINUTES * 60))" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m "$memory" \
        -nodefaults -no-user-config -display none -serial "file:$work/console" -device virtio-rng-pci \
        -drive "file=$work/root.ext4,format=raw,if=virtio,snapshot=on" \
        -drive "file=$work/payload.ext4,format=raw,if=virtio,readonly=on" \
        -drive "file=$work/ext4,format=raw,if=virtio,snapshot=on" \
        -drive "file=$work/xfs,format=raw,if=virtio,snapshot=on" \
        -kernel "$work/vmlinuz" -initrd "$work/initrd" \
        -append "root=/dev/vda rw console=ttyS0 quiet systemd.show_status=0 mitigations=off" || status=$?
    [ "$status" -ne 124 ] || say "vm: not done after $MINUTES minutes."
    tr -d '\r' <"$work/console" | grep -aE '^(PASS|FAIL|NOTE|RESULT)' || true
    say "($((SECONDS - began)) s in the machine)"
    tr -d '\r' <"$work/console" | grep -aqE '^RESULT [0-9]+ passed, 0 failed$' ||
        die "some checks failed, or the machine did not get to the end: $work/console"
}

[ "$(id -u)" -eq 0 ] || die "needs root (debootstrap)."
fresh=no only="" same=no
for option; do
    case $option in
    --fresh) fresh=yes ;;
    --disks | --processes) only=${option#--} ;;
    --many) only=many memory=4096 ;;
    --same) same=yes ;;
    *) die "'$option' is not an option: --fresh, --disks, --processes, --many, --same." ;;
    esac
done
mkdir -p "$work"
exec 9>"$work/lock"
flock -n 9 || die "another VM test is at work in $work."
install_packages
make_disk
make_payload
run_machine
