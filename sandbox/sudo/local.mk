# cove-sudo: static, because it runs in any template; set-uid only in the copy that templates get.
pkglibexec_PROGRAMS += cove-sudo
cove_sudo_SOURCES = sandbox/sudo/sudo.c sandbox/init/users.c base/err.c base/mem.c base/text.c base/budget.c
cove_sudo_CFLAGS = $(COVE_CFLAGS) -Os -fno-pie -ffunction-sections -fdata-sections
cove_sudo_LDFLAGS = -static -no-pie -Wl,--gc-sections -Wl,-z,noexecstack
EXTRA_DIST += sandbox/sudo/README.md
