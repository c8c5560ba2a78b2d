"""What the S3 servers of the tests share: processes on loopback, and s3cmd, another's tool, which looks into their bucket `saved`."""
import re
import socket
import subprocess
import time


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


class S3Server:
    """Below `top`; its port is self.port. begin() starts it."""

    def __init__(self, top, key, secret):
        self.top, self.key, self.secret, self.processes = str(top), key, secret, []
        try:
            self.begin()
            self.s3cmd("mb", "s3://saved")
        except BaseException:
            self.close()
            raise

    def start(self, *command):
        with open(f"{self.top}/out", "a") as out:
            self.processes.append(subprocess.Popen(command, stdout=out, stderr=out, cwd=self.top))

    def wait_for_ports(self, *ports, seconds):
        until = time.monotonic() + seconds
        while not all(answers(port) for port in ports):
            assert time.monotonic() < until and all(p.poll() is None for p in self.processes), self.log()
            time.sleep(0.05)

    def log(self):
        with open(f"{self.top}/out") as f:
            return f.read()[-4000:]

    def s3cmd(self, *args):
        config, at = f"{self.top}/s3cfg", f"127.0.0.1:{self.port}"
        with open(config, "w") as f:
            f.write(f"[default]\naccess_key = {self.key}\nsecret_key = {self.secret}\nhost_base = {at}\nhost_bucket = {at}\nuse_https = False\n")
        return subprocess.run(["s3cmd", "-c", config, *args], check=True, capture_output=True, text=True).stdout

    @property
    def objects(self):
        return re.findall(r"s3://saved/(\S+)", self.s3cmd("ls", "-r", "s3://saved"))

    @property
    def uploads(self):
        return re.findall(r"s3://saved/\S+\t(\S+)", self.s3cmd("multipart", "s3://saved"))

    def close(self):
        for p in self.processes:
            p.kill()
            p.wait()
