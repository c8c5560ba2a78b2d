# class: files
# promise: what mountinfo names is not there
# refused: nothing
# control: host
for f in $(grep -o "/tmp/[^ ,:]*" /proc/self/mountinfo); do ls "$f" 2>/dev/null && exit 0; done; exit 1
