# class: files
# promise: no number of .. leaves the root
# refused: ENOENT
# control: host
cat "/../../../../../../../..$SECRET" "/workspace/../../../..$SECRET"
