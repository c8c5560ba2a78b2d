"""An operator as a program: signs requests as the console's page does (docs/api/console.yaml)."""
import subprocess

API = "/console/api"
CURVE = bytes.fromhex("a00a06082a8648ce3d030107a144034200")


def der_of(secret):
    """The signing key as OpenSSL reads it: SEC 1, with the public point."""
    numbers = bytes.fromhex(secret.rsplit("_", 1)[1])
    return bytes.fromhex("30770201010420") + numbers[:32] + CURVE + b"\x04" + numbers[32:]


def halves(der):
    """Both numbers of a signature, each in 32 bytes."""
    numbers, at = b"", 2
    for _ in range(2):
        length = der[at + 1]
        numbers += der[at + 2:at + 2 + length].lstrip(b"\0").rjust(32, b"\0")
        at += 2 + length
    return numbers


class Operator:
    def __init__(self, server, secret, folder):
        self.server, self.secret = server, secret
        self.name = secret.removeprefix("coveop_").rsplit("_", 1)[0]
        self.file = folder / f"{self.name}.der"
        self.file.write_bytes(der_of(secret))

    def sign(self, nonce, verb, *arguments):
        text = "\n".join(["cove operator", nonce, verb, *arguments]).encode()
        done = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.file, "-keyform", "DER"], input=text, capture_output=True, check=True)
        return halves(done.stdout).hex()

    def nonce(self):
        return self.server.request("GET", f"{API}/operator/nonce").json["nonce"]

    def signed(self, verb, *arguments):
        nonce = self.nonce()
        return {"operator": self.name, "nonce": nonce, "verb": verb, "arguments": list(arguments), "signature": self.sign(nonce, verb, *arguments)}

    def send(self, request, **kw):
        return self.server.request("POST", f"{API}/operator/run", request, **kw)

    def run(self, verb, *arguments, **kw):
        return self.send(self.signed(verb, *arguments), **kw)
