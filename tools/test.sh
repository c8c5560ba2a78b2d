# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# quickstart test: stages, one for each suite or checker.

# A suite that returns this has failed and deserves a second run, when no other suite runs.
AGAIN=70

# stage NAME COMMAND...: runs it, keeps the verdict, goes on either way
stage() {
    local name=$1 began=$SECONDS verdict=passed rc=0
    shift
    printf '\n%s== %s%s\n' "$bold" "$name" "$plain"
    ("$@") || rc=$?
    case $rc in
        0) ;;
        77) verdict=skipped ;;
        "$AGAIN")
            verdict=again
            { printf '%q ' "$name" "$@"; echo; } >>"$results.again"
            ;;
        *) verdict=FAILED ;;
    esac
    printf '%-9s %-42s %3d min %02d s\n' "$verdict" "$name" $(((SECONDS - began) / 60)) $(((SECONDS - began) % 60)) >>"$results"
    printf '%s== %s: %s%s\n' "$bold" "$name" "$verdict" "$plain"
}

# Stages that run beside others print nothing meanwhile: their output follows when all are over.
declare -a beside_names=()
beside() { # beside NAME NICENESS COMMAND...
    local name=$1 niceness=$2
    shift 2
    beside_names+=("$name")
    (
        renice -n "$niceness" "$BASHPID" >/dev/null 2>&1 || true
        "$@" >"$work/log/beside-$name.log" 2>&1
    ) &
}

wait_for_beside() {
    local name
    wait
    for name in "${beside_names[@]}"; do
        cat "$work/log/beside-$name.log"
    done
}

# set -e has no effect left of `||`, so a stage itself returns where it fails.
unit_stage() { # unit_stage DIR CONFIGURE-ARGUMENT...
    local where=$work/$1 rc=0
    shift
    make_configure && configure_in "$where" "$@" || return 1
    make_in "$where" all || return 1
    timeout 600 make -C "$where" --no-print-directory -j "$(nproc)" check >"$work/log/check.log" 2>&1 || rc=$?
    grep -E '^(PASS|FAIL|SKIP|XPASS|ERROR)|error:|\*\*\*' "$work/log/check.log" || true
    [ "$rc" -ne 0 ] || return 0
    [ "$rc" -ne 124 ] || say "stopped after 10 minutes: a test hangs (the one without a verdict above)"
    tail -n 60 "$where/test-suite.log" 2>/dev/null
    say "      what failed runs once more, by itself"
    timeout 300 make -C "$where" --no-print-directory recheck >"$work/log/check.log" 2>&1 || return 1
    printf '%-9s %s\n' "again" "some unit tests passed only when run once more (above)" >>"$results"
}

dist_stage() {
    local where=$work/build-check
    make_configure && configure_in "$where" --enable-werror || return 1
    run_logged distcheck make -C "$where" --no-print-directory -j "$(nproc)" distcheck
}

c_files() { (cd "$top" && find base bench cli fcgi helpers include keys policy process sandbox tests -name '*.[ch]' 2>/dev/null | sort); }

format_stage() {
    local files wrong
    mapfile -t files < <(c_files)
    wrong=$(cd "$top" && clang-format --dry-run --Werror "${files[@]}" 2>&1) && return 0
    sed -n 's/^\([^ :]*\):[0-9]*:[0-9]*: error:.*/not as make format leaves it: \1/p' <<<"$wrong" | uniq -c
    return 1
}

cppcheck_stage() {
    local where=$work/build-check
    make_configure && configure_in "$where" --enable-werror || return 1
    make -C "$where" --no-print-directory lint
}

shell_stage() {
    local files
    mapfile -t files < <(cd "$top" && find . \( -path ./.git -o -path ./.cove -o -path './build*' -o -path ./tests/escape/attempts \) -prune -o \
        -type f \( -name '*.sh' -o -path ./quickstart -o -path ./.ci/run \) -print | sort)
    (cd "$top" && shellcheck "${files[@]}")
}

