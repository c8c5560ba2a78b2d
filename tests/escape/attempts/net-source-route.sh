# class: network
# promise: source routing leads round no rule
# refused: EPERM
# world: internet
# control: no rules, as the host's root
# shellcheck shell=bash
exec python3 - <<'END'
import os, socket, sys
for through in os.environ["HOST_ADDRESSES"].split():
    if ":" in through:
        continue
    for to in os.environ["PRIVATE_ADDRESSES"].split():
        if ":" in to:
            continue
        for kind in (131, 137):  # loose and strict
            try:
                s = socket.socket()
                s.settimeout(1)
                s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([1, kind, 7, 4]) + socket.inet_aton(through))
                s.connect((to, 80))
                sys.exit(0)
            except OSError as e:
                print(through, to, e)
sys.exit(1)
END
