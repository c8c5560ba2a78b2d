#!/bin/bash
# Inside the machine of tests/vm/run.sh: install the package as an operator would, then see that it keeps its promises. Each
# check is a line PASS or FAIL on the console; the last line is RESULT.
# shellcheck disable=SC2016 # commands are expanded by the shell in the sandbox
set -uo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
exec >/dev/ttyS0 2>&1

readonly BOOK=/var/lib/cove-vm # what the second boot must know
readonly URL=https://cove.localhost
readonly CERT=/etc/cove/tls/cove.crt

# ------------------------------------------------------------------ words

note() { printf 'NOTE %s\n' "$*"; }

verdict() { # verdict NAME STATUS [WHAT IT SAW]
    if [ "$2" -eq 0 ]; then
        echo pass >>$BOOK/verdicts
        printf 'PASS %s%s\n' "$1" "${3:+: $3}"
    else
        echo fail >>$BOOK/verdicts
        printf 'FAIL %s%s\n' "$1" "${3:+: $3}"
        journalctl -b --no-pager -n 15 -o short-monotonic 2>/dev/null | sed 's/^/     | /'
    fi
}

check() { # check NAME COMMAND...
    local name=$1 out status
    shift
    out=$("$@" 2>&1)
    status=$?
    verdict "$name" $status "$(tail -n 1 <<<"$out" | cut -c 1-200)"
}

wait_until() { # wait_until SECONDS COMMAND...
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.2
    done
}

# ------------------------------------------------------------------ calling it

execute() { # execute PROJECT COMMAND: the reply; with $key, as whose it is
    curl -s -m 60 --cacert $CERT "$URL/execute" -H "X-API-Key: ${key:-$(cat /etc/cove/first-key)}" \
        -d "$(jq -nc --arg p "$1" --arg c "$2" '{projectId: $p, commands: [$c]}')"
}

field() { jq -r "$1" 2>/dev/null; }
out_of() { execute "$1" "$2" | field .stdout; }
id_of() { execute "$1" true | field .sandboxId; }
healthy() { curl -sf -m 5 --cacert $CERT "$URL/health"; }
main_pid() { systemctl show --value -p MainPID cove; }
cgroup_of() { find /sys/fs/cgroup -type d -name "${1#sandbox_}" | head -n 1; }

# ------------------------------------------------------------------ installing

setting() { sed -i "s|^$1 = .*|$1 = $2|" /etc/cove/cove.conf; }

# What an operator reads is what is done: the commands of the page's first chapter, as they stand there.
follow_the_manual() {
    local deb
    mkdir -p $BOOK/manual && cd $BOOK/manual || return
    sed -n '/^## Install/,/^## /s/^    //p' /payload/OPERATING.md >commands
    deb=$(grep -o 'cove_[0-9.]*_amd64.deb' commands | head -n 1)
    cp /payload/cove-1.deb "./$deb" && grep -c . commands >/dev/null || return
    sed -i 's/^apt install /&-y /' commands # nobody is there to say yes
    bash -e commands >out 2>&1
    grep -a 'first key' out
    tail -n 1 out
    grep -qa '"stdout":"hello from' out
}

small_limits() { # so that reaching them takes no time; a restart would leave sandboxes, warm ones too, with what they have
    setting memory_max 128M
    setting pids_max 64
    setting disk_max 48M
    setting cpu_percent 150
    setting command_timeout 20s
    setting pool 2
    systemctl stop cove && systemctl start cove && wait_until 60 healthy
}

upgrade_package() {
    dpkg --force-confold -i /payload/cove-2.deb >$BOOK/upgrade.log 2>&1 || return
    wait_until 60 healthy && counter_moves && printf ', version %s' "$(dpkg-query -W -f '${Version}' cove)" && grep -q '^memory_max = 128M' /etc/cove/cove.conf
}

remove_package() {
    dpkg -r cove >$BOOK/remove.log 2>&1 && [ -e /etc/cove/keys ] && nothing_left && nginx -t -q && systemctl is-active nginx
}

purge_package() {
    dpkg -P cove >$BOOK/purge.log 2>&1 && [ ! -e /etc/cove ] && [ ! -e /var/lib/cove ] && ! getent passwd cove &&
        ! systemctl --failed --no-legend | grep -a 'cove\|nginx'
}

# ------------------------------------------------------------------ what is promised