man_stage() {
    local file out bad=0
    for file in "$top"/man/*.[1-9]; do
        out=$(mandoc -T lint -W warning "$file") || { printf '%s\n' "$out"; bad=1; }
    done
    return $bad
}

# Where the npm registry cannot be reached this stage is skipped, with that reason.
api_stage() {
    local modules=$work/npm/node_modules
    if [ ! -d "$modules/@redocly/openapi-core" ]; then
        have npm || [ "$install" = no ] || install_packages npm
        have npm || { say "npm is missing"; return 77; }
        run_logged npm timeout 300 npm install --no-audit --no-fund --prefix "$work/npm" "${NPM_PACKAGES[@]}" ||
            { say "npm could not fetch ${NPM_PACKAGES[*]} (above)"; return 77; }
    fi
    node "$top/tests/lint/openapi.js" "$modules" "$top"/docs/api/*.yaml
}

# run_pytest FOLDER ARGUMENT...: with files or tests of that folder after --, only those
run_pytest() {
    local folder=$1 longest=600 cache
    # pytest keeps the names of failed tests in its cache. Suites run side by side, so each has its own.
    cache=${folder##*/}${2-}
    shift
    build_all || return 1
    case " ${rest[*]-} " in *" $folder/"*) ;; *) set -- "$folder" "$@" ;; esac
    [ "$second_run" = no ] || set -- "$@" --last-failed --last-failed-no-failures=none
    if [ "$long" = yes ] || [ "$only" = vscode ]; then longest=3600; fi
    # A test that waits for ever fails after so many seconds (pytest-timeout), and its servers are taken down.
    (cd "$top" && /usr/bin/python3 -m pytest -q -o "timeout=$longest" -o "cache_dir=$work/pytest-cache/$cache" "$@" ${rest[@]+"${rest[@]}"})
}

# These suites wait for many processes, and on a busy machine one of a thousand tests may run out of its time. What failed runs
# once more when all other stages are over, and the summary says that it was needed.
run_suite() {
    run_pytest "$@" && return 0
    [ "$second_run" = no ] || return 1
    return "$AGAIN"
}

second_runs() {
    local line second_run=yes
    local -a words
    [ -e "$results.again" ] || return 0
    mv "$results.again" "$results.now"
    while IFS= read -r line <&3; do
        eval "words=($line)" # as stage() wrote it, quoted
        stage "${words[0]}: what failed, once more" "${words[@]:1}"
    done 3<"$results.now"
    rm "$results.now"
}

# system_stage PATTERN... leaves these files out; template_stage takes them.
readonly TEMPLATE_TESTS='tests/system/test_template*.py'
system_stage() { run_suite tests/system --durations=10 "${@/#/--ignore-glob=$top/}"; }
template_stage() {
    local files
    mapfile -t files < <(cd "$top" && compgen -G "$TEMPLATE_TESTS")
    run_suite "${files[@]}"
}
escape_stage() { run_suite tests/escape; }
hostile_stage() { run_suite tests/hostile "$@"; }

# Others' clients, in the versions of the lock file, in a directory of their own that outlives the checkout.
install_clients() {
    local lock=$top/tests/clients/package-lock.json part
    modules=${COVE_CLIENTS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/cove}/clients-$(sha256sum "$lock" | cut -c1-16)
    [ ! -d "$modules/node_modules" ] || return 0
    have npm || [ "$install" = no ] || install_packages npm
    have npm || { say "npm is missing"; return 77; }
    part=$modules.part.$$
    mkdir -p "$part"
    cp "$lock" "$top/tests/clients/package.json" "$part/"
    if run_logged clients timeout 600 npm ci --no-audit --no-fund --ignore-scripts --prefix "$part"; then
        mv -T "$part" "$modules" 2>/dev/null || true # somebody else was faster
    fi
    rm -rf "$part"
    [ -d "$modules/node_modules" ] || { say "npm could not fetch the clients (above)"; return 77; }
}

clients_stage() {
    local modules
    install_clients || return $?
    COVE_CLIENTS_MODULES=$modules/node_modules run_suite tests/clients
}

