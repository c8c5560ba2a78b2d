# class: files
# promise: /proc/*/root leads nowhere else
# refused: EACCES, ENOENT
# control: host
for p in /proc/1 /proc/[0-9]* /proc/self; do cat "$p/root$SECRET" "$p/cwd/../../..$SECRET" && exit 0; done; exit 1
