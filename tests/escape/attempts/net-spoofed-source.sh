# class: network
# promise: no packet leaves with a source that is not its own (the runner looks at what arrived)
# refused: ENETUNREACH
# world: internet
# control: no rules
# shellcheck shell=bash
exec python3 - <<'END'
import os, socket, sys
to = [a[4][0] for a in socket.getaddrinfo("public.example", 9)]
for source in os.environ["NEIGHBOUR_ADDRESSES"].split() + os.environ["UNLISTED_ADDRESSES"].split() + os.environ["HOST_ADDRESSES"].split():
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    level, option = (socket.IPPROTO_IPV6, 78) if ":" in source else (socket.IPPROTO_IP, 15)  # FREEBIND
    for target in to:
        if (":" in target) != (":" in source):
            continue
        try:
            s = socket.socket(family, socket.SOCK_DGRAM)
            s.setsockopt(level, option, 1)
            s.bind((source, 0))
            s.sendto(b"spoofed", (target, 9))
        except OSError as e:
            print(source, e)
sys.exit(1)
END
