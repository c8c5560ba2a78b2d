# class: files
# promise: neither the keeper's nor a sandbox's socket is there
ls "$RUN_DIR"
