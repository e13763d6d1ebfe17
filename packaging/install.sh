#!/bin/sh
# Installs the built module and a configuration fragment, or removes them, without a package:
#
#   packaging/install.sh install|uninstall MODULE MODULE_FOLDER CONFIGURATION_FOLDER [DESTDIR]
#
# It builds nothing, since root may have neither cargo nor a network.
set -eu
command=$1 module=$2 module_folder=$3 configuration_folder=$4 destdir=${5:-}
library=$module_folder/liboxbloom.so
fragment=$configuration_folder/oxbloom.conf

case $command in
  install)
    [ -f "$module" ] || { echo "$module is missing: run \`make build' first, as yourself."; exit 1; }
    install -D -s -m 755 "$module" "$destdir$library"
    install -d "$destdir$configuration_folder"
    sed '/^# The server/,$d' redis.conf.example > "$destdir$fragment"
    printf 'Add these two lines to your redis.conf:\n\n    include %s\n    loadmodule %s\n\n' "$fragment" "$library" ;;
  uninstall)
    rm -f "$destdir$library" "$destdir$fragment"
    # Also removes folders that are then empty, except those that every system has.
    for folder in "$module_folder" "$configuration_folder"; do
      while [ "$folder" != / ]; do
        case "${destdir%/}$folder" in
          /usr | /usr/lib | /usr/local | /usr/local/lib | /usr/local/etc | /etc | /opt) break ;;
        esac
        rmdir "$destdir$folder" 2>/dev/null || break
        folder=$(dirname "$folder")
      done
    done ;;
esac
