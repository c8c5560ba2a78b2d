# class: network
# promise: names on the list that point inwards lead nowhere
# refused: EAI_NODATA EAI_NONAME
# world: internet
# control: no rules
# shellcheck shell=bash
exec python3 - <<'END'
import os, socket, sys
for name in os.environ["REBINDING_NAMES"].split():
    try:
        print("answered", name, socket.getaddrinfo(name, 80))
        sys.exit(0)
    except OSError as e:
        print(name, e)
sys.exit(1)
END
