#!/bin/sh
cat <<'END'
A server loads oxbloom if its redis.conf or valkey.conf has these two lines:

    include /etc/oxbloom/oxbloom.conf
    loadmodule /usr/lib/oxbloom/liboxbloom.so

Add them, and restart the server. After an upgrade, only restart it: until then, it uses the old version.
END