host_is_as_meant() {
    printf 'Linux %s, systemd %s, %s MiB, cgroup2 controllers: %s' "$(uname -r)" \
        "$(systemctl --version | awk 'NR == 1 { print $2 }')" "$(awk '/MemTotal/ { print int($2 / 1024) }' /proc/meminfo)" \
        "$(cat /sys/fs/cgroup/cgroup.controllers)"
    ! grep -q ' - cgroup ' /proc/self/mountinfo && grep -q ' - cgroup2 ' /proc/self/mountinfo &&
        [ "$(cat /proc/1/comm)" = systemd ]
}

service_starts() {
    wait_until 60 healthy && systemctl is-enabled cove && systemctl is-active cove
}

first_command() {
    local reply
    reply=$(execute first 'echo hello from $(id -un)')
    printf '%s' "$reply"
    [ "$(field .stdout <<<"$reply")" = "hello from root" ] && [ "$(field .success <<<"$reply")" = true ]
}

limits_are_set() {
    local dir
    dir=$(cgroup_of "$(id_of first)")
    [ -n "$dir" ] || return
    printf '%s: memory.max %s, pids.max %s, cpu.max %s' "${dir#/sys/fs/cgroup/}" "$(cat "$dir/memory.max")" \
        "$(cat "$dir/pids.max")" "$(cat "$dir/cpu.max")"
    [ "$(cat "$dir/memory.max")" = $((128 << 20)) ] && [ "$(cat "$dir/pids.max")" = 64 ] &&
        [ "$(cat "$dir/cpu.max")" = "150000 100000" ]
}

memory_limit_holds() {
    local reply
    reply=$(execute first 'perl -e "\$x = q(x) x 300000000"')
    printf 'exit %s, %s' "$(field .exitCode <<<"$reply")" "$(field .ended.message <<<"$reply")"
    grep -q 'memory limit (128 MiB) reached' <<<"$reply" && [ "$(field .exitCode <<<"$reply")" = 137 ] &&
        [ "$(out_of first 'echo alive')" = alive ]
}

pids_limit_holds() {
    local reply
    # dash gives up at the first fork that fails; bash would try again until the deadline.
    reply=$(execute pids 'exec dash -c "for i in \$(seq 200); do sleep 60 & done; wait"')
    printf 'exit %s, %s' "$(field .exitCode <<<"$reply")" "$(field .ended.message <<<"$reply")"
    grep -q 'process limit (64) reached' <<<"$reply" && [ "$(field .success <<<"$reply")" = false ]
}

cpu_limit_holds() {
    local dir
    dir=$(cgroup_of "$(id_of cpu)")
    execute cpu 'timeout 4 bash -c "while :; do :; done" & timeout 4 bash -c "while :; do :; done" & wait' >/dev/null
    printf '%s' "$(grep -E '^nr_' "$dir/cpu.stat" | xargs)"
    [ "$(awk '$1 == "nr_throttled" { print $2 }' "$dir/cpu.stat")" -gt 0 ]
}

disk_limit_holds() {
    local reply
    reply=$(execute disk 'head -c 100M /dev/zero >/workspace/big')
    printf 'exit %s, %s' "$(field .exitCode <<<"$reply")" "$(field .ended.message <<<"$reply")"
    grep -q "disk limit (48 MiB) reached" <<<"$reply" &&
        [ "$(out_of disk 'rm /workspace/big; head -c 20M /dev/zero >/workspace/again; stat -c %s /workspace/again')" = 20971520 ]
}