# The template with code-server takes minutes to build and is therefore in no other stage.
vscode_stage() {
    local modules
    install_clients || return $?
    COVE_TEST_VSCODE=yes COVE_CLIENTS_MODULES=$modules/node_modules run_pytest tests/clients/test_vscode.py
}

# Prometheus' own linter for /metrics is taken out of its package without installing that, because the package runs a server.
fetch_promtool() {
    local tools=$work/tools
    [ ! -x "$tools/promtool" ] || return 0
    mkdir -p "$tools/part"
    if (cd "$tools/part" && apt-get download -q prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar xf - ./usr/bin/promtool) \
        >"$tools/fetch.log" 2>&1; then
        mv "$tools/part/usr/bin/promtool" "$tools/"
    else
        say "      no promtool ($tools/fetch.log): /metrics is read by the tests' own parser only"
    fi
    rm -rf "$tools/part"
}

wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }

unit_stages() {
    stage "unit tests" unit_stage build-check --enable-werror
    stage "unit tests with sanitizers" unit_stage build-san --enable-werror --enable-sanitizers
}

lint_stages() {
    stage "cppcheck" cppcheck_stage
    stage "clang-format" format_stage
    stage "shellcheck" shell_stage
    stage "man pages" man_stage
    stage "OpenAPI" api_stage
}

fuzz_seconds() { if [ "$long" = yes ]; then echo 120; else echo 7; fi; }

static_stages() { # neither instances nor sandboxes
    ! wanted lint || lint_stages
    ! wanted fuzz || stage "fuzzers" bash "$top/tests/fuzz/run.sh" "$work/build-fuzz" "$(fuzz_seconds)"
    ! wanted dist || stage "make distcheck" dist_stage
}

system_stages() { # in a whole run the tests of templates belong to the attacks' turn, which would be over long before
    if [ -z "$only" ]; then
        stage "system tests" system_stage "$TEMPLATE_TESTS"
    elif wanted system; then
        stage "system tests" system_stage
    fi
}

attack_stages() { # real nginx, real sandboxes
    ! wanted clients || stage "others' clients" clients_stage
    ! wanted escape || stage "escape suite" escape_stage
    ! wanted hostile || stage "hostile suite" hostile_stage
    [ -n "$only" ] || stage "hostile suite, server weakened" hostile_stage --weak
    [ -n "$only" ] || stage "mutants" mutants_stage
    [ -n "$only" ] || stage "system tests of templates" template_stage
}

# The suites wait for processes most of the time, so two run side by side. What needs nothing but processor time runs beside them, last
# in the queue for the processor.
all_stages() {
    unit_stages # first: what fails here need not be looked for in the suites
    build_all || return 1 # once, before several suites want it
    beside static 19 static_stages
    beside attacks 0 attack_stages
    system_stages
    wait_for_beside
    [ "$long" = no ] || stage "virtual machine" bash "$top/tests/vm/run.sh"
}

cmd_test() {
    step_count=2
    step "packages"
    [ "$install" = no ] || install_packages "${BUILD_PACKAGES[@]}" "${RUN_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
    [ "$install" = no ] || [ "$long" = no ] || install_packages "${LONG_PACKAGES[@]}"
    step "kernel"
    check_kernel
    mkdir -p "$work/log"
    results=$work/log/results.$$
    : >"$results"
    export COVE_TEST_LONG=$long
    [ "$install" = no ] || ! wanted system || fetch_promtool
    second_run=no
    if [ -z "$only" ]; then
        all_stages
    else
        ! wanted unit || unit_stages
        static_stages
        system_stages
        attack_stages
        [ "$only" != vscode ] || stage "VS Code in the browser" vscode_stage
    fi
    second_runs
    printf '\n%s== summary, %d minutes%s\n' "$bold" $(((SECONDS + 30) / 60)) "$plain"
    cat "$results"
    ! grep -q '^FAILED' "$results" || die "some tests failed."
    rm -f "$results"
    say "all passed."
}
