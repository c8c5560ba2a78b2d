# class: network
# promise: no other name server is asked, by UDP or TCP
# refused: EACCES ECONNREFUSED EHOSTUNREACH
# world: internet
# shellcheck shell=bash
# weak: opens
exec python3 - <<'END'
import os, socket, sys
question = b"\0\7\1\0\0\1\0\0\0\0\0\0\5other\7example\0\0\1\0\1"
for address in os.environ["RESOLVERS"].split():
    for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
        try:
            s = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, kind)
            s.settimeout(1)
            s.connect((address, 53))
            s.send((b"\0\x1f" if kind == socket.SOCK_STREAM else b"") + question)
            print("answered", address, s.recv(512))
            sys.exit(0)
        except OSError as e:
            print(address, e)
sys.exit(1)
END
