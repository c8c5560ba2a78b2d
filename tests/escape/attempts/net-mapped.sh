# class: network
# promise: IPv4 in the clothes of IPv6 reaches no more than IPv4
# refused: ECONNREFUSED
# world: internet
# shellcheck shell=bash
# weak: opens
exec python3 - <<'END'
import os, socket, sys
for address in os.environ["PRIVATE_ADDRESSES"].split() + os.environ["METADATA_ADDRESSES"].split() + os.environ["HOST_ADDRESSES"].split():
    if ":" in address:
        continue
    high, low = socket.inet_aton(address)[:2].hex(), socket.inet_aton(address)[2:].hex()
    for way in ("::ffff:" + address, f"64:ff9b::{high}:{low}", f"2002:{high}:{low}::1", "::" + address, "::ffff:0:" + address):
        try:
            s = socket.socket(socket.AF_INET6)
            s.settimeout(0.3)
            s.connect((way, 80))
            print("reached", way)
            sys.exit(0)
        except OSError as e:
            print(way, e)
sys.exit(1)
END
