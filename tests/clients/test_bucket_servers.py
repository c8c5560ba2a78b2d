"""The bucket of test_bucket.py is s3rver and a proxy that adds what s3rver lacks. Here nothing is added: Swift's S3 middleware in every run, Ceph's
gateway in long ones, both by path and, through TLS, by the bucket's name in the host's."""
import os
import re
import shutil

import pytest

from bucket import Proxied
from suites import LONG
from cove import wait_for
from rados import Rados
from swift import Swift
from test_bucket import FILL, comes_back, cove_store, in_bucket, is_empty, log_of, other_machine, race, saved_one, where
from test_saving import store
from tls_front import TlsFront

SERVERS = {"swift": (Swift, "swift-proxy-server"), "rados": (Rados, "radosgw")}


@pytest.fixture(scope="module", params=["swift", pytest.param("rados", marks=pytest.mark.skipif(not LONG, reason="Ceph's gateway: long runs"))])
def real(request, tmp_path_factory):
    make, program = SERVERS[request.param]
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed")
    made = make(tmp_path_factory.mktemp("s3") / request.param)
    yield made
    made.close()


@pytest.fixture
def bucket(real, tmp_path):
    """A proxy that can delay and refuse, and that adds nothing."""
    made = Proxied(tmp_path / "proxied", real.port, real.key, real.secret)
    Proxied.objects = property(lambda self: real.objects)
    yield made
    made.close()


@pytest.fixture
def front(real, tmp_path):
    made = TlsFront(tmp_path / "front", real.port)
    yield made
    made.close()


def by_name(front, bucket, **more):
    return bucket.settings(store_endpoint=f"https://localhost:{front.port}", store_path_style="no", **more)


def test_there_and_back_in_parts_and_nothing_stays_behind(real, bucket, make_server):
    server = make_server(**bucket.settings(store_part="5M"))
    bucket.fault("PUT .*partNumber=2", 1, status=403)
    stalled = bucket.fault("PUT .*/record", 1, stall=True)
    box, noise = saved_one(server, "p", f"{FILL}; head -c 12000000 /dev/urandom >/workspace/big")
    wait_for(lambda: stalled.met, 60, "the archive to be there and read back, at the second try")
    assert real.uploads == [], "the upload that failed was ended"
    assert [m for m, p in bucket.seen if m == "DELETE" and "uploadId=" in p], "and not by itself"
    bucket.mend()
    in_bucket(server, box)
    assert "whole" in cove_store(server, "verify", box).stdout and box in cove_store(server, "ls", "--bucket").stdout
    comes_back(server, "p", box, noise)
    is_empty(bucket, box)
    assert real.uploads == []


def test_an_upload_of_a_machine_that_died_is_listed_and_ended_by_the_next_try(real, bucket, make_server):
    server = make_server(**bucket.settings(store_part="5M"))
    stalled = bucket.fault("PUT .*partNumber=2", 1, stall=True)
    box, noise = saved_one(server, "p", f"{FILL}; head -c 12000000 /dev/urandom >/workspace/big")
    wait_for(lambda: stalled.met, 60, "the upload to be on its way")
    assert len(real.uploads) == 1
    os.kill(server.keeper_pid, 9)
    bucket.mend()
    server.up()
    in_bucket(server, box)
    assert real.uploads == []
    comes_back(server, "p", box, noise)
    is_empty(bucket, box)


def test_of_two_machines_at_the_same_moment_one_gets_it(real, bucket, make_server):
    one = make_server(**bucket.settings())
    other = other_machine(one, bucket, make_server)
    for _ in range(20 if LONG else 1):
        box, noise = saved_one(one, "p")
        in_bucket(one, box)
        race(one, other, bucket, "p", box, noise)
        bucket.mend()


def test_through_tls_with_the_bucket_in_the_hosts_name(real, bucket, front, make_server):
    server = make_server(**by_name(front, bucket, store_ca=front.ca, store_part="5M"))
    box, noise = saved_one(server, "p", f"{FILL}; head -c 12000000 /dev/urandom >/workspace/big")
    in_bucket(server, box)
    assert [k for k in real.objects if box in k and k.endswith("manifest.json")]
    assert where(server, box) == "bucket" and "whole" in cove_store(server, "verify", box).stdout
    comes_back(server, "p", box, noise)
    is_empty(bucket, box)
    seen = set(re.findall(r"^(\S+) (TLSv1\.[23]) ", front.hosts(), re.M))
    assert {host for host, _ in seen} == {"saved.localhost"}, seen


@pytest.mark.parametrize("why", ["a CA that nobody trusts", "another name", "a CA file that is none"])
def test_a_certificate_that_does_not_fit_gets_nothing(bucket, front, make_server, tmp_path, why):
    settings = by_name(front, bucket)
    other = None
    if why == "another name":
        other = TlsFront(tmp_path / "other", 1, names="DNS:elsewhere.example")
        settings = by_name(other, bucket, store_ca=other.ca)
    elif why == "a CA file that is none":
        (tmp_path / "ca").write_text("no certificate\n")
        settings["store_ca"] = tmp_path / "ca"
    server = make_server(**settings)
    try:
        box, noise = saved_one(server, "p")
        wait_for(lambda: re.search(r"not in the bucket yet.*(certificate|SSL)", log_of(server)), 40, "the log to tell why")
        assert where(server, box) == "leaving" and os.path.exists(f"{store(server)}/{box}/archive.tar.zst")
        comes_back(server, "p", box, noise)
        server.cleanup("p")
        assert front.hosts() == "" and (not other or other.hosts() == ""), "no request was made"
    finally:
        if other:
            other.close()


def test_a_wrong_secret_is_refused_by_this_server_too(real, bucket, make_server):
    bucket.write_credentials("another-Secret")
    server = make_server(**bucket.settings())
    box, noise = saved_one(server, "p")
    wait_for(lambda: "403 SignatureDoesNotMatch" in log_of(server), 40, "the log to tell")
    assert where(server, box) == "leaving" and not [k for k in real.objects if box in k]
    comes_back(server, "p", box, noise)
