# class: files
# promise: what all sandboxes share is not written through (the runner looks)
# refused: EACCES, nothing
echo owned > "/usr/bin/$TOKEN_NAME"; exit 1
