# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# Debian packages: which ones are needed, and installing those that are missing.

readonly BUILD_PACKAGES=(autoconf automake gcc libc6-dev make pkg-config xz-utils
    libarchive-dev libcap-dev libcmocka-dev libfcgi-dev libjson-c-dev libmnl-dev libnftables-dev libpam0g-dev libpcre2-dev libprotobuf-c-dev libseccomp-dev libssl-dev libsystemd-dev
    libwslay-dev musl-tools nettle-dev protobuf-c-compiler zlib1g-dev libcurl4-openssl-dev)
readonly RUN_PACKAGES=(btrfs-progs curl e2fsprogs iproute2 nginx openssl)
readonly TEST_PACKAGES=(age bubblewrap buildah bzip2 checksec clang clang-format cppcheck libclang-rt-14-dev mandoc
    chromium-headless-shell docker-registry git jq mmdebstrap nftables nodejs procps python3 python3-h2 python3-httpx python3-pip python3-pytest python3-pytest-timeout python3-requests python3-yaml s3cmd shellcheck skopeo strace stress-ng swift-account swift-container swift-object swift-proxy systemd tmux wrk zstd)
# For `deb` and `test-deb`: what builds a Debian package, and what makes the small Debian that it is installed in.
readonly DEB_PACKAGES=(debhelper debootstrap dpkg-dev git)
# For --long only: Ceph's S3 gateway and what it needs.
readonly LONG_PACKAGES=(ceph-mon ceph-osd radosgw)
# Node's own packages, for tests; npm itself comes from Debian where nodejs does not bring it along.
readonly NPM_PACKAGES=(@redocly/openapi-core@1.34.5)

missing_packages() {
    local name state
    declare -A there=()
    while read -r state name; do
        [ "$state" != installed ] || there[${name%%:*}]=1
    done < <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
    for name in "$@"; do
        [ -n "${there[$name]:-}" ] || printf '%s\n' "$name"
    done
}

# Services of freshly installed packages (nginx on port 80, the S3 servers of the tests) would start at once: that is prevented.
hold_services() {
    policy=/usr/sbin/policy-rc.d
    [ ! -e "$policy" ] || { policy=''; return 0; }
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    trap release_services EXIT
}

release_services() {
    [ -z "${policy:-}" ] || rm -f "$policy"
    policy=''
}

install_packages() {
    local missing new_nginx=no
    have dpkg-query || die "this is not Debian: install the packages of CONTRIBUTING.md by hand and use --no-install."
    mapfile -t missing < <(missing_packages "$@")
    if [ "${#missing[@]}" -eq 0 ]; then
        say "      all there"
        return
    fi
    say "      installing: ${missing[*]}"
    case " ${missing[*]} " in *" nginx "*) new_nginx=yes ;; esac
    hold_services
    export DEBIAN_FRONTEND=noninteractive
    run_logged apt-update apt-get update -q || die "apt-get update failed (above): check the network and the apt sources."
    run_logged apt-install apt-get install -q -y --no-install-recommends "${missing[@]}" ||
        die "apt-get install failed (above)."
    release_services
    if [ "$new_nginx" = yes ] && [ -d /run/systemd/system ]; then
        systemctl disable --quiet nginx.service || true
        say "      nginx's own service stays off (systemctl enable --now nginx turns it on)"
    fi
}