loopback_works() { # with the network as it is configured by default
    local out
    out=$(out_of first 'perl -MIO::Socket::INET -e "
        my \$l = IO::Socket::INET->new(Listen => 1, LocalAddr => q(127.0.0.1)) or die;
        my \$c = IO::Socket::INET->new(PeerAddr => q(127.0.0.1), PeerPort => \$l->sockport) or die;
        my \$s = \$l->accept; print \$c qq(round trip\n); \$c->flush; print scalar <\$s>" 2>&1')
    printf '%s, network = %s' "$out" "$(sed -n 's/^network = //p' /etc/cove/cove.conf)"
    [ "$out" = "round trip" ]
}

# A way out that leads nowhere, and sandboxes that may use it: they start, have more than loopback, and the machine's own services,
# which answer on its address, are out of their reach.
egress_is_walled() {
    local host=198.51.100.2 out
    ip link add uplink0 type veth peer name uplink1 && ip address add $host/24 dev uplink0 && ip link set uplink1 up &&
        ip link set uplink0 up && ip route add default via 198.51.100.1 || return
    systemctl stop cove && setting network egress && systemctl start cove && wait_until 60 healthy || return
    curl -sk -o /dev/null -m 10 https://$host/health || { printf 'nginx does not answer on %s' $host; return 1; }
    out=$(out_of netted "perl -MIO::Socket::INET -e '
        my \$l = IO::Socket::INET->new(Listen => 1, LocalAddr => q(127.0.0.1)) or die;
        print IO::Socket::INET->new(PeerAddr => q(127.0.0.1), PeerPort => \$l->sockport) ? q(loopback ) : q(no loopback );
        print IO::Socket::INET->new(PeerAddr => q($host), PeerPort => 443, Timeout => 3) ? q(host reached ) : q(host out of reach )'
        grep -c : /proc/net/dev")
    printf '%s interfaces' "$out"
    [ "$out" = "loopback host out of reach 2" ]
}

# A unix account, the shipped /etc/pam.d/cove, a password in the request.
password_signs_in() {
    local status
    useradd --no-create-home --groups cove-users alice && echo 'alice:vm-test-1' | chpasswd || return
    for password in wrong vm-test-1; do
        status+=" $(curl -s -o /dev/null -w '%{http_code}' -m 30 --cacert $CERT -u "alice:$password" "$URL/execute" \
            -H 'Content-Type: application/json' -d '{"projectId":"pw","commands":["true"]}')"
    done
    printf 'wrong, right:%s' "$status"
    [ "$status" = " 401 200" ]
}

fork_bomb_is_harmless() {
    local reply began=$SECONDS
    reply=$(execute bomb 'printf "#!/bin/bash\n\"\$0\" & \"\$0\" & wait\n" >/tmp/b; chmod +x /tmp/b; /tmp/b')
    printf '%s s, success %s, exit %s' $((SECONDS - began)) "$(field .success <<<"$reply")" "$(field .exitCode <<<"$reply")"
    [ "$(field .success <<<"$reply")" = false ] && [ "$(out_of other 'echo fine')" = fine ] &&
        execute bomb true | grep -q sandboxId
}

deadline_reaches_daemons() {
    local reply dir a b
    reply=$(execute deadline '(setsid bash -c "(trap \"\" TERM HUP; while :; do echo \$((n++)) >/workspace/n; sleep 0.3; done) & " &)
        sleep 100')
    printf '%s' "$(field .error <<<"$reply" | tail -c 24)"
    grep -q 'deadline (20 s) reached' <<<"$reply" && [ "$(field .exitCode <<<"$reply")" = 124 ] || return
    dir=$(cgroup_of "$(field .sandboxId <<<"$reply")")
    { read -r a; read -r b; } < <(out_of deadline 'cat /workspace/n; sleep 1.5; cat /workspace/n')
    printf ', counter at %s, then %s, %s processes' "$a" "$b" "$(cat "$dir"/cgroup.procs "$dir"/*/cgroup.procs | wc -l)"
    [ -n "$a" ] && [ "$a" = "$b" ]
}

no_oom_privilege() { # the service has one, its sandboxes must not
    local out
    out=$(out_of first 'cat /proc/1/oom_score_adj /proc/self/oom_score_adj; echo -1 >/proc/self/oom_score_adj || echo refused' | xargs)
    printf '%s' "keeper $(cat /proc/"$(main_pid)"/oom_score_adj), inside $out"
    [ "$out" = "0 500 refused" ]
}

exec_policy_denies() {
    local reply
    reply=$(execute first "echo $(printf 'rm -rf /workspace/x' | base64) | base64 -d | sh")
    field .stderr <<<"$reply" | head -n 1
    grep -qi 'rm -rf' <<<"$reply" && [ "$(field .exitCode <<<"$reply")" != 0 ] &&
        grep -q exec-denied /var/lib/cove/audit.log
}

start_counter() {
    execute counter 'i=0; while :; do i=$((i+1)); echo $i >/workspace/j; mv /workspace/j /workspace/i; sleep 0.2; done >/dev/null 2>&1 & echo' | field .sandboxId >$BOOK/counter
    wait_until 10 counter_moves
}

counter_moves() { # same sandbox, and what runs in it still counts
    local reply a b
    reply=$(execute counter 'cat /workspace/i; sleep 1; cat /workspace/i')
    { read -r a; read -r b; } < <(field .stdout <<<"$reply")
    printf '%s at %s, then %s' "$(field .sandboxId <<<"$reply")" "$a" "$b"
    [ -n "$a" ] && [ -n "$b" ] && [ "$b" -gt "$a" ] && [ "$(field .sandboxId <<<"$reply")" = "$(cat $BOOK/counter)" ]
}

survives_restart() {
    local before
    before=$(main_pid)
    systemctl restart cove && wait_until 60 healthy && [ "$(main_pid)" != "$before" ] && counter_moves
}

# What comes while there is no keeper waits in the socket that systemd holds.
restart_loses_no_request() {
    local before
    ask_all_the_time & asker=$!
    before=$(main_pid)
    wait_until 20 asked 2
    systemctl restart cove
    wait_until 60 healthy
    asked_before=$(wc -l <$BOOK/asked)
    wait_until 20 asked $((asked_before + 2))
    rm -f $BOOK/ask
    wait $asker
    printf '%s' "$(sort $BOOK/asked | uniq -c | xargs)"
    [ "$(main_pid)" != "$before" ] && [ "$(sort -u $BOOK/asked)" = 200 ]
}

ask_all_the_time() {
    touch $BOOK/ask
    : >$BOOK/asked
    while [ -e $BOOK/ask ]; do
        curl -s -o /dev/null -w '%{http_code}\n' -m 60 --cacert $CERT "$URL/execute" -H "X-API-Key: $(cat /etc/cove/first-key)" \
            -d '{"projectId":"asked","commands":["true"]}' >>$BOOK/asked
    done
}
asked() { [ "$(wc -l <$BOOK/asked)" -ge "$1" ]; }

# systemd has a pidfd of each sandbox, and gives them to the next keeper.
descriptors_are_kept() {
    local stored taken
    stored=$(systemctl show --value -p NFileDescriptorStore cove)
    systemctl restart cove && wait_until 60 healthy || return
    taken=$(journalctl -b -u cove --no-pager -o cat | grep -a 'state taken over' | tail -n 1)
    printf '%s stored, then: %s' "$stored" "$(jq -c '{sandboxes, pidfds}' <<<"$taken")"
    [ "$stored" -ge 2 ] && jq -e '.pidfds > 0 and .pidfds == .sandboxes' <<<"$taken" >/dev/null && counter_moves >/dev/null
}

survives_keeper_kill() {
    local before
    before=$(main_pid)
    kill -KILL "$before"
    wait_until 30 keeper_is_other_than "$before" && wait_until 60 healthy && wait_until 10 counter_moves && counter_moves &&
        [ "$(id_of fresh-after-kill)" != "" ]
}

keeper_is_other_than() { [ "$(main_pid)" != 0 ] && [ "$(main_pid)" != "$1" ] && systemctl is-active cove; }

limits_hold_after_restart() {
    local reply
    reply=$(execute counter 'perl -e "\$x = q(x) x 300000000"')
    printf 'exit %s, %s' "$(field .exitCode <<<"$reply")" "$(field .ended.message <<<"$reply")"
    grep -q 'memory limit (128 MiB) reached' <<<"$reply" && counter_moves >/dev/null
}

reload_takes_effect() {
    local before
    before=$(main_pid)
    setting command_timeout 3s
    systemctl reload cove || return
    wait_until 30 new_deadline_holds && [ "$(main_pid)" = "$before" ] && counter_moves || return
    setting command_timeout 20s # a machine on its way up needs more
    systemctl reload cove
}

new_deadline_holds() { execute reload 'sleep 8' | grep -q '3 s'; }

bad_reload_changes_nothing() {
    cp /etc/cove/cove.conf $BOOK/cove.conf
    echo 'no_such_key = 1' >>/etc/cove/cove.conf
    systemctl reload cove
    wait_until 30 named_in_the_journal
    cp $BOOK/cove.conf /etc/cove/cove.conf
    healthy >/dev/null && named_in_the_journal
}

named_in_the_journal() {
    journalctl -b -u cove --no-pager -o cat | grep -a refused | grep -ao 'cove.conf:[^"]*no_such_key[^"]*' | tail -n 1 | grep .
}

stop_ends_all() {
    local left
    systemctl stop cove || return
    wait_until 30 nothing_left
    left=$(what_is_left)
    printf '%s' "${left:-nothing left}"
    [ -z "$left" ]
}

what_is_left() {
    find /sys/fs/cgroup -type d -path '*cove*' ! -name 'cove-vm-test.service' ! -name 'cove-vm*'
    pgrep -a -f '^cove: '
    ls -d /var/lib/cove/boxes/* /run/cove/boxes/* 2>/dev/null
    grep -a '/var/lib/cove\|/run/cove' /proc/self/mountinfo
}
nothing_left() { [ -z "$(what_is_left)" ]; }

starts_again() { systemctl start cove && wait_until 60 healthy && [ "$(out_of first 'echo new')" = new ]; }

socket_starts_the_service() {
    systemctl stop cove && systemctl start cove.socket && [ "$(systemctl is-active cove)" != active ] &&
        [ "$(out_of first 'echo woken')" = woken ] && systemctl is-active cove
}

nginx_says_503() { curl -s -o /dev/null -w '%{http_code}' -m 5 --cacert $CERT $URL/health | grep -x '50[23]'; }

units_are_valid() { systemd-analyze verify --man=no /lib/systemd/system/cove*; } # finds nothing, says nothing
operators_tool() {
    local id
    cove doctor >$BOOK/doctor || { grep -av ' ok' $BOOK/doctor; return 1; }
    id=$(id_of first | cut -d _ -f 2) || return # before `cove ls` looks: this may be what makes the sandbox
    cove ls --json | grep -q "$id" && printf 'doctor: %s' "$(tail -n 1 $BOOK/doctor)"
}
exposure() { systemd-analyze security --no-pager --threshold=70 cove.service | tail -n 1 | grep -o 'Overall.*'; }

# ------------------------------------------------------------------ state_dir on a file system with project quotas

# state_dir on another disk, mounted with prjquota; the configuration says `disk = auto`.
move_to_quotas() { # move_to_quotas ext4|xfs DEVICE
    systemctl stop cove || return
    case $1 in
    ext4) mke2fs -q -t ext4 -O project,quota "$2" ;;
    xfs) mkfs.xfs -q -f "$2" ;;
    esac && mount -o prjquota,nosuid,nodev "$2" /var/lib/cove && setting inodes_max 1500 && systemctl start cove && wait_until 60 healthy &&
        wait_until 20 in_use project
}

in_use() { coved --show-config | grep -x "# disk in use: $1"; }

doctor_names_it() { cove doctor | grep "disk = auto: project in use"; }

upper_of() { printf '/var/lib/cove/boxes/%s/files/up' "${1#sandbox_}"; }

df_shows_the_limit() {
    local out
    out=$(out_of disk "df -B1 --output=size,itotal / | tail -n 1; df -B1 --output=size,itotal /usr | tail -n 1" | xargs)
    printf '%s' "$out"
    [ "$out" = "50331648 1500 50331648 1500" ]
}

files_are_counted() {
    local out
    out=$(out_of files 'mkdir -p /workspace/n; cd /workspace/n; for i in $(seq 1700); do : >$i || break; done 2>/dev/null; ls | wc -l')
    printf '%s files' "$out"
    [ "$out" -gt 1400 ] && [ "$out" -lt 1600 ]
}

whiteout_at_the_limit() {
    # A little more than the 48 MiB: XFS tries again after a flush, and would fill the reserve if that was given meanwhile.
    execute full 'head -c 47000K /dev/zero >/workspace/big; head -c 2300K /dev/zero >/workspace/more' >/dev/null
    wait_until 60 removes_hostname
    printf 'used %s of %s bytes, %s of %s inodes' "$(quota_now full 2)" "$(quota_now full 0)" "$(quota_now full 5)" "$(quota_now full 3)"
    [ "$(out_of full 'ls /etc/hostname 2>&1 | grep -c "No such"')" = 1 ]
}
removes_hostname() { [ "$(execute full 'rm -f /etc/hostname' | field .success)" = true ]; }

# Field WANTED of the limits of a project: 0 bytes hard, 2 bytes used, 3 inodes hard, 5 inodes used.
quota_of() { # quota_of PROJECT WANTED
    perl -e 'open my $d, "<", "/var/lib/cove" or die; my $q = "\0" x 72;
        syscall(443, fileno($d), 0x80000702, $ARGV[0] + 0, $q) == 0 or die "$!\n"; print((unpack "Q8", $q)[$ARGV[1]])' "$1" "$2"
}
quota_now() { quota_of "$(project_of "$(id_of "$1")")" "$2"; }
# The first project from 2^30 on that has a limit or a file, or nothing.
next_quota() {
    perl -e 'open my $d, "<", "/var/lib/cove" or die; my $q = "\0" x 72;
        print unpack "x68 L", $q if syscall(443, fileno($d), 0x80000902, 1 << 30, $q) == 0'
}
project_of() { readlink "/var/lib/cove/boxes/${1#sandbox_}/project" | cut -d ' ' -f 1; }

usage_is_known() {
    local id used
    id=$(id_of used)
    execute used 'head -c 20M /dev/zero >/workspace/f; sync' >/dev/null
    used=$(quota_of "$(project_of "$id")" 2)
    wait_until 40 keeper_knows
    printf 'kernel %s, keeper %s' "$used" "$(told_bytes)"
    [ "$used" -ge 20971520 ] && [ "$used" -lt 23000000 ] && keeper_knows
}
told_bytes() { cove tenant list --json | jq '.[] | select(.tenant == "default") | .disk_bytes'; }
keeper_knows() { [ "$(told_bytes)" -ge 20971520 ] && [ "$(told_bytes)" -lt 23000000 ]; }

project_is_fixed_inside() {
    local out
    out=$(out_of jail 'mkdir -p /workspace/d; cd /workspace; : >f; lsattr -pd d; lsattr -p f
        for try in "-p 0 d" "-p 7 d" "-P d" "-p 0 f" "-p 7 f"; do chattr $try 2>/dev/null && echo "done: $try"; done
        lsattr -pd d; lsattr -p f')
    printf '%s' "$(xargs <<<"$out")"
    ! grep -q done: <<<"$out" && [ "$(wc -l <<<"$out")" = 4 ] && [ "$(sort -u <<<"$out" | wc -l)" = 2 ] &&
        [ "$(awk '{ print $1 }' <<<"$out" | sort -u)" = "$(project_of "$(id_of jail)")" ] && grep -q 'P.* d$' <<<"$out"
}

projects_do_not_mix() {
    local one two out
    one=$(upper_of "$(id_of jail)")/workspace two=$(upper_of "$(id_of used)")/workspace
    out=$(perl -e 'print rename($ARGV[0], $ARGV[1]) ? "renamed" : "$!", ", ", link($ARGV[0], $ARGV[1]) ? "linked" : "$!"' "$one/f" "$two/g")
    printf '%s' "$out"
    [ "$out" = "Invalid cross-device link, Invalid cross-device link" ]
}

forks_share() { # forks_share ext4|xfs
    local id fork before after
    id=$(id_of used)
    sync -f /var/lib/cove
    before=$(df -k --output=used /var/lib/cove | tail -n 1)
    fork=$(cove snapshot fork "${id#sandbox_}") || return
    sync -f /var/lib/cove
    after=$(df -k --output=used /var/lib/cove | tail -n 1)
    printf '%s KiB more, its own files: %s' $((after - before)) "$(quota_of "$(project_of "$fork")" 2)"
    [ "$(cove exec "$fork" stat -c %s /workspace/f)" = 20971520 ] && [ "$(quota_of "$(project_of "$fork")" 2)" -lt 2000000 ] || return
    if [ "$1" = xfs ]; then [ $((after - before)) -lt 8000 ]; else [ $((after - before)) -gt 16000 ]; fi
}

quotas_survive_a_kill() {
    local before one two
    one=$(project_of "$(id_of used)")
    before=$(main_pid)
    kill -KILL "$before"
    wait_until 30 keeper_is_other_than "$before" && wait_until 60 healthy || return
    two=$(project_of "$(id_of after)")
    printf 'projects %s and %s' "$one" "$two"
    [ "$(project_of "$(id_of used)")" = "$one" ] && [ -n "$two" ] && [ "$two" != "$one" ] && disk_limit_holds >/dev/null
}

full_host_is_told() {
    setting disk_reserve 900G && systemctl reload cove && wait_until 90 write_fails || return
    setting disk_reserve 0 && systemctl reload cove && wait_until 90 write_works
}
write_fails() { [ "$(execute jail 'head -c 2M /dev/zero >>/workspace/h' | field .success)" = false ]; } # more each time
write_works() { [ "$(execute jail 'head -c 4M /dev/zero >/workspace/h' | field .success)" = true ]; }

numbers_are_released() {
    [ -n "$(next_quota)" ] || return
    systemctl stop cove && wait_until 60 no_quota_left
    printf 'left: %s' "$(next_quota)"
    [ -z "$(next_quota)" ] && nothing_left_on_quotas
}
no_quota_left() { [ -z "$(next_quota)" ]; }
nothing_left_on_quotas() { ! ls -d /var/lib/cove/boxes/* 2>/dev/null; }

leave_quotas() { umount /var/lib/cove && systemctl start cove && wait_until 60 healthy && wait_until 20 in_use btrfs; }

on_quotas() { # on_quotas ext4|xfs DEVICE
    check "$1 with prjquota: disk = auto takes project quotas" move_to_quotas "$1" "$2"
    check "$1: cove doctor says so" doctor_names_it
    check "$1: usage is known" usage_is_known # while no other sandbox of the tenant has files
    check "$1: disk limit holds" disk_limit_holds
    check "$1: df inside shows the limit" df_shows_the_limit
    check "$1: files are counted" files_are_counted
    check "$1: at the limit a file of the template can be deleted" whiteout_at_the_limit
    check "$1: nobody inside changes a project" project_is_fixed_inside
    check "$1: nothing is moved or linked into another project" projects_do_not_mix
    check "$1: a fork of the files" forks_share "$1"
    check "$1: limits and numbers outlive the keeper" quotas_survive_a_kill
    check "$1: on a full host writing is refused" full_host_is_told
    check "$1: all numbers are released" numbers_are_released
    check "$1: and back" leave_quotas
}

disks() {
    on_quotas ext4 /dev/vdc
    on_quotas xfs /dev/vdd
}

# ------------------------------------------------------------------ shares of processes

# A tenant's sandboxes take more than half of the processes that all sandboxes may have, within the limits that each has; the bound of all
# sandboxes is lowered for that. The keeper then holds this tenant (its sandboxes keep what they have) and makes room for others.
start_many() { execute "$1" "for i in \$(seq $2); do sleep 600 2>/dev/null & done; jobs -p | wc -l"; }
others_start() { [ "$(key=$victim execute theirs 'for i in $(seq 20); do sleep 60 & done; jobs -p | wc -l; kill $(jobs -p)' | field .stdout)" = 20 ]; }
limit_of() { cat "$(cgroup_of "$1")/pids.max"; }

shares_hold() {
    local corner victim bound raised one two refused
    victim=$(cove key create victim --name victim | grep -ao 'e2b_[0-9a-f]*' | head -n 1)
    wait_until 30 others_start || return
    one=$(id_of many-a) two=$(id_of many-b)
    corner=$(dirname "$(cgroup_of "$one")")
    bound=$(($(cat "$corner/pids.current") + 70))
    echo $bound >"$corner/pids.max" || return
    start_many many-a 50 >/dev/null # the last of them may be refused already
    wait_until 30 others_start || { printf 'others start none, %s of %s' "$(cat "$corner/pids.current")" "$(cat "$corner/pids.max")"; return 1; }
    raised=$(cat "$corner/pids.max") one=$(limit_of "$one") two=$(limit_of "$two") # once: a minute later the tenant may be let go
    refused=$(execute many-c true | field .error)
    printf 'bound %s, then %s; its sandboxes have %s and %s of 64; a further one: %s' "$bound" "$raised" "$one" "$two" "$refused"
    [ "$raised" = $((bound + bound / 6)) ] && [ "$one" -lt 64 ] && [ "$two" -lt 64 ] && [[ $refused == quota:* ]]
}

processes() {
    check "a tenant with most processes leaves some to others" shares_hold
    check "and starts over" small_limits # no tenant is held, and the bound is the kernel's again
}

# ------------------------------------------------------------------ memory of many

readonly MANY=1000

# Every slab and every figure of /proc/meminfo in KiB, a line each.
memory_now() {
    awk '{ sub(":", "", $1); print $1, $2 }' /proc/meminfo
    awk 'NR > 2 { print $1, int($2 * $4 / 1024) }' /proc/slabinfo
}

many_requests() { # for one curl, which keeps its connection: a handshake takes this machine longer than a sandbox
    local i key
    key=$(cat /etc/cove/first-key)
    for i in $(seq $MANY); do
        printf 'url = "%s/execute"\ncacert = "%s"\nheader = "X-API-Key: %s"\n' $URL $CERT "$key"
        printf 'data = "{\\"projectId\\":\\"many%s\\",\\"commands\\":[\\"true\\"]}"\n' "$i"
        printf 'output = "/dev/null"\nwrite-out = "%%{http_code}\\n"\nsilent\nnext\n'
    done
}

# What the machine has less of with a thousand idle sandboxes, each after one command, and where that is. This machine is freshly booted,
# which a bench's host is not: the kernel's maps of file systems in memory cgroups stay as long as they have ever been.
many_are_small() {
    local made
    for key in max_sandboxes tenant_sandboxes; do setting $key $((MANY + 64)); done
    setting pool 0
    systemctl stop cove && systemctl start cove && wait_until 60 healthy && id_of one >/dev/null || return
    many_requests >$BOOK/requests
    sleep 5
    memory_now >$BOOK/before
    made=$(curl -K $BOOK/requests | grep -c '^200$')
    sleep 60 # processes made ahead for a next command end after 20 s, and this machine is slow
    memory_now >$BOOK/after
    join <(sort $BOOK/before) <(sort $BOOK/after) | awk -v n=$MANY '{ print int(($3 - $2) / n), $1 }' >$BOOK/each
    printf '%s sandboxes, %s KiB each' "$made" "$(awk '$2 == "MemAvailable" { print -$1 }' $BOOK/each)"
    [ "$made" = $MANY ]
}

many() {
    check "memory of many idle sandboxes" many_are_small
    note "of which, in KiB: $(sort -rn $BOOK/each | awk '$1 >= 2 { printf "%s %s, ", $2, $1 }')"
}

# ------------------------------------------------------------------ two boots

only() { # only disks|processes|many
    mkdir -p $BOOK
    : >$BOOK/verdicts
    check "the first chapter of docs/OPERATING.md, as it stands there" follow_the_manual
    check "stop, small limits, start" small_limits
    check "disk limit holds" disk_limit_holds
    "$1"
    result
}

result() {
    printf 'RESULT %d passed, %d failed\n' "$(grep -c pass $BOOK/verdicts)" "$(grep -c fail $BOOK/verdicts)"
    systemctl poweroff
}

first_boot() {
    mkdir -p $BOOK
    : >$BOOK/verdicts
    check "systemd is process 1, cgroup v2 is alone" host_is_as_meant
    check "the first chapter of docs/OPERATING.md, as it stands there" follow_the_manual
    check "units pass systemd-analyze verify" units_are_valid
    check "the service is active" service_starts
    check "first command over HTTPS" first_command
    check "loopback works in a sandbox" loopback_works
    check "a password signs in through PAM" password_signs_in
    check "stop, small limits, start" small_limits
    check "limits are in the sandbox's own v2 cgroup" limits_are_set
    check "memory limit kills and is told" memory_limit_holds
    check "pids limit holds and is told" pids_limit_holds
    check "cpu limit holds" cpu_limit_holds
    processes
    check "disk limit holds" disk_limit_holds
    check "a fork bomb hurts only itself" fork_bomb_is_harmless
    check "the deadline reaches a detached daemon" deadline_reaches_daemons
    check "cove doctor, cove ls" operators_tool
    check "sandboxes are not spared when the host is out of memory" no_oom_privilege
    check "exec-time policy refuses" exec_policy_denies
    check "a background process counts" start_counter
    check "it survives systemctl restart" survives_restart
    check "and a second one, with its descriptors" descriptors_are_kept
    check "a restart loses no request" restart_loses_no_request
    check "limits hold in an adopted sandbox" limits_hold_after_restart
    check "it survives kill -9 of the keeper" survives_keeper_kill
    check "systemctl reload takes up a new setting" reload_takes_effect
    check "a broken configuration is refused and named" bad_reload_changes_nothing
    check "it survives an upgrade of the package" upgrade_package
    check "systemctl stop leaves nothing" stop_ends_all
    check "nginx answers for a stopped service" nginx_says_503
    check "systemctl start after stop" starts_again
    check "a request to cove.socket starts the service" socket_starts_the_service
    check "with network = egress the machine itself is out of reach" egress_is_walled
    disks
    check "sandboxes run at reboot" start_counter
    check "systemd-analyze security" exposure
    touch $BOOK/second
    note "rebooting at $(cut -d ' ' -f 1 /proc/uptime) s"
    sync
    systemctl reboot
}

second_boot() {
    rm $BOOK/second
    check "after a reboot the service is there" wait_until 90 healthy
    check "first command after a reboot" first_command
    check "no sandbox of before is left" test "$(id_of counter)" != "$(cat $BOOK/counter)"
    check "dpkg -r ends it and keeps the configuration" remove_package
    check "dpkg -P leaves nothing" purge_package
    result
}

if [ -e /payload/only ]; then only "$(cat /payload/only)"; elif [ -e $BOOK/second ]; then second_boot; else first_boot; fi
