#!/bin/sh
# The tool that makes the package cannot make it own folders. An upgrade finds none of them empty.
find /etc/oxbloom /usr/lib/oxbloom /usr/share/doc/oxbloom /usr/share/licenses/oxbloom \
  -depth -type d -empty -delete 2>/dev/null || :
