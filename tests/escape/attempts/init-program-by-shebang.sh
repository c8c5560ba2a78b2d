# class: files
# promise: a script whose interpreter is /proc/self/exe gets no writable program of the host
# refused: nothing
# control: host pids
printf '#!/proc/self/exe\n' > /tmp/she; chmod +x /tmp/she
/tmp/she &
for p in /proc/[0-9]*; do
    case $(readlink $p/exe) in *cove-init*) ;; *) continue ;; esac
    said=$( { : >> $p/exe; } 2>&1) && exit 0
    case $said in *busy*) exit 0 ;; esac # only a moment in which it does not run is missing
done
exit 1
