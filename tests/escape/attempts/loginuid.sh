# class: proc
# promise: the audit id of another is not taken
# refused: EACCES, EPERM
echo 0 > /proc/1/loginuid
