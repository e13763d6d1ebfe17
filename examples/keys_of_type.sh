# A function for the pages of docs/, which read this file into their shell: `. examples/keys_of_type.sh`.
# (redis-cli can scan for a type itself, but not that of Redis 7.0.)
# shellcheck shell=sh

keys_of_type() { # keys_of_type CLI TYPE lists keys, a thousand at a time, so that the server can serve others
    cursor=0
    while
        reply=$("$1" SCAN "$cursor" TYPE "$2" COUNT 1000)
        case $reply in "ERR unknown type name"*) return ;; esac # of Redis 8, if no module has this type
        cursor=$(printf '%s\n' "$reply" | head -n 1)
        case $cursor in *[!0-9]* | '') printf '%s\n' "$reply" >&2; return 1 ;; esac
        printf '%s\n' "$reply" | sed '1d; /^$/d'
        [ "$cursor" != 0 ]
    do :; done
}
