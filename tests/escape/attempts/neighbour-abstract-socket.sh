# class: ipc
# promise: abstract sockets of another sandbox are not reached
# refused: ECONNREFUSED
# control: neighbour
exec python3 - <<'END'
import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect("\0neighbour-" + os.environ["TOKEN_NAME"])
END
