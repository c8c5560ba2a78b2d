# class: network
# promise: the host does not answer on link-local addresses
# refused: ENETUNREACH silence
# world: internet
# control: no rules
# shellcheck shell=bash
exec python3 - <<'END'
import os, socket, sys
for address in os.environ["LINK_LOCAL_ADDRESSES"].split():
    try:
        s = socket.socket(socket.AF_INET6)
        s.settimeout(1)
        s.connect((address, 80, 0, socket.if_nametoindex("eth0")))
        sys.exit(0)
    except OSError as e:
        print(address, e)
sys.exit(1)
END
