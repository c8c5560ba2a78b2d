# class: network
# promise: no address is reached that is not on the list
# refused: ECONNREFUSED
# world: internet
# shellcheck shell=bash
# weak: opens
exec python3 - <<'END'
import os, socket, sys
for address in os.environ["UNLISTED_ADDRESSES"].split():
    try:
        socket.create_connection((address, 80), 1)
        print("reached", address)
        sys.exit(0)
    except OSError as e:
        print(address, e)
sys.exit(1)
END
