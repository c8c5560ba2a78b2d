# class: network
# promise: no private address is reached, of either family
# refused: ECONNREFUSED
# world: internet
# shellcheck shell=bash
# weak: opens
exec python3 - <<'END'
import os, socket, sys
for address in os.environ["PRIVATE_ADDRESSES"].split():
    try:
        socket.create_connection((address, 80), 1)
        print("reached", address)
        sys.exit(0)
    except OSError as e:
        print(address, e)
sys.exit(1)
END
