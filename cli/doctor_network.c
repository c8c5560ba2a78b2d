/* The network of sandboxes: the mode that the keeper could set up, and what prevents the configured one. */
#include <stdio.h>
#include <string.h>

#include "cli/doctor.h"

struct status {
    char mode[16], wanted[16], ipv4[8], ipv6[8], error[240];
};

/* Reads the status that the keeper has written (sandbox/keeper/box_network.c). */
static bool read_status(const char *run_dir, struct status *s)
{
    char path[128], line[300];
    FILE *f;

    snprintf(path, sizeof(path), "%s/network", run_dir);
    f = fopen(path, "re");
    *s = (struct status){ 0 };
    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        sscanf(line, "mode %15s", s->mode);
        sscanf(line, "wanted %15s", s->wanted);
        sscanf(line, "ipv4 %7s", s->ipv4);
        sscanf(line, "ipv6 %7s", s->ipv6);
        sscanf(line, "error %239[^\n]", s->error);
    }
    if (f)
        fclose(f);
    return s->mode[0] != '\0';
}

static bool global_ipv6_address(void)
{
    FILE *f = fopen("/proc/net/ipv6_route", "re");
    char line[256], dest[40], bits[8], dev[32];
    bool found = false;

    while (f && !found && fgets(line, sizeof(line), f))
        found = sscanf(line, "%39s %7s %*s %*s %*s %*s %*s %*s %*s %31s", dest, bits, dev) == 3 &&
                strcmp(bits, "00") == 0 && strcmp(dev, "lo") != 0;
    if (f)
        fclose(f);
    return found;
}

static void look_network(const struct patient *p, struct diagnosis *d)
{
    struct status s;

    if (!read_status(p->config.run_dir, &s)) {
        found(d, FOUND_WARNING, "not known: coved is not running");
        fix(d, "start coved");
    } else if (strcmp(s.wanted, s.mode) != 0) {
        found(d, FOUND_WARNING, "sandboxes have %s, not %s: %.120s", s.mode, s.wanted, s.error);
        fix(d,
            "coved needs CAP_NET_ADMIN and the kernel modules nf_tables, nft_masq, nft_fib_inet, "
            "nft_reject_inet and veth (modprobe them); or set network = none");
    } else if (strcmp(s.mode, "none") == 0) {
        found(d, FOUND_OK, "none: sandboxes have loopback only");
    } else if (strcmp(s.ipv4, "yes") != 0 && strcmp(s.ipv6, "yes") != 0) {
        found(d, FOUND_WARNING, "%s, but this machine has no default route", s.mode);
        fix(d, "add a default route, or name the interface in network_uplink");
    } else if (strcmp(s.ipv6, "yes") != 0 && global_ipv6_address()) {
        found(d, FOUND_WARNING, "%s by IPv4; this kernel forwards IPv6 for all interfaces or none",
              s.mode);
        fix(d, "sysctl -w net.ipv6.conf.all.forwarding=1 if you want it (with accept_ra=2 on the "
               "uplink where its address comes by router advertisement), then restart coved");
    } else {
        found(d, FOUND_OK, "%s, by %s", s.mode,
              strcmp(s.ipv6, "yes") != 0   ? "IPv4"
              : strcmp(s.ipv4, "yes") != 0 ? "IPv6"
                                           : "IPv4 and IPv6");
    }
}

const struct doctor_check network_checks[] = { { "network", look_network }, { NULL } };
