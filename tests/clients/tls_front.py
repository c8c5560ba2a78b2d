"""nginx with a certificate of a CA of its own, in front of an S3 server: for https endpoints with store_ca."""
import os
import subprocess

from s3_server import answers, free_ports

CONFIG = """daemon off;
worker_processes 1;
error_log {top}/error.log;
pid {top}/pid;
events {{ }}
http {{
    access_log {top}/access.log;
    client_body_temp_path {top}/body;
    proxy_temp_path {top}/proxy;
    fastcgi_temp_path {top}/fastcgi;
    uwsgi_temp_path {top}/uwsgi;
    scgi_temp_path {top}/scgi;
    log_format hosts '$host $ssl_protocol $request';
    access_log {top}/hosts.log hosts;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {top}/server.pem;
        ssl_certificate_key {top}/server.key;
        client_max_body_size 0;
        location / {{
            proxy_pass http://127.0.0.1:{inner};
            proxy_set_header Host $http_host;
            proxy_http_version 1.1;
            proxy_request_buffering off;
            proxy_buffering off;
        }}
    }}
}}
"""


def openssl(*args):
    subprocess.run(["openssl", *args], check=True, capture_output=True)


class TlsFront:
    def __init__(self, top, inner, names="DNS:localhost,DNS:saved.localhost"):
        self.top = str(top)
        os.makedirs(self.top)
        os.chmod(self.top, 0o755)  # nginx's worker is another user
        self.ca, (self.port,) = f"{self.top}/ca.pem", free_ports(1)
        new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        openssl(*new, "-subj", "/CN=CA of a test", "-keyout", f"{self.top}/ca.key", "-out", self.ca)
        openssl(*new, "-subj", "/CN=localhost", "-addext", f"subjectAltName={names}", "-CA", self.ca, "-CAkey", f"{self.top}/ca.key",
                "-keyout", f"{self.top}/server.key", "-out", f"{self.top}/server.pem")
        with open(f"{self.top}/nginx.conf", "w") as f:
            f.write(CONFIG.format(top=self.top, port=self.port, inner=inner))
        self.nginx = subprocess.Popen(["nginx", "-p", self.top, "-e", f"{self.top}/error.log", "-c", f"{self.top}/nginx.conf"])
        try:
            while not answers(self.port):
                assert self.nginx.poll() is None, open(f"{self.top}/error.log").read()
        except BaseException:
            self.close()
            raise

    def hosts(self):
        with open(f"{self.top}/hosts.log") as f:
            return f.read()

    def close(self):
        self.nginx.terminate()
        self.nginx.wait()
