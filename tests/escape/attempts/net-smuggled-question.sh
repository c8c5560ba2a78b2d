# class: network
# promise: no shape of a question gets an unlisted name past the list
# refused: nothing
# world: internet
# shellcheck shell=bash
# control: egress
exec python3 - <<'END'
import socket, struct, sys
def name(text): return b"".join(bytes([len(p)]) + p.encode() for p in text.split(".")) + b"\0"
listed, other = name("public.example"), name("other.example")
a = b"\0\1\0\1"
shapes = [
    (struct.pack("!HHHHHH", 7, 0x0100, 2, 0, 0, 0), listed + a + other + a),
    (struct.pack("!HHHHHH", 7, 0x0100, 1, 1, 0, 0), listed + a + other + a + b"\0\0\0\1\0\4\1\2\3\4"),
    (struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0), other + b"\0\x10\0\1"),
    (struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0), other + b"\0\xff\0\1"),
    (struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0), b"\5other\7example\xc0\x0c" + a),
    (struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0), b"\x0dother.example\0" + a),
    (struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0), b"\5other\7example\6public\7example\0" + a),
    (struct.pack("!HHHHHH", 7, 0x2100, 1, 0, 0, 0), other + a),
    (struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0), other + b"\0\1\0\3"),
]
for head, rest in shapes:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    try:
        s.sendto(head + rest, ("127.0.0.53", 53))
        reply = s.recv(512)
        if struct.unpack("!H", reply[6:8])[0] and b"other" in reply[12:]:
            print("answered", reply)
            sys.exit(0)
    except OSError as e:
        print(e)
sys.exit(1)
END
