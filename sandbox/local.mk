# Each room is a library of its own, so that a unit test links one room and what lies below it.
include sandbox/client/local.mk
include sandbox/net/local.mk
include sandbox/box/local.mk
include sandbox/keeper/local.mk
include sandbox/init/local.mk
include sandbox/sudo/local.mk
EXTRA_DIST += sandbox/README.md
