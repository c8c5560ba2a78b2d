# class: files
# promise: overlayfs follows no redirection that a sandbox wrote
# refused: ENOENT
mkdir -p /tmp/r && python3 -c '
import os
os.setxattr("/tmp/r", "user.overlay.redirect", os.path.dirname(os.environ["SECRET"]).encode())
' && cat /tmp/r/"$(basename "$SECRET")"
