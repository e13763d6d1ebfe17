#!/bin/sh
# The number of versions that are installed then: 0 is removed.
if [ "$1" = 0 ]; then
  echo "Remove the lines of oxbloom from your redis.conf or valkey.conf: with them, the server does not start any more."
fi
