# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# Measuring, and testing in a virtual machine.

cmd_bench() {
    [ "$install" = no ] || install_packages "${BUILD_PACKAGES[@]}" "${RUN_PACKAGES[@]}" bubblewrap nftables python3 wrk
    build_all
    [ "$install" = no ] || ! install_clients || export COVE_CLIENTS_MODULES=$modules/node_modules
    exec bash "$top/bench/run.sh" "$build" ${rest[@]+"${rest[@]}"}
}

cmd_test_vm() {
    install_packages "${BUILD_PACKAGES[@]}"
    exec bash "$top/tests/vm/run.sh" ${rest[@]+"${rest[@]}"}
}
