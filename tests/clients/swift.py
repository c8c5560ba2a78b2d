"""OpenStack Swift with its S3 middleware: Debian's packages, one node, four processes on loopback, started in seconds.

Swift checks signatures, knows conditional writes, lists and ends unfinished uploads, and finds a bucket in the path or in the host's name
(NAME.localhost). Conditional writes are checked by one storage node without a lock: two at the same moment may both succeed.
"""
import os
import subprocess

from s3_server import S3Server, free_ports

PARTS = ("account", "container", "object")
KEY, SECRET = "test:tester", "s3cr3t+Swift/Key=forTests"

RINGS = """
import sys
from swift.common.ring import RingBuilder
top = sys.argv[1]
for part, port in zip(sys.argv[2::2], sys.argv[3::2]):
    ring = RingBuilder(4, 1, 1)
    ring.add_dev({"region": 1, "zone": 1, "ip": "127.0.0.1", "port": int(port), "device": "disk", "weight": 1, "meta": "",
                  "replication_ip": "127.0.0.1", "replication_port": int(port)})
    ring.rebalance()
    ring.get_ring().save(f"{top}/{part}.ring.gz")
"""

STORAGE = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = root
swift_dir = {top}
devices = {top}
mount_check = false
workers = 0
log_address = {top}/no-syslog
[pipeline:main]
pipeline = {part}-server
[app:{part}-server]
use = egg:swift#{part}
"""

PROXY = """[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = root
swift_dir = {top}
workers = 0
log_address = {top}/no-syslog
[pipeline:main]
pipeline = catch_errors cache listing_formats s3api tempauth slo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
# tempauth insists on a cache. Nothing listens there, and Swift goes on without.
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
storage_domain = localhost
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = {secret} .admin
[filter:slo]
use = egg:swift#slo
"""


class Swift(S3Server):
    def __init__(self, top):
        super().__init__(top, KEY, SECRET)

    def begin(self):
        os.makedirs(f"{self.top}/disk")
        self.port, *ports = free_ports(1 + len(PARTS))
        subprocess.run(["/usr/bin/python3", "-c", RINGS, self.top, *(str(x) for pair in zip(PARTS, ports) for x in pair)], check=True)
        for part, port in zip(PARTS, ports):
            self.start_part(part, STORAGE.format(port=port, part=part, top=self.top))
        self.start_part("proxy", PROXY.format(port=self.port, top=self.top, secret=SECRET))
        self.wait_for_ports(self.port, *ports, seconds=60)

    def start_part(self, part, config):
        path = f"{self.top}/{part}-server.conf"
        with open(path, "w") as f:
            f.write(config)
        self.start(f"/usr/bin/swift-{part}-server", path, "-v")
