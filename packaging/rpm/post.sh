#!/bin/sh
# The argument is the number of versions that are then installed: 1, or more at an upgrade.
if [ "$1" = 1 ]; then
  echo "Add these two lines to your redis.conf or valkey.conf, and restart the server:"
  echo
  echo "    include /etc/oxbloom/oxbloom.conf"
  echo "    loadmodule /usr/lib/oxbloom/liboxbloom.so"
  echo
else
  echo "Servers that are running use the old version of oxbloom until you restart them."
fi
