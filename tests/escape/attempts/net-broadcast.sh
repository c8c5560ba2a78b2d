# class: network
# promise: nobody answers to broadcast or multicast
# refused: EHOSTUNREACH, silence
# world: internet
# control: no rules
# shellcheck shell=bash
exec python3 - <<'END'
import select, socket, sys
socks = []
for family, to in ((socket.AF_INET, "255.255.255.255"), (socket.AF_INET, "224.0.0.1"), (socket.AF_INET6, "ff02::1"), (socket.AF_INET6, "ff05::1")):
    s = socket.socket(family, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    try:
        if family == socket.AF_INET6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("eth0"))
        s.sendto(b"hello", (to, 9))
        socks.append(s)
    except OSError as e:
        print(to, e)
ready = select.select(socks, [], [], 1.5)[0]
print("an answer" if ready else "no answer")
sys.exit(0 if ready else 1)
END
