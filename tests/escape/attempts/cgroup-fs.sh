# class: proc
# promise: there is no cgroup tree to write to
# refused: ENOENT
# control: host
for f in /sys/fs/cgroup/cgroup.procs /sys/fs/cgroup/unified/cgroup.procs /sys/fs/cgroup/pids/cgroup.procs; do
    echo $$ > $f && exit 0
done
exit 1
