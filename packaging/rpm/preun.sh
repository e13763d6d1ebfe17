#!/bin/sh
# The argument is the number of versions that stay installed: 0, or more at an upgrade.
if [ "$1" = 0 ]; then
  echo "Remove the lines of oxbloom from your redis.conf or valkey.conf: with them, the server does not start any more."
fi
