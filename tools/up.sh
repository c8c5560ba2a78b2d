# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# quickstart up and quickstart status.

cmd_up() {
    local conf_changed=no nginx_changed=no
    step_count=6
    # Before anything that takes minutes; later again, with what was chosen the last time.
    check_port --http "${http_port:-8080}"
    check_port --https "${https_port:-8443}"
    step "packages"
    [ "$install" = no ] || install_packages "${BUILD_PACKAGES[@]}" "${RUN_PACKAGES[@]}"
    step "kernel"
    check_kernel
    step "build"
    build_all
    step "configuration"
    mkdir -p "$dir"
    exec 9>"$dir/lock"
    flock -w 60 9 || die "another quickstart is at work in $dir."
    load_settings
    http_port=${http_port:-8080} https_port=${https_port:-8443} domain=${domain:-cove.localhost}
    check_port --http "$http_port"
    check_port --https "$https_port"
    merge_sets
    check_ports_free
    make_dirs
    keeper_pid >/dev/null || check_state_dir
    make_key
    make_policy
    make_certificate
    check_settings
    print_cove_conf | replace "$conf/cove.conf" && conf_changed=yes
    make_operator
    write_nginx_conf && nginx_changed=yes
    say "      $conf/cove.conf"
    step "start"
    run_keeper "$conf_changed"
    run_nginx "$nginx_changed"
    save_settings
    write_env
    step "first answer"
    wait_until "$START_SECONDS" healthy || {
        tail -n 5 "$log/coved.log" "$log/nginx-error.log" >&2
        die "http://127.0.0.1:$http_port/health does not answer (logs: $log)."
    }
    print_welcome
}

print_welcome() {
    local key hint=
    key=$(cat "$conf/key")
    getent hosts "api.$domain" >/dev/null || hint="
        (which needs the name api.$domain, and this machine does not find it: DNS, or for .localhost the package libnss-myhostname)"
    cat <<END

cove is up.
  URL   http://127.0.0.1:$http_port   https://127.0.0.1:$https_port (self-signed, also *.$domain)
  key   $key
  open  http://127.0.0.1:$http_port/ in a browser and sign in with the key (operators' pages: the key in $conf/operator)
  logs  $log
  e2b   export E2B_API_KEY=$key E2B_API_URL=http://127.0.0.1:$http_port E2B_SANDBOX_URL=http://127.0.0.1:$http_port
   or   export E2B_API_KEY=$key E2B_DOMAIN=$domain:$https_port NODE_EXTRA_CA_CERTS=$dir/tls/$domain.crt$hint
  shell . $dir/env        then \`cove\` and its manual pages are about this instance

Paste this:
  curl -s http://127.0.0.1:$http_port/execute -H 'X-API-Key: $key' \\
    -d '{"projectId":"hello","commands":["echo hello from \$(hostname)","id"]}'
END
}

uptime_of() {
    awk -v hz="$(getconf CLK_TCK)" 'NR == FNR { up = $1; next } { sub(/.*\) /, ""); printf "%d s", up - $20 / hz }' \
        /proc/uptime "/proc/$1/stat"
}

count_titles() { # processes of ours whose title begins so; with a second argument, only process 1 of a sandbox
    local pid n=0
    for pid in $(our_pids); do
        [[ "$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline")" = "$1"* ]] || continue
        [ $# -lt 2 ] || grep -qs "^NSpid:.*\b1\$" "/proc/$pid/status" || continue
        n=$((n + 1))
    done
    printf '%d' "$n"
}

# status_line NAME WHAT PROBLEM: with a problem, the line ends with it and `status` fails
status_line() {
    printf '%-10s %s%s\n' "$1" "$2" "${3:+ $red$3$plain}"
    [ -z "${3:-}" ] || status_problems=$((status_problems + 1))
}

status_of_processes() { # status_of_processes KEEPER-PID
    local pid workers
    workers=$(count_titles 'cove: worker')
    status_line keeper "pid $1, up $(uptime_of "$1")"
    status_line workers "$workers" "$([ "$workers" -gt 0 ] || echo "no worker runs: see $log/coved.log")"
    status_line sandboxes "$(count_titles 'cove: init' first) (warm ones included)"
    if pid=$(nginx_pid); then
        status_line nginx "pid $pid, up $(uptime_of "$pid")"
    else
        status_line nginx "" "not running: ./quickstart up starts it"
    fi
}

cmd_status() {
    local pid status_problems=0
    if ! pid=$(keeper_pid); then
        say "cove is not running here ($dir); './quickstart up' starts it."
        return 3
    fi
    load_settings
    status_of_processes "$pid"
    status_line URL "http://127.0.0.1:$http_port" "$(healthy || echo "/health does not answer: see $log")"
    status_line URL "https://127.0.0.1:$https_port"
    status_line "run dir" "$run"
    status_line logs "$log"
    [ "$status_problems" -eq 0 ]
}
