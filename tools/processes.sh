# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# The processes of an instance: starting the keeper and nginx, finding them again, whose a port is.

readonly STOP_SECONDS=20 # how long a keeper has to stop everything
readonly START_SECONDS=30 # how long we wait for the first /health

# live_pid FILE PROGRAM: the pid in FILE, if that is (still) a process of that program
live_pid() {
    local pid exe
    pid=$(cat "$1" 2>/dev/null) || return 1
    case $pid in '' | *[!0-9]*) return 1 ;; esac
    exe=$(readlink "/proc/$pid/exe" 2>/dev/null) || return 1
    exe=${exe% (deleted)}
    [ "${exe##*/}" = "$2" ] || return 1
    printf '%s' "$pid"
}

keeper_pid() { live_pid "$run/coved.pid" coved; }
nginx_pid() { live_pid "$run/nginx.pid" nginx; }
# A zombie counts as gone, and so does a process that was reaped between two looks.
is_gone() {
    case $(awk '/^State:/ { print $2 }' "/proc/$1/status" 2>/dev/null || true) in Z | X | '') return 0 ;; *) return 1 ;; esac
}

port_owner() { # "nginx (pid 42)", or nothing if the port is free
    local port=$1 line
    if have ss; then
        line=$(ss -Hltnp "sport = :$port" 2>/dev/null | head -n 1)
        [ -n "$line" ] || return 0
        case $line in
        *users:*) sed -n 's/.*users:(("\([^"]*\)",pid=\([0-9]*\).*/\1 (pid \2)/p' <<<"$line" ;;
        *) printf 'another program' ;;
        esac
    elif (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
        printf 'another program'
    fi
}

check_ports_free() { # those that our own nginx does not have already
    local flag port owner pid
    pid=$(nginx_pid) || pid=none
    [ "$http_port" != "$https_port" ] || die "--http and --https are both $http_port: they must differ."
    for flag in http https; do
        port=$http_port
        [ "$flag" = http ] || port=$https_port
        owner=$(port_owner "$port")
        [ -n "$owner" ] || continue
        [ "$pid" = none ] || ! owned_by_our_nginx "$port" "$pid" || continue
        die "port $port is taken by $owner: choose another with --$flag PORT."
    done
}

owned_by_our_nginx() { ss -Hltnp "sport = :$1" 2>/dev/null | grep -q "pid=$2,"; }

start_keeper() {
    setsid "$inst/sbin/coved" -c "$conf/cove.conf" </dev/null >>"$log/coved.log" 2>&1 9>&- &
    started_pid=$!
    stat -c %y "$build/.stamp" >"$run/build-id"
    wait_until "$START_SECONDS" keeper_ready || {
        tail -n 5 "$log/coved.log" >&2
        die "coved did not start (its last words are above; all of them: $log/coved.log)."
    }
}

keeper_ready() {
    if is_gone "$started_pid"; then
        tail -n 5 "$log/coved.log" >&2
        die "coved ended at once (its last words are above; all of them: $log/coved.log)."
    fi
    # Files of a keeper that was killed may lie there, and its last worker may still answer /health: so we look for the socket itself, which
    # may have been bound as keeper.sock.new.
    [ -S "$run/fcgi.sock" ] && keeper_pid >/dev/null && ss -Hxl | grep -qF " $run/keeper.sock"
}

hand_over_keeper() { # sandboxes live on and the next keeper takes them
    local pid=$1
    kill -QUIT "$pid"
    wait_until "$STOP_SECONDS" is_gone "$pid" || { kill -KILL "$pid" || true; wait_until 5 is_gone "$pid" || true; }
}

same_build() { [ "$(cat "$run/build-id" 2>/dev/null)" = "$(stat -c %y "$build/.stamp")" ]; }

run_keeper() { # run_keeper CONFIG_CHANGED
    local pid
    if ! pid=$(keeper_pid); then
        start_keeper
        say "      coved started (pid $(keeper_pid))"
    elif [ "$1" = yes ] || ! same_build; then
        hand_over_keeper "$pid"
        start_keeper
        say "      coved restarted with the new build or settings; sandboxes were kept"
    else
        say "      coved is running already (pid $pid)"
    fi
}

run_nginx() { # run_nginx CONFIG_CHANGED
    local pid
    nginx -t -q -c "$conf/nginx.conf" -e "$log/nginx-error.log" 2>"$log/nginx-test.log" || {
        cat "$log/nginx-test.log" >&2
        die "nginx does not accept its configuration (above)."
    }
    if ! pid=$(nginx_pid); then
        nginx -c "$conf/nginx.conf" -e "$log/nginx-error.log" 9>&- || die "nginx did not start (above)."
        say "      nginx started"
    elif [ "$1" = yes ]; then
        kill -HUP "$pid"
        say "      nginx reloaded (pid $pid)"
    else
        say "      nginx is running already (pid $pid)"
    fi
}

healthy() { [ "$(curl -s -m 5 "http://127.0.0.1:$http_port/health" 2>/dev/null)" = '{"status":"ok"}' ]; }
