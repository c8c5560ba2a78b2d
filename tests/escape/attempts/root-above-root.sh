# class: mounts
# promise: nothing of the host's root is left above or below the sandbox's own
# refused: nothing
# control: host
for way in /.. /../../../.. /proc/1/root/.. /proc/self/root/../..; do
    cat "$way$SECRET" 2>/dev/null && exit 0
done
(umount / || umount -l /) 2>/dev/null && cat "$SECRET" 2>/dev/null && exit 0
exit 1
