# class: files
# promise: overlayfs's own attributes are not set
python3 -c '
import os
os.setxattr("/tmp", "trusted.overlay.opaque", b"y")
'
