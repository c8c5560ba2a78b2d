#!/bin/bash
# The Debian package: built from a clean copy, looked into, and (as root, with debootstrap) installed, tried with a first command,
# upgraded, removed and purged in a chroot. `tests/deb/run.sh [--build-only] [WORK-DIR]`; what was built stays in WORK-DIR.
set -euo pipefail
export LC_ALL=C

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
only_build=no only_first=no
[ "${1-}" != --build-only ] || { only_build=yes; shift; }
[ "${1-}" != --first-command ] || { only_first=yes; shift; } # what the script calls itself for, in namespaces
work=${1:-$top/.cove/deb}
root=$work/root
say() { printf '%s\n' "== $*"; }
die() { printf '%s\n' "FAILED: $*" >&2; exit 1; }

build() {
    say "building"
    rm -rf "$work/src" "$work"/cove_* "$work"/cove-dbgsym_*
    mkdir -p "$work/src"
    (cd "$top" && git ls-files -z --cached --others --exclude-standard 2>/dev/null | xargs -0 tar cf -) | tar xf - -C "$work/src"
    (cd "$work/src" && ./autogen.sh && DEB_BUILD_OPTIONS=parallel=2 dpkg-buildpackage -us -uc -b) >"$work/build.log" 2>&1 ||
        { tail -n 30 "$work/build.log" >&2; die "dpkg-buildpackage ($work/build.log)"; }
    deb=$(ls "$work"/cove_*.deb)
    say "$(basename "$deb"): $(stat -c %s "$deb") bytes"
}

look_inside() {
    local file list
    say "looking inside"
    list=$(dpkg-deb -c "$deb" | awk '{ print $6 }')
    for file in ./usr/sbin/coved ./usr/bin/cove ./usr/libexec/cove/cove-worker ./usr/libexec/cove/cove-init \
        ./usr/libexec/cove/cove-judge ./usr/libexec/cove/cove-auth ./lib/systemd/system/cove.service ./lib/systemd/system/cove-sandboxes.service \
        ./lib/systemd/system/cove.socket ./lib/systemd/system/cove.slice ./etc/pam.d/cove \
        ./etc/nginx/sites-available/cove ./etc/nginx/snippets/cove-auth.conf ./etc/cove/cove.conf ./etc/cove/policy.conf \
        ./usr/share/man/man1/cove.1.gz ./usr/share/bash-completion/completions/cove ./usr/lib/sysusers.d/cove.conf; do
        grep -qx "$file" <<<"$list" || die "$file is not in it"
    done
    dpkg-deb -I "$deb" conffiles | grep -qx /etc/nginx/sites-available/cove || die "the site is no conffile"
    [ "$(stat -c %s "$deb")" -lt 4000000 ] || die "it is larger than 4 MB"
    ! dpkg-deb --fsys-tarfile "$deb" | tar -xOf - ./etc/cove/cove.conf | grep -q "$work" || die "a build path is in it"
}

in_root() { chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

# A chroot of its own, from the same mirror this machine uses; kept for the next time.
make_root() {
    local mirror
    [ ! -e "$root/.ready" ] || return 0
    say "debootstrap"
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | grep -v security | sort -u | head -n 1) || true
    [ -n "$mirror" ] || die "this machine's apt knows no mirror: the chroot cannot be made"
    rm -rf "$root"
    debootstrap --variant=minbase bookworm "$root" "$mirror" >"$work/debootstrap.log" 2>&1 ||
        die "debootstrap ($work/debootstrap.log)"
    cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
    cp /etc/resolv.conf "$root/etc/resolv.conf"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    touch "$root/.ready"
}

install_it() {
    in_root dpkg --purge cove >/dev/null 2>&1 || true # what a run that failed has left
    cp "$deb" "$root/cove.deb"
    in_root apt-get install -q -y --no-install-recommends /cove.deb >"$work/install.log" 2>&1 ||
        { tail -n 20 "$work/install.log" >&2; die "apt install"; }
}

