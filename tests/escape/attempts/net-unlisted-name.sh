# class: network
# promise: names that are not on the list are not answered
# refused: EAI_AGAIN
# world: internet
# shellcheck shell=bash
# control: egress
exec python3 - <<'END'
import os, socket, sys
for name in os.environ["UNLISTED_NAMES"].split():
    try:
        print("answered", name, socket.getaddrinfo(name, 80))
        sys.exit(0)
    except OSError as e:
        print(name, e)
sys.exit(1)
END
