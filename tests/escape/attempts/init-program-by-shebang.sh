# class: files
# promise: a script whose interpreter is /proc/self/exe gets no writable program of the host
# refused: nothing
printf '#!/proc/self/exe\n' > /tmp/she; chmod +x /tmp/she
/tmp/she & sleep 0.2
for p in /proc/[0-9]*; do
    case $(readlink $p/exe) in *cove-init*) : >> $p/exe && exit 0 ;; esac
done
exit 1
