# class: proc
# promise: no binary format is registered
# refused: ENOENT
# needs: /proc/sys/fs/binfmt_misc/register
echo ':cove:M::XXXX::/bin/true:' > /proc/sys/fs/binfmt_misc/register
