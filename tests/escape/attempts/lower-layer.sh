# class: files
# promise: what all sandboxes share is not written through (the runner looks)
# refused: EACCES, nothing
# control: host
# trace: /usr/bin/$TOKEN_NAME
echo owned > "/usr/bin/$TOKEN_NAME"; exit 1
