# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# quickstart deb: the Debian package as a file, and the one command that installs it. quickstart test-deb: that it works.

install_deb_packages() {
    [ "$install" = no ] || install_packages "${BUILD_PACKAGES[@]}" "${DEB_PACKAGES[@]}"
}

cmd_test_deb() {
    install_deb_packages
    bash "$top/tests/deb/run.sh" "$work/deb"
}

cmd_deb() {
    local file
    install_deb_packages
    bash "$top/tests/deb/run.sh" --build-only "$work/deb" || die "the package was not built (above)."
    file=$(ls "$work"/deb/cove_*.deb)
    cat <<END

$file
Install it, with nginx and all it needs, on any Debian 12:
  apt install $file
It starts the server and tells where the first key is. \`apt purge cove\` leaves nothing behind.
END
}
