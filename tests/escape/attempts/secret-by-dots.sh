# class: files
# promise: no number of .. leaves the root
cat "/../../../../../../../..$SECRET" "/workspace/../../../..$SECRET"
