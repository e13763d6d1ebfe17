# A function for the pages of docs/, which read this file into their shell: `. examples/wait_until.sh`.
# shellcheck shell=sh

wait_until() { # wait_until COMMAND waits until it succeeds: ten minutes at most, and one if a server cannot be reached
    now=$(date +%s) tries=0
    end=$((now + 600)) lost=$((now + 60))
    until why=$(eval "$1" 2>&1 > /dev/null); do
        now=$(date +%s) tries=$((tries + 1))
        case $why in *'Could not connect'*) ;; *) lost=$((now + 60)) ;; esac
        [ $tries != 50 ] || echo "still waiting for: $1${why:+: $why}" >&2
        if [ "$now" -ge "$end" ] || [ "$now" -ge "$lost" ]; then
            echo "gave up waiting for: $1${why:+: $why} (the end of the server's log may say why)" >&2
            return 1
        fi
        sleep 0.1
    done
}
