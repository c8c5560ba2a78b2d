#!/bin/bash
# Runs inside the machine, started by systemd, once per boot. What it says goes to the serial console; "VM-TEST" lines are the result.
# shellcheck disable=SC2016 # what is quoted so is for the shell in the sandbox
set -uo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
state=/root/vm-phase
phase=$(cat "$state" 2>/dev/null || echo 1)

tell() { printf 'VM-TEST %s\n' "$*" >/dev/console; }
fail() {
    tell "FAILED: $*"
    { journalctl -u cove -u nginx --no-pager -n 40; systemctl status cove --no-pager; } >/dev/console 2>&1
    systemctl poweroff
    exit 1
}
must() { local what=$1; shift; if "$@" >/tmp/out 2>&1; then tell "ok: $what"; else cat /tmp/out >/dev/console; fail "$what"; fi; }
wait_until() { local n=$1; shift; until "$@" >/dev/null 2>&1; do n=$((n - 1)); [ "$n" -gt 0 ] || return 1; sleep 1; done; }

key() { cat /etc/cove/first-key; }
execute() { # execute PROJECT COMMAND: the reply
    curl -sS --max-time 60 --cacert /etc/cove/tls/cove.crt --resolve cove.localhost:443:127.0.0.1 https://cove.localhost/execute \
        -H "X-API-Key: $(key)" -d "{\"projectId\":\"$1\",\"commands\":[\"$2\"]}"
}
says() { execute "$1" "$2" | grep -F "$3"; } # says PROJECT COMMAND TEXT
answers() { curl -sk --max-time 5 https://127.0.0.1/health | grep -q ok; }
keeper() { systemctl show -p MainPID --value cove; }
pure_v2() { [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]; }

restart_under_running_sandboxes() {
    local before after
    says keep 'sleep 10000 & echo $! > /workspace/pid; echo started' started || return 1
    before=$(keeper)
    systemctl restart cove || return 1
    after=$(keeper)
    [ "$before" != "$after" ] || return 1
    wait_until 30 answers || return 1
    says keep 'kill -0 $(cat /workspace/pid) && echo still-running' still-running
}
crash_under_running_sandboxes() {
    local before
    before=$(keeper)
    kill -KILL "$before"
    wait_until 60 bash -c "[ \"\$(systemctl show -p MainPID --value cove)\" != $before ] && systemctl is-active cove"
    wait_until 30 answers || return 1
    says keep 'kill -0 $(cat /workspace/pid) && echo still-running' still-running
}
stop_ends_all() {
    systemctl stop cove || return 1
    ! pgrep -f '^cove: init' && [ ! -e /run/cove ] && systemctl start cove && wait_until 30 answers
}
doctor_is_content() { cove doctor; }

phase1() {
    must "pure cgroup v2" pure_v2
    must "apt install ./cove.deb" dpkg -i /root/cove-1.deb
    must "the service is active" wait_until 60 systemctl is-active --quiet cove
    must "nginx is active" systemctl is-active --quiet nginx
    must "answers over HTTPS" wait_until 60 answers
    must "a first command over HTTPS" says hello 'echo hello from $(id -un)' 'hello from root'
    must "files stay" says hello 'echo kept > /workspace/f; cat /workspace/f' kept
    must "the policy refuses" says hello 'rm -rf /' Forbidden
    must "limits hold" says hello 'cat /sys/fs/cgroup/memory.max || true; ulimit -n' exitCode
    must "without a key it is 401" bash -c "curl -sk -o /dev/null -w '%{http_code}' https://127.0.0.1/execute -d '{}' | grep -x 401"
    must "cove doctor" doctor_is_content
    must "reload" systemctl reload cove
    must "restart leaves what runs in sandboxes" restart_under_running_sandboxes
    must "a killed keeper is replaced and sandboxes live on" crash_under_running_sandboxes
    must "systemd's own view: no failed units" bash -c '! systemctl --failed --no-legend | grep -E "cove|nginx"'
    must "upgrade" dpkg -i /root/cove-2.deb
    must "the upgraded service answers" wait_until 60 answers
    must "an upgrade leaves what runs in sandboxes" says keep 'kill -0 $(cat /workspace/pid) && echo still-running' still-running
    must "stop ends all sandboxes" stop_ends_all
    echo 2 >"$state"
    tell "rebooting"
    systemctl reboot
}

phase2() {
    must "after a reboot the service is active" wait_until 120 systemctl is-active --quiet cove
    must "and answers" wait_until 60 answers
    must "with the key from before" says hello 'echo again' again
    must "remove" apt-get remove -y cove
    must "nothing of it runs" bash -c '! pgrep -f "^cove: "'
    must "nginx goes on" bash -c 'nginx -t -q && systemctl is-active nginx'
    must "purge" apt-get purge -y cove
    must "nothing of it is left" bash -c '[ ! -e /etc/cove ] && [ ! -e /var/lib/cove ] && ! getent passwd cove'
    tell "PASSED"
    systemctl poweroff
}

"phase$phase"
