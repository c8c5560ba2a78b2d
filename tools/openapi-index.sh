#!/bin/sh
# The page at /openapi/: links to the descriptions of the APIs. Usage: openapi-index.sh SOURCE_DIR FILE...
set -eu
top=$1
shift

escaped() { sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -e 's/>/\&gt;/g'; }

row() { # FILE TITLE
    printf '<li><a href="%s">%s</a>: %s</li>\n' "${1##*/}" "${1##*/}" "$(printf '%s' "$2" | escaped)"
}

cat <<'HEAD'
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>cove: descriptions of the APIs</title>
<h1>Descriptions of the APIs</h1>
<p>OpenAPI 3.1 where the name ends in .yaml, prose where it ends in .md. This server serves all of them.</p>
<ul>
HEAD
for file in "$@"; do
    case $file in
    *.yaml) row "$file" "$(sed -n 's/^  title: *//p' "$top/$file" | head -n 1)" ;;
    *.md) row "$file" "$(sed -n 's/^# *//p' "$top/$file" | head -n 1)" ;;
    esac
done
echo '</ul>'
