#!/bin/sh
# Removes the duplicates from 2.76 million real URLs, with a Bloom filter on a server and, for comparison, with an exact
# Redis set: examples/demo.sh FOLDER WHEELS
#
# FOLDER keeps what is downloaded (47 MB), and WHEELS has the Python package that `make wheel` builds. The server is a
# new one, with a socket in a temporary folder. It is stopped at the end.
#
# The filter has room for just the distinct URLs, so that it is full when its false positives are counted. A URL that it
# forgets would be a false negative, which it must not have.
set -eu
folder=$1 wheels=$2
rate=0.01

run=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null || :; wait; rm -rf "$run"' EXIT
trap 'exit 1' INT TERM HUP

mkdir -p "$folder"
[ -d "$folder/python" ] || python3 -m venv "$folder/python"
PATH="$folder/python/bin:$PATH"
pip install -q --force-reinstall --find-links "$wheels" 'oxbloom[redis]'

echo "Reading the URLs of all npm packages"
python3 examples/urls.py "$folder" > "$run/urls"
LC_ALL=C sort -u "$run/urls" > "$run/distinct"
sed 's:$:/absent:' "$run/distinct" | LC_ALL=C sort | LC_ALL=C comm -13 "$run/distinct" - > "$run/absent"
count() { wc -l < "$1"; }

url=unix://$run/socket
cli() { redis-cli -s "$run/socket" "$@"; }
redis-server --port 0 --unixsocket "$run/socket" --dir "$run" --save '' --loadmodule "$(oxbloom module-path)" \
  > "$run/log" &
server=$!
until cli ping >/dev/null 2>&1; do
  kill -0 $server 2>/dev/null || { cat "$run/log"; exit 1; }
  sleep 0.1
done

echo "Adding them to the filter"
cli BF.RESERVE urls $rate "$(count "$run/distinct")" >/dev/null
oxbloom add urls "$run/urls" --server "$url"

echo "Adding them to the set"
LC_ALL=C awk '{ printf "*3\r\n$4\r\nSADD\r\n$3\r\nset\r\n$%d\r\n%s\r\n", length($0), $0 }' "$run/urls" |
  cli --pipe >/dev/null

echo "Checking URLs that were added, and others"
# The exit status is 1 if no line is found.
missing=$(oxbloom check urls "$run/distinct" --server "$url" --invert-match --count) || true
found=$(oxbloom check urls "$run/absent" --server "$url" --count) || true

row() { printf '%-36s %12s %12s\n' "$@"; }
megabytes() { cli MEMORY USAGE "$1" SAMPLES 0 | awk '{ printf "%.1f MB", $1 / 1e6 }'; }
echo
row "" "Bloom filter" "Redis set"
row "URLs added" "$(count "$run/urls")" "$(count "$run/urls")"
row "  called new" "$(cli BF.CARD urls)" "$(cli SCARD set)"
row "false negatives" "$missing" 0
row "false positives of $(count "$run/absent")" "$found" 0
row "  their rate, of $rate at most" "$(awk "BEGIN { printf \"%.4f\", $found / $(count "$run/absent") }")" 0
row "memory" "$(megabytes urls)" "$(megabytes set)"
[ "$missing" = 0 ]
