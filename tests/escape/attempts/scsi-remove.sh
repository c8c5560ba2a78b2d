# class: proc
# promise: no disk is taken away through /proc/scsi
# refused: ENOENT
# needs: /proc/scsi/scsi
echo 'scsi remove-single-device 9 9 9 9' > /proc/scsi/scsi
