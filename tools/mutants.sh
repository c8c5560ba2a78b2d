# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# quickstart mutants: does a test notice when a promise is broken? Each patch in tests/mutants/ breaks one; it is applied to a copy of
# the checkout, and the test that the patch names must then fail there. tests/mutants/README.md says how to write one.

readonly MUTANTS_A_DAY=5 # in `./quickstart test`: others each day

mutant_field() { sed -n "s/^$2: //p" "$top/tests/mutants/$1.patch" | head -n 1; }
all_mutants() { (cd "$top/tests/mutants" && printf '%s\n' *.patch | sed 's/\.patch$//'); }

# A handful that is another one each day, so that all have their turn.
mutants_of_today() {
    local names first days
    mapfile -t names < <(all_mutants)
    days=$(($(date +%s) / 86400))
    first=$((days * MUTANTS_A_DAY % ${#names[@]}))
    printf '%s\n' "${names[@]}" "${names[@]}" | tail -n "+$((first + 1))" | head -n "$MUTANTS_A_DAY"
}

# The copy keeps its own build between runs: make builds only what a patch changes.
refresh_copy() {
    mkdir -p "$copy"
    (cd "$top" && git ls-files -z | tar -c --null -T - -f -) | tar -x -C "$copy" --skip-old-files --warning=no-existing-file -f -
    (cd "$top" && git ls-files -z) | while IFS= read -r -d '' name; do
        cmp -s "$top/$name" "$copy/$name" || cp "$top/$name" "$copy/$name" # with a new date, or make would not see it
    done
}

make_configure_in_copy() {
    [ -x "$copy/configure" ] || "$copy/autogen.sh" || return 1
    [ -e "$copy/.cove/build-mutants/Makefile" ] ||
        (mkdir -p "$copy/.cove/build-mutants" && cd "$copy/.cove/build-mutants" && "$copy/configure" -q)
}

# run_unit_test FILE NAME: 0 it passed, 1 it failed, 2 it did not build
run_unit_test() {
    local program=${1%.c} where=$copy/.cove/build-mutants
    make_configure_in_copy && make -C "$where" -s -j "$(nproc)" all && make -C "$where" -s -j "$(nproc)" "$program" || return 2
    (cd "$where" && timeout 120 "./$program" 2>&1) | tee "$work/log/mutant.out"
    grep -q "OK \] $2\$" "$work/log/mutant.out"
}

# run_live_test FOLDER TEST...: likewise, by the copy's own quickstart
run_live_test() {
    local folder=$1
    shift
    "$copy/quickstart" test --only "$folder" --no-install -- "$@" 2>&1 | tee "$work/log/mutant.out"
    ! grep -q 'the build failed' "$work/log/mutant.out" || return 2
    grep -q '^all passed' "$work/log/mutant.out"
}

run_named_test() { # run_named_test TEST
    case $1 in
    tests/unit/*) run_unit_test "${1%%:*}" "${1##*:}" ;;
    *) run_live_test "$(cut -d / -f 2 <<<"$1")" "$1" ;;
    esac
}

# Without a break the tests must pass. Those of one folder run in one go; if one of them fails, each by itself when its turn comes.
declare -A clean=()
run_clean_tests() { # run_clean_tests TEST...
    local folder test tests
    for folder in system clients escape hostile; do
        mapfile -t tests < <(printf '%s\n' "$@" | grep "^tests/$folder/" | sort -u)
        [ "${#tests[@]}" -gt 1 ] || continue
        ! run_live_test "$folder" "${tests[@]}" >"$work/log/mutants-clean-$folder.log" 2>&1 || for test in "${tests[@]}"; do clean[$test]=yes; done
    done
}

passes_clean() { # passes_clean TEST
    [ -n "${clean[$1]:-}" ] || { run_named_test "$1" && clean[$1]=yes; }
}

apply_in_copy() { (cd "$copy" && patch -p1 -s -N --no-backup-if-mismatch "$@"); }

# try_mutant NAME: leaves the verdict in $verdict, in a few words. The break is taken back, and built with the next one.
try_mutant() {
    local patch=$top/tests/mutants/$1.patch log=$work/log/mutant-$1.log test rc=0
    test=$(mutant_field "$1" Test)
    if ! passes_clean "$test" >"$log" 2>&1; then
        verdict="fails without it"
    elif ! apply_in_copy --dry-run <"$patch" >"$log" 2>&1; then
        verdict="does not apply"
    else
        apply_in_copy <"$patch" >"$log" 2>&1
        run_named_test "$test" >"$log" 2>&1 || rc=$?
        case $rc in 0) verdict=UNNOTICED ;; 1) verdict=caught ;; *) verdict="does not build" ;; esac
        apply_in_copy --reverse <"$patch" >>"$log" 2>&1
    fi
}

try_mutants() { # try_mutants NAME...
    local name verdict bad=0 tests=()
    copy=$work/mutants
    mkdir -p "$work/log"
    for name in "$@"; do
        [ -e "$top/tests/mutants/$name.patch" ] || die "'$name' is not in tests/mutants (./quickstart mutants --list)."
        tests+=("$(mutant_field "$name" Test)")
    done
    refresh_copy
    run_clean_tests "${tests[@]}"
    for name in "$@"; do
        try_mutant "$name"
        [ "$verdict" = caught ] || bad=1
        printf '%-22s %-44s %s\n' "$verdict" "$name" "$(mutant_field "$name" Test)"
    done
    refresh_copy
    return $bad
}

mutants_stage() {
    local names
    mapfile -t names < <(if [ "$long" = yes ]; then all_mutants; else mutants_of_today; fi)
    try_mutants "${names[@]}"
}

list_mutants() {
    local name
    for name in $(all_mutants); do
        printf '%-44s promise %-5s %s\n' "$name" "$(mutant_field "$name" Promise)" "$(mutant_field "$name" Breaks)"
    done
}

cmd_mutants() {
    local names
    case " ${rest[*]-} " in *" --list "*) list_mutants; return ;; esac
    mapfile -t names < <(all_mutants)
    [ "${#rest[@]}" -eq 0 ] || names=("${rest[@]}")
    try_mutants "${names[@]}" || die "some breaks go unnoticed, or their patches need mending (above; logs: $work/log/mutant-*.log)."
}