check_installed() {
    local key
    say "installed: user, key, certificate, site"
    grep -q 'first key is in /etc/cove/first-key' "$work/install.log" || die "it does not say where the first key is"
    key=$(cat "$root/etc/cove/first-key")
    [[ $key =~ ^e2b_[0-9a-f]{40}$ ]] || die "the first key is '$key'"
    [ "$(stat -c %a "$root/etc/cove/first-key" "$root/etc/cove/keys" | sort -u)" = 600 ] || die "keys can be read by others"
    grep -q "^$(printf %s "$key" | sha256sum | cut -d ' ' -f 1) default first " "$root/etc/cove/keys" || die "its hash is not in keys"
    in_root getent passwd cove >/dev/null || die "there is no user cove"
    in_root nginx -t -q || die "nginx does not take the site"
    [ -L "$root/etc/nginx/sites-enabled/cove" ] || die "the site is not enabled"
    in_root coved --check -c /etc/cove/cove.conf || die "coved does not take its configuration"
    in_root cove policy check >/dev/null || die "the policy is not fine"
    in_root cove version >/dev/null
}

# In mount and network namespaces of their own, without systemd: what an operator sees after `apt install`. The new Debian becomes the
# root of the mount namespace, because the kernel makes no user namespace for a process in a chroot. This machine's own files are in /mnt then.
enter_root() {
    mount --make-rprivate /
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/run"
    ip link set lo up
    cd "$root"
    pivot_root . mnt
    cd /
    export PATH=/usr/sbin:/usr/bin:/sbin:/bin
    work=/mnt$work
}

first_command() {
    local key answer i
    say "the first command works"
    enter_root
    cp /etc/cove/cove.conf "$work/cove.conf"
    { grep -vE '^(network|pool|cgroup) *=' "$work/cove.conf"; printf 'network = none\npool = 1\ncgroup = covedeb%d\n' $$; } >/etc/cove/cove.conf
    key=$(cat /etc/cove/first-key)
    coved -c /etc/cove/cove.conf >"$work/coved.log" 2>&1 &
    keeper=$!
    nginx
    for ((i = 0; i < 300; i++)); do
        answer=$(chroot /mnt curl -sk https://127.0.0.1/execute -H "X-API-Key: $key" -d '{"projectId":"first","commands":["echo it works; id -un"]}' || true)
        [[ $answer != *'it works'* ]] || break
        sleep 0.1
    done
    cove ls >"$work/ls.log" 2>&1 || true
    nginx -s stop || true
    kill "$keeper"
    wait "$keeper" || true
    mv "$work/cove.conf" /etc/cove/cove.conf
    [[ $answer == *'it works'* ]] || { tail -n 5 "$work/coved.log" >&2; die "the server answered '$answer'"; }
    grep -q first "$work/ls.log" || die "cove ls does not show the sandbox ($work/ls.log)"
}

check_upgrade() {
    say "upgrade keeps what the operator wrote"
    echo "pool = 7" >>"$root/etc/cove/cove.conf"
    cp "$root/etc/cove/keys" "$work/keys.before"
    in_root dpkg -i /cove.deb >"$work/upgrade.log" 2>&1 || die "dpkg -i ($work/upgrade.log)"
    grep -qx "pool = 7" "$root/etc/cove/cove.conf" || die "cove.conf was replaced"
    cmp -s "$root/etc/cove/keys" "$work/keys.before" || die "keys were replaced"
}

check_removal() {
    say "remove keeps the configuration, purge leaves nothing"
    in_root apt-get remove -q -y cove >"$work/remove.log" 2>&1 || die "remove ($work/remove.log)"
    [ -e "$root/etc/cove/keys" ] || die "remove took the keys"
    [ ! -e "$root/etc/nginx/sites-enabled/cove" ] || die "remove left the site on"
    in_root nginx -t -q || die "nginx is broken after remove"
    in_root apt-get purge -q -y cove >"$work/purge.log" 2>&1 || die "purge ($work/purge.log)"
    left=$(find "$root"/{etc,var,run,usr} -name '*cove*' -not -path '*/var/cache/*' -not -path '*/var/log/apt/*' \
        -not -path '*/var/lib/dpkg/*' -not -path '*/var/lib/systemd/*')
    [ -z "$left" ] || die "purge left: $left"
    ! in_root getent passwd cove >/dev/null || die "purge left the user"
}

if [ "$only_first" = yes ]; then
    first_command
    exit 0
fi
mkdir -p "$work"
build
look_inside
[ "$only_build" = no ] || exit 0
if [ "$(id -u)" -eq 0 ] && command -v debootstrap >/dev/null; then
    make_root
    install_it
    check_installed
    unshare --mount --net bash "$0" --first-command "$work"
    check_upgrade
    check_removal
else
    say "not root, or no debootstrap: not installed anywhere"
fi
say "ok"
