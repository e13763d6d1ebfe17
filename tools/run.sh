#!/bin/sh
# Starts a server with the module on 127.0.0.1, and prints commands to try: tools/run.sh PORT FOLDER MODULE
port=$1 folder=$2 module=$3

if redis-cli -p "$port" ping >/dev/null 2>&1; then
  echo "Another server uses port $port: an earlier \`make run', or the service of Debian's redis-server package."
  echo "Stop it (sudo systemctl stop redis-server), or choose another port: make run PORT=6380"
  exit 1
fi

mkdir -p "$folder"
cp redis.conf.example "$folder/redis.conf"
(
  until redis-cli -p "$port" ping >/dev/null 2>&1; do sleep 0.1; done
  [ "$port" = 6379 ] || option=" -p $port"
  printf '\nReady. In another terminal, type\n\n    redis-cli%s\n' "${option:-}"
  # The session that README.md shows, with its replies.
  printf '    %s\n' 'DEL seen' 'BF.RESERVE seen 0.01 1000000' \
    'BF.ADD seen https://example.com/' 'BF.ADD seen https://example.com/' \
    'BF.MEXISTS seen https://example.com/ https://example.com/missing' 'DEL seen'
  printf '\n'
  printf 'Ctrl-C here stops the server. Its data are kept in %s for the next run.\n\n' "$folder"
) &
hint=$!
redis-server "$folder/redis.conf" --bind 127.0.0.1 --port "$port" --dir "$folder" --loadmodule "$module"
status=$?
kill "$hint" 2>/dev/null
exit "$status"
