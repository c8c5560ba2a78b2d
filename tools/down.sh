# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# quickstart down: stops everything, then looks for what was left behind.

stop_pid() { # stop_pid PID SIGNAL: then SIGKILL
    kill -s "$2" "$1" 2>/dev/null || return 0
    wait_until "$STOP_SECONDS" is_gone "$1" && return 0
    kill -s KILL "$1" 2>/dev/null || true
    wait_until 5 is_gone "$1" || true
    return 1
}

# A process is this instance's if its cgroup is, or if it writes to this instance's log.
our_pids() {
    local pid
    {
        grep -lsE "/$cgroup(/|\$)" /proc/[0-9]*/cgroup || true
        find /proc/[0-9]*/fd/2 -lname "$log/coved.log" 2>/dev/null || true
    } | cut -d / -f 3 | sort -un | while read -r pid; do
        is_gone "$pid" || printf '%s\n' "$pid"
    done
}

our_mounts() { # innermost first
    awk -v a="$run/" -v b="$dir/state/" \
        '{ gsub(/\\040/, " ", $5); p = $5 "/"; if (index(p, a) == 1 || index(p, b) == 1) print $5 }' \
        /proc/self/mountinfo | sort -r
}

our_cgroups() { find /sys/fs/cgroup -depth -type d -path "*/$cgroup*" 2>/dev/null | grep "/$cgroup\(/\|\$\)" || true; }
our_netns() { find /run/netns -maxdepth 1 -name "$cgroup*" 2>/dev/null || true; }
our_sockets() { awk -v a="$run/" 'index($8, a) == 1 { print $8 }' /proc/net/unix | sort -u; }

left() { # left WHAT LIST: says so if the list is not empty, with a few of its lines
    [ -n "$2" ] || return 1
    local count
    count=$(wc -l <<<"$2")
    left_over=yes
    warn "left behind, cleaning up: $1 ($count): $(head -n 5 <<<"$2" | tr '\n' ' ')$([ "$count" -le 5 ] || printf '...')"
}

sweep() {
    local pid path found
    left_over=no
    found=$(our_pids)
    if left "processes" "$(for pid in $found; do
        printf '%s[%s, %s]\n' "$pid" "$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | cut -c 1-40)" \
            "$(sed -n 's/^State:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null)"
    done)"; then
        for pid in $found; do kill -KILL "$pid" 2>/dev/null || true; done
        wait_until 5 no_pids || true
    fi
    found=$(our_mounts)
    ! left "mounts" "$found" || while IFS= read -r path; do umount -l "$path" || true; done <<<"$found"
    found=$(our_cgroups)
    ! left "cgroups" "$found" || while IFS= read -r path; do rmdir "$path" 2>/dev/null || true; done <<<"$found"
    found=$(our_netns)
    ! left "network namespaces" "$found" || while IFS= read -r path; do umount -l "$path"; rm -f "$path"; done <<<"$found"
    found=$(our_sockets)
    ! left "sockets" "$found" || true
    found=$("$inst/sbin/coved" -c "$conf/cove.conf" --sweep 2>/dev/null || true)
    ! left "network" "$found" || true
}

no_pids() { [ -z "$(our_pids)" ]; }

cmd_down() {
    local pid killed=no
    if [ ! -e "$run" ] && no_pids; then
        say "cove is not running here."
        rm -f "$dir/settings" "$dir/env"
        return
    fi
    exec 9>"$dir/lock"
    flock -w 60 9 || die "another quickstart is at work in $dir."
    if pid=$(nginx_pid); then
        say "stopping nginx (pid $pid)"
        stop_pid "$pid" TERM || warn "nginx had to be killed."
    fi
    if pid=$(keeper_pid); then
        say "stopping coved (pid $pid) and its sandboxes"
        stop_pid "$pid" TERM || killed=yes
        [ "$killed" = no ] || warn "coved did not stop within $STOP_SECONDS seconds and was killed."
    fi
    wait_until 5 no_pids || true # workers end on their own once the keeper is gone
    sweep
    [ "$left_over" = no ] || sweep
    [ "$left_over" = no ] || die "could not clean up all of it (above)."
    rm -rf "$run" "$memory"
    rm -f "$dir/settings" "$dir/env"
    say "cove is down; nothing of it is left running."
}
