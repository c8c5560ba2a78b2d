# Arrows between folders go down only: the script has the table.
TESTS += tests/layers.sh
EXTRA_DIST += tests/layers.sh
