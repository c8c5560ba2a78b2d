"""One client that sends more than anybody should: a flood is stopped at the door, whatever its requests carry."""
import secrets

import pytest

from cove import new_key
from test_front_nginx import edit_site

BURST, REQUESTS = 5, 40
JUNK = ["X-API-Key", "Authorization", "X-Relay-Secret", "X-Access-Token", "X-Forwarded-For", "X-Real-IP", "Cookie"]


def count_by_header(server):
    """The weakening: the limit counts by what clients write into their headers."""
    headers = "$http_authorization$http_x_api_key$http_x_relay_secret$http_x_access_token$http_x_forwarded_for$http_x_real_ip$http_cookie"
    edit_site(server, (r"limit_req_zone  \$cove_network", f"limit_req_zone  {headers}"), ("zone=cove_requests", "zone=by_header"))


@pytest.mark.weak(by=count_by_header)
@pytest.mark.parametrize("key", ["right", "wrong"])
def test_no_header_evades_the_limit(target, attempt, key):
    server = target()
    edit_site(server, (r"rate=\d+r/s", "rate=1r/m"), (r"burst=\d+", f"burst={BURST}"))
    for header in JUNK:
        replies = [server.post("/execute", {}, source=f"127.0.1.{JUNK.index(header) + 1}",
                               headers={"X-API-Key": server.key if key == "right" else new_key(), header: secrets.token_hex(20)})
                   for _ in range(REQUESTS)]
        through = [r.status for r in replies if r.status != 429]
        attempt(f"a new {header} with each request, with the {key} key",
                len(through) > 2 * BURST and f"{len(through)} of {REQUESTS} got past a limit of {BURST}")
