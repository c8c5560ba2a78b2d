# class: files
# promise: overlayfs's own attributes are not set
# refused: EPERM
# control: host
python3 -c '
import os
os.setxattr("/tmp", "trusted.overlay.opaque", b"y")
'
