# A function for the pages of docs/, which read this file into their shell: `. examples/wait_until.sh`.
# shellcheck shell=sh

wait_until() { # waits until a command succeeds, for ten minutes at most
    end=$(($(date +%s) + 600)) tries=0
    until eval "$1"; do
        tries=$((tries + 1))
        [ $tries != 50 ] || echo "still waiting for: $1 (the log of the server may say why)" >&2
        [ "$(date +%s)" -lt "$end" ] || { echo "gave up waiting for: $1" >&2; return 1; }
        sleep 0.1
    done
}
