#!/bin/sh
# Builds the files of a release: packaging/build.sh TARGET ARCH
#
# TARGET is cargo's target folder, with the tools of `tools/setup.sh dist` in TARGET/dist-tools. ARCH is x86_64, or
# aarch64 after `rustup target add aarch64-unknown-linux-gnu` (untested). The same commit and tools give the same files.
#
# PyPI shows the README in the wheel, but cannot follow its links to other files. If REPOSITORY_URL has the address of
# the repository's files, these links lead there. Otherwise, they become plain text.
set -eu
cd "$(dirname "$0")/.."
target=$1 arch=$2
export LC_ALL=C
triple=$arch-unknown-linux-gnu
# The oldest glibc that Rust supports, from 2012.
glibc=2.17

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH CARGO_TARGET_DIR="$target" PATH="$target/dist-tools/bin:$PATH"

# The libraries must not contain paths of this machine.
remapped="--remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo --remap-path-prefix=$PWD=/oxbloom"

# This builds in a subfolder: in the root of the project, cargo-zigbuild would pass relative paths of zig's headers to
# bindgen, which runs elsewhere and would not find them.
(
  cd packaging
  CARGO_PROFILE_RELEASE_STRIP=symbols RUSTFLAGS=$remapped cargo zigbuild --manifest-path ../Cargo.toml \
    --package oxbloom --lib --release --locked --target "$triple.$glibc"
)

# The contents of the packages, and the library in the wheel. cargo-deb and cargo-generate-rpm look in $built for files
# that Cargo.toml lists under target/release. Packages record the times of files, so all staged files get the time of
# the commit.
built=$target/$triple/release
staged=$built/dist
rm -rf dist "$staged" "$target/dist"
mkdir -p dist "$staged/doc" "$target/dist"
cp "$built/liboxbloom.so" LICENSE "$staged"
install -m 755 "$built/liboxbloom.so" python/oxbloom/liboxbloom.so
sed -e '/^# The server/,$d' -e 's,/usr/local/lib/redis/modules,/usr/lib/oxbloom,' redis.conf.example \
  > "$staged/oxbloom.conf"
gzip -9n > "$staged/changelog.Debian.gz" <<END
oxbloom ($version-1) unstable; urgency=medium

  * See CHANGELOG.md.

 -- The oxbloom authors <authors@oxbloom.invalid>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
END
python3 packaging/licences.py "$triple" oxbloom > "$staged/THIRD-PARTY-LICENSES"
# The pages, and the files that they link to, except for source code.
git ls-files -z README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md redis.conf.example docs filter/README.md \
  python/README.md benches/instructions/recorded.txt | xargs -0 cp --parents -t "$staged/doc"
find "$staged" -exec touch -d "@$SOURCE_DATE_EPOCH" {} +

archive=oxbloom-$version-linux-$arch
folder=$target/dist/$archive
cp -r "$staged/doc" "$folder"
cp "$staged/liboxbloom.so" LICENSE "$staged/THIRD-PARTY-LICENSES" "$folder"
cp --parents packaging/Dockerfile packaging/compose.yaml "$folder"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX \
  -C "$target/dist" -c "$archive" | gzip -9n > "dist/$archive.tar.gz"

cargo deb --no-build --no-strip --package oxbloom --target "$triple" --output dist
cargo generate-rpm --target "$triple" --target-dir "$target" --source-date "$SOURCE_DATE_EPOCH" \
  --payload-compress gzip --output dist

python3 packaging/licences.py "$triple" oxbloom oxbloom-python > python/oxbloom/THIRD-PARTY-LICENSES
(
  cd packaging
  RUSTFLAGS=$remapped maturin build -q --release --locked --manifest-path ../python/Cargo.toml --zig \
    --target "$triple" --compatibility "manylinux_$(echo $glibc | tr . _)" --out "$target/dist"
)
if [ -n "${REPOSITORY_URL:-}" ]; then
  adapted="s,\]\(\.\./,](${REPOSITORY_URL%/}/,g"
else
  adapted='s,\[([^][]*)\]\(\.\./[^)]*\),\1,g'
fi
wheel unpack --dest "$target/dist" "$target/dist"/oxbloom-*.whl
sed -z -E -i "$adapted" "$target/dist/oxbloom-$version/oxbloom-$version.dist-info/METADATA"
# The list of components must not contain folders of this machine, either.
sed -i "s,$PWD,/oxbloom,g" "$target/dist/oxbloom-$version/oxbloom-$version.dist-info/sboms"/*.json
wheel pack --dest-dir dist "$target/dist/oxbloom-$version"

cd dist
sha256sum -- * > SHA256SUMS
cat SHA256SUMS
