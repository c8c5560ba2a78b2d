# class: files
# promise: neither the keeper's nor a sandbox's socket is there
# refused: ENOENT
# control: host
ls "$RUN_DIR"
