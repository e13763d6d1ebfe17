#!/bin/sh
# cargo-generate-rpm cannot make a package own folders, so this deletes them. At an upgrade, none of them is empty.
find /etc/oxbloom /usr/lib/oxbloom /usr/share/doc/oxbloom /usr/share/licenses/oxbloom \
  -depth -type d -empty -delete 2>/dev/null || :
