# class: network
# promise: no datagram service of the host answers, by any of its addresses
# refused: EACCES EHOSTUNREACH
# world: internet
# shellcheck shell=bash
# weak: opens
exec python3 - <<'END'
import os, select, socket, sys
socks = []
for address in os.environ["HOST_ADDRESSES"].split():
    s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        s.connect((address, 9))
        s.send(b"hello")
        socks.append(s)
    except OSError as e:
        print(address, e)
def answered(s):
    try:
        return s.recv(16)
    except OSError as e:
        print(e)
        return b""
ready, _, _ = select.select(socks, [], [], 1.5)
if len(ready) < len(socks):
    print("no answer")
sys.exit(0 if any(answered(s) for s in ready) else 1)
END
