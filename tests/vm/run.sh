#!/bin/bash
# The package on a real system: a Debian 12 with systemd and pure cgroup v2 in qemu (TCG: no KVM needed, slow). It installs the .deb,
# runs commands over HTTPS through nginx, restarts and kills the keeper under running sandboxes, upgrades, reboots, removes.
#   tests/vm/run.sh [WORK-DIR]
set -euo pipefail
export LC_ALL=C

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
work=${1:-$top/.cove/vm}
root=$work/root
readonly PACKAGES=systemd-sysv,udev,dbus,nginx,curl,openssl,procps,iproute2,linux-image-cloud-amd64,initramfs-tools,libfcgi0ldbl,libjson-c5,libseccomp2,libpcre2-8-0,libcap2,init-system-helpers
readonly MINUTES=15
say() { printf '%s\n' "== $*"; }
die() { printf '%s\n' "FAILED: $*" >&2; exit 1; }

need() {
    local program
    for program in qemu-system-x86_64 debootstrap mkfs.ext4 dpkg-buildpackage; do
        command -v "$program" >/dev/null || die "$program is missing: apt install qemu-system-x86 debootstrap e2fsprogs dpkg-dev"
    done
}

make_root() { # kept for the next time
    local mirror
    [ ! -e "$root/.ready" ] || return 0
    say "debootstrap"
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | sort -u | head -n 1) || true
    rm -rf "$root"
    debootstrap --include="$PACKAGES" bookworm "$root" "${mirror:-http://deb.debian.org/debian}" >"$work/debootstrap.log" 2>&1 ||
        die "debootstrap ($work/debootstrap.log)"
    touch "$root/.ready"
}

make_debs() { # the package, and the same with a higher version
    say "packages"
    [ -n "$(ls "$work"/deb/cove_*.deb 2>/dev/null)" ] || bash "$top/tests/deb/run.sh" "$work/deb" >"$work/deb.log" 2>&1 ||
        die "the package ($work/deb.log)"
    cp "$work"/deb/cove_*.deb "$root/root/cove-1.deb"
    rm -rf "$work/next"
    dpkg-deb -R "$root/root/cove-1.deb" "$work/next"
    sed -i 's/^Version: \(.*\)/Version: \1+vm1/' "$work/next/DEBIAN/control"
    dpkg-deb -b "$work/next" "$root/root/cove-2.deb" >/dev/null
}

make_image() {
    say "image"
    install -m 755 "$top/tests/vm/inside.sh" "$root/root/inside.sh"
    rm -f "$root/root/vm-phase"
    printf 'cove-vm\n' >"$root/etc/hostname"
    printf '/dev/vda / ext4 defaults 0 1\n' >"$root/etc/fstab"
    cat >"$root/etc/systemd/system/vm-test.service" <<'UNIT'
[Unit]
After=multi-user.target nginx.service
[Service]
Type=simple
ExecStart=/root/inside.sh
[Install]
WantedBy=graphical.target multi-user.target
UNIT
    ln -sfn /etc/systemd/system/vm-test.service "$root/etc/systemd/system/multi-user.target.wants/vm-test.service"
    rm -f "$work/disk.img"
    truncate -s 3G "$work/disk.img"
    mkfs.ext4 -q -d "$root" "$work/disk.img"
}

boot() {
    local kernel initrd
    kernel=$(ls "$root"/boot/vmlinuz-*) initrd=$(ls "$root"/boot/initrd.img-*)
    say "booting (its console: $work/console.log)"
    timeout $((MINUTES * 60)) qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 1024 -nographic -no-user-config \
        -kernel "$kernel" -initrd "$initrd" -append "root=/dev/vda rw console=ttyS0 quiet systemd.unified_cgroup_hierarchy=1" \
        -drive "file=$work/disk.img,format=raw,if=virtio" -nic none </dev/null >"$work/console.log" 2>&1 || true
    tr -d '\r' <"$work/console.log" | grep -a 'VM-TEST' || true
    tr -d '\r' <"$work/console.log" | grep -aq 'VM-TEST PASSED' || die "it did not pass within $MINUTES minutes ($work/console.log)"
}

mkdir -p "$work"
need
make_root
make_debs
make_image
boot
say "ok"
