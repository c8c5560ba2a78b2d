# class: proc
# promise: no binary format is registered
echo ':cove:M::XXXX::/bin/true:' > /proc/sys/fs/binfmt_misc/register
