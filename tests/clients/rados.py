"""Ceph's S3 gateway over a monitor and an object store in memory: Debian's packages, on loopback, without an administrator's hand.

The gateway checks signatures, honours conditional writes (one of two at the same moment gets 412), lists and ends unfinished uploads.
"""
import os
import subprocess
import uuid

from s3_server import S3Server, free_ports

KEY, SECRET = "RADOSTESTTEST", "s3cr3tRadosKeyForTests"

CONFIG = """[global]
fsid = {fsid}
mon host = v2:127.0.0.1:{mon}
keyring = {top}/keyring
ms bind ipv4 = true
ms bind msgr1 = false
run dir = {top}
admin socket = {top}/$type.$id.asok
log file = {top}/log
pid file =
mon data = {top}/mon
osd data = {top}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
public addr = 127.0.0.1
cluster addr = 127.0.0.1
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pgp num = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
mon max pg per osd = 1000
rgw frontends = beast endpoint=127.0.0.1:{port}
rgw data = {top}
rgw enable usage log = false
rgw enable ops log = false
rgw dns name = localhost
"""


class Rados(S3Server):
    def __init__(self, top):
        super().__init__(top, KEY, SECRET)

    def begin(self):
        os.makedirs(f"{self.top}/osd")
        self.port, mon = free_ports(2)
        self.conf, fsid, osd = f"{self.top}/ceph.conf", str(uuid.uuid4()), str(uuid.uuid4())
        with open(self.conf, "w") as f:
            f.write(CONFIG.format(top=self.top, port=self.port, mon=mon, fsid=fsid))
        new = ("ceph-authtool", f"{self.top}/keyring", "--gen-key", "--cap", "mon", "allow *")
        self.run(*new, "--create-keyring", "-n", "mon.")
        for name in ("client.admin", "client.rgw", "osd.0"):
            self.run(*new, "-n", name, "--cap", "osd", "allow *", "--cap", "mgr", "allow *")
        self.run("monmaptool", "--create", "--fsid", fsid, "--addv", "a", f"[v2:127.0.0.1:{mon}]", f"{self.top}/monmap")
        self.run("ceph-mon", "-c", self.conf, "--mkfs", "-i", "a", "--monmap", f"{self.top}/monmap", "--keyring", f"{self.top}/keyring")
        self.start_daemon("ceph-mon", "-i", "a")
        self.run("ceph", "-c", self.conf, "--connect-timeout", "60", "osd", "new", osd)
        self.run("ceph-osd", "-c", self.conf, "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.start_daemon("ceph-osd", "-i", "0")
        self.run("radosgw-admin", "-c", self.conf, "user", "create", "--uid", "test", "--display-name", "test", "--access-key", KEY, "--secret", SECRET)
        self.start_daemon("radosgw", "-n", "client.rgw")
        self.wait_for_ports(self.port, seconds=120)

    def run(self, *command):
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=180, cwd=self.top)

    def start_daemon(self, program, *args):
        self.start(program, "-c", self.conf, "-f", *args)
