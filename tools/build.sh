# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# The build: configure, make, and when it must be made again.

sources_changed() { # since the stamp was made?
    [ -e "$build/.stamp" ] && [ -x "$inst/sbin/coved" ] || return 0
    [ -n "$(find "$top" -mindepth 1 \( -path "$work" -o -path "$top/.git" -o -path "$top/autom4te.cache" \
        -o -path "$top/tests" -o -path "$top/tools" -o -path "$top/build*" -o -path "$top/docs" -o -name '*.in' -o -name '*.md' \
        -o -name '*~' -o -name configure -o -name aclocal.m4 -o -name quickstart -o -path "$top/m4" \) -prune \
        -o -type f -newer "$build/.stamp" -print -quit)" ]
}

make_configure() {
    [ ! -e "$top/config.status" ] ||
        die "this checkout was configured in place: run 'make distclean' in it first, builds here are out of tree."
    if [ ! -x "$top/configure" ] || [ "$top/configure.ac" -nt "$top/configure" ]; then
        run_logged autogen "$top/autogen.sh" || die "autogen.sh failed (above)."
    fi
}

# configure_in DIR ARGUMENT...: once, and again when configure or the arguments are new
configure_in() {
    local where=$1
    shift
    mkdir -p "$where"
    if [ -e "$where/Makefile" ] && [ "$where/Makefile" -nt "$top/configure" ] &&
        [ "$(cat "$where/.arguments" 2>/dev/null)" = "$*" ]; then
        return
    fi
    (cd "$where" && run_logged "configure-${where##*/}" "$top/configure" -q "$@") || die "configure failed (above)."
    printf '%s\n' "$*" >"$where/.arguments"
}

make_in() { # make_in DIR TARGET...
    local where=$1
    shift
    run_logged "make-${where##*/}" make -C "$where" -j "$(nproc)" --no-print-directory "$@"
}

build_all() {
    local started
    if ! sources_changed; then
        say "      up to date"
        return
    fi
    mkdir -p "$build"
    (
        flock 8
        started=$(mktemp "$build/.started.XXXXXX")
        make_configure
        configure_in "$build" --prefix="$inst"
        make_in "$build" install || die "the build failed (above; all of it: $work/log/make-build.log)."
        mv "$started" "$build/.stamp" # dated before the build began: a file saved meanwhile counts as new
    ) 8>"$work/build.lock"
}
