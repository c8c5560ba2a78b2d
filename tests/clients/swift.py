"""OpenStack Swift with its S3 middleware: Debian's packages, one node, four processes on loopback, started in seconds.

Swift checks signatures, knows conditional writes, lists and ends unfinished uploads, and finds a bucket in the path or in the host's name
(NAME.localhost). Conditional writes are checked by one storage node without a lock: two at the same moment may both succeed.
"""
import os
import re
import socket
import subprocess
import time

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


def free_ports(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


def s3cmd(of, *args):
    config, at = f"{of.top}/s3cfg", f"127.0.0.1:{of.port}"
    with open(config, "w") as f:
        f.write(f"[default]\naccess_key = {of.key}\nsecret_key = {of.secret}\nhost_base = {at}\nhost_bucket = {at}\nuse_https = False\n")
    return subprocess.run(["s3cmd", "-c", config, *args], check=True, capture_output=True, text=True).stdout


def list_objects(of):
    return re.findall(r"s3://saved/(\S+)", of.s3cmd("ls", "-r", "s3://saved"))


def list_uploads(of):
    return re.findall(r"s3://saved/\S+\t(\S+)", of.s3cmd("multipart", "s3://saved"))


class Swift:
    key, secret = KEY, SECRET

    def __init__(self, top):
        self.top, self.processes = str(top), []
        os.makedirs(f"{self.top}/disk")
        self.port, *ports = free_ports(1 + len(PARTS))
        try:
            self.begin(ports)
        except BaseException:
            self.close()
            raise

    def begin(self, ports):
        self.python("-c", RINGS, self.top, *(str(x) for pair in zip(PARTS, ports) for x in pair))
        for part, port in zip(PARTS, ports):
            self.start(part, STORAGE.format(port=port, part=part, top=self.top))
        self.start("proxy", PROXY.format(port=self.port, top=self.top, secret=SECRET))
        until = time.monotonic() + 60
        while not all(answers(port) for port in (self.port, *ports)):
            assert time.monotonic() < until and all(p.poll() is None for p in self.processes), self.log()
            time.sleep(0.05)
        self.s3cmd("mb", "s3://saved")

    def python(self, *args):
        subprocess.run(["/usr/bin/python3", *args], check=True)

    def start(self, part, config):
        path = f"{self.top}/{part}-server.conf"
        with open(path, "w") as f:
            f.write(config)
        with open(f"{self.top}/log", "a") as log:
            self.processes.append(subprocess.Popen([f"/usr/bin/swift-{part}-server", path, "-v"], stdout=log, stderr=log))

    def log(self):
        with open(f"{self.top}/log") as f:
            return f.read()[-4000:]

    s3cmd = s3cmd
    objects, uploads = property(list_objects), property(list_uploads)

    def close(self):
        for p in self.processes:
            p.kill()
            p.wait()
