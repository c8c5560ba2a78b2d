# class: network
# promise: loopback addresses lead nowhere through the other interface
# refused: silence
# world: internet
# control: no rules
# shellcheck shell=bash
exec python3 - <<'END'
import socket, sys
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.53"), (socket.AF_INET6, "::1")):
    try:
        s = socket.socket(family)
        s.settimeout(1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
        s.connect((address, 80))
        sys.exit(0)
    except OSError as e:
        print(address, e)
sys.exit(1)
END
