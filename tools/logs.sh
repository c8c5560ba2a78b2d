# shellcheck shell=bash disable=SC2034,SC2154 # names are shared between the parts of quickstart
#
# quickstart logs: what the server and nginx have written, for people.

readonly LOG_FILES=(coved.log nginx-error.log)
readonly LOG_LINES=200

# One line for each line of JSON: time, level or status, what happened, then the rest as key=value. Other lines stay as they are.
print_readable() {
    local colour=no
    [ ! -t 1 ] || colour=yes
    python3 -u -c '
import json, re, sys
colour, words = sys.argv[1] == "yes", sys.argv[2:]
def paint(code, text):
    return f"\033[{code}m{text}\033[0m" if colour else text
def safe(text):
    return re.sub(r"[\x00-\x1f\x7f-\x9f]", "?", str(text))
for line in sys.stdin:
    line = line.rstrip("\n")
    if words and not any(word in line for word in words):
        continue
    try:
        entry = json.loads(line)
        if not isinstance(entry, dict):
            raise ValueError
    except ValueError:
        print(safe(line))
        continue
    time = entry.pop("time", "")
    level = str(entry.pop("level", entry.get("status", "")))
    what = entry.pop("event", "")
    bad = level in ("error", "warn") or level.startswith("5")
    rest = " ".join(f"{name}={value}" for name, value in entry.items() if value not in ("", "-", None))
    print(safe(time), paint("31" if bad else "32", f"{safe(level):5}"), paint("1", safe(what)), safe(rest))
' "$colour" ${rest[@]+"${rest[@]}"}
}

# Lines of JSON have their time in front, so sorting by it puts the files into one order; nginx writes its errors in another form.
last_lines() {
    local file
    for file in "$@"; do tail -qn "$LOG_LINES" "$file"; done | sort -s -t '"' -k 4,4 | tail -n "$LOG_LINES"
}

cmd_logs() {
    local file files=()
    for file in "${LOG_FILES[@]}"; do
        [ ! -e "$log/$file" ] || files+=("$log/$file")
    done
    [ "${#files[@]}" -gt 0 ] || die "there are no logs in $log: './quickstart up' starts the server that writes them."
    if [ "$follow" = yes ]; then
        tail -q -n 20 -F "${files[@]}" 2>/dev/null | print_readable
    else
        last_lines "${files[@]}" | print_readable
    fi
}
