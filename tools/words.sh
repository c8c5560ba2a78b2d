# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# What quickstart says, and small helpers that every part uses.

if [ -t 1 ]; then bold=$'\e[1m' red=$'\e[31m' plain=$'\e[0m'; else bold='' red='' plain=''; fi

say() { printf '%s\n' "$*"; }
warn() { printf '%s\n' "${red}quickstart: $*${plain}" >&2; }
die() { warn "$*"; exit 1; }

step_now=0
step_count=0
step() { # one line of progress: [2/6] what
    step_now=$((step_now + 1))
    printf '%s[%d/%d]%s %s\n' "$bold" "$step_now" "$step_count" "$plain" "$*"
}

have() { command -v "$1" >/dev/null 2>&1; }

need_root() {
    [ "$(id -u)" -eq 0 ] || die "'$1' needs root (namespaces, mounts, cgroups): run it as root or with sudo."
}

# run_logged NAME COMMAND...: quiet when it works, its last lines when it does not
run_logged() {
    local log=$work/log/$1.log
    shift
    mkdir -p "$work/log"
    "$@" >"$log" 2>&1 && return 0
    tail -n 40 "$log" >&2
    return 1
}

# wait_until SECONDS COMMAND...
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.05
    done
}
