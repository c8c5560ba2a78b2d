# Arrows between folders go down only, and a struct's name means one thing: the scripts have the tables.
TESTS += tests/layers.sh tests/names.sh tests/exports.sh
EXTRA_DIST += tests/layers.sh tests/names.sh tests/exports.sh
