# class: proc
# promise: there is no cgroup tree to write to
# refused: ENOENT
echo $$ > /sys/fs/cgroup/cgroup.procs || echo $$ > /sys/fs/cgroup/unified/cgroup.procs
