#!/bin/bash
# Commands, files that stay, a refusal, and a web server with a link: all with curl.
set -euo pipefail
: "${COVE_URL:?: . .cove/env}" "${COVE_KEY:?: . .cove/env}"
project=example-curl

ask() { # ask PATH JSON
    curl -sS --fail-with-body "$COVE_URL$1" -H "X-API-Key: $COVE_KEY" -H "X-Project-Id: $project" -d "$2"
    echo
}
trap 'ask /cleanup "{\"projectId\":\"$project\"}" >/dev/null' EXIT

echo "== the first request makes the project's sandbox"
ask /execute "{\"projectId\":\"$project\",\"commands\":[\"echo hello > greeting\",\"uname -s\"]}"

echo "== the next one finds its files"
ask /execute "{\"projectId\":\"$project\",\"commands\":[\"cat greeting\"]}"

echo "== some commands are refused before they run (status 400), and the reply says by which rule"
ask /execute "{\"projectId\":\"$project\",\"commands\":[\"rm -rf /\"]}" 2>/dev/null || true

echo "== a web server in the sandbox, and a link to it for a browser"
ask /start_process '{"cmd":"python3 -m http.server 8000"}'
ask /port_link '{"port":8000}'
