#!/bin/sh
# Builds the files of a release for a processor, x86_64 or aarch64, into dist/: packaging/build.sh TARGET ARCH
#
# environment.sh says what TARGET has, beside the tools of `tools/setup.sh dist-tools` in TARGET/dist-tools. The same
# commit and tools give the same files. packaging/sign.sh signs them.
#
# Both libraries contain the list of their crates, which cargo-auditable adds.
#
# PyPI shows the README in the wheel, but cannot follow its links to other files. If REPOSITORY_URL has the address of
# the repository's files, these links lead there. Otherwise, they become plain text.
set -eu
cd "$(dirname "$0")/.."
target=$1 arch=$2
export LC_ALL=C
case $arch in x86_64) debian_arch=amd64 ;; aarch64) debian_arch=arm64 ;; esac
. packaging/environment.sh

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH

work=$target/dist-$arch files=$target/dist-$arch/files library=$target/dist-$arch/liboxbloom.so
archive=oxbloom-$version-linux-$arch
deb=$work/deb rpm=$work/rpm
rm -rf "$work"
mkdir -p dist "$files"
packaging/library.sh "$target" "$arch" "$library" cargo auditable zigbuild
python3 packaging/licences.py "$triple" oxbloom > "$work/THIRD-PARTY-LICENSES"

# cargo-cyclonedx writes into the sources, so it gets a copy of them. Its list must not contain folders of this machine.
mkdir "$work/sources" "$work/doc"
git ls-files -z | xargs -0 cp --parents -t "$work/sources"
cargo cyclonedx -qq --format json --spec-version 1.5 --target "$triple" --no-build-deps --override-filename components \
  --manifest-path "$work/sources/Cargo.toml"
sed "s,$work/sources,/oxbloom,g" "$work/sources/components.json" > "$work/doc/oxbloom.cdx.json"

# The archive has the pages, and the files that they link to, except for source code.
git ls-files -z README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md redis.conf.example docs filter/README.md \
  python/README.md examples/keys_of_type.sh examples/wait_until.sh 'benches/instructions/*.txt' \
  'benches/comparison/*.md' | xargs -0 cp --parents -t "$work/doc"
cp -r "$work/doc" "$work/$archive"
cp "$library" LICENSE "$work/THIRD-PARTY-LICENSES" "$work/$archive"
python3 -m ziglang cc -target "$arch-linux-musl" -static -s -O2 -Wall -Werror -o "$work/$archive/copy" packaging/copy.c
cp --parents packaging/Dockerfile packaging/compose.yaml "$work/$archive"

# The folders of the packages belong to neither Redis nor Valkey, since only Redis may enter /etc/redis. Debian's
# service of Redis only runs code in /usr/lib.
for package in "$deb" "$rpm"; do
  mkdir -p "$package/etc/oxbloom" "$package/usr/lib/oxbloom" "$package/usr/share/doc"
  sed -e '/^# The server/,$d' -e 's,/usr/local/lib/redis/modules,/usr/lib/oxbloom,' redis.conf.example \
    > "$package/etc/oxbloom/oxbloom.conf"
  cp "$library" "$package/usr/lib/oxbloom"
  cp -r "$work/doc" "$package/usr/share/doc/oxbloom"
done
install -D -m 644 LICENSE "$work/THIRD-PARTY-LICENSES" -t "$rpm/usr/share/licenses/oxbloom"
cp LICENSE "$deb/usr/share/doc/oxbloom/copyright"
cp "$work/THIRD-PARTY-LICENSES" "$deb/usr/share/doc/oxbloom"
gzip -9n > "$deb/usr/share/doc/oxbloom/changelog.Debian.gz" <<END
oxbloom ($version-1) unstable; urgency=medium

  * See CHANGELOG.md.

 -- The oxbloom authors <authors@oxbloom.invalid>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
END
size=$(find "$deb" -type f -exec cat {} + | wc -c)
mkdir "$deb/DEBIAN"
cp packaging/postinst packaging/prerm "$deb/DEBIAN"
echo /etc/oxbloom/oxbloom.conf > "$deb/DEBIAN/conffiles"
cat packaging/control - > "$deb/DEBIAN/control" <<END
Version: $version-1
Architecture: $debian_arch
Depends: libc6 (>= $glibc)
Installed-Size: $((size / 1024))
END

chmod -R u=rwX,go=rX "$work"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$work" -c "$archive" |
  gzip -9n > "$files/$archive.tar.gz"
# Older versions of dpkg cannot unpack zstd, the default on Ubuntu.
dpkg-deb --root-owner-group -Zxz --build "$deb" "$files"
rpmbuild -bb --quiet --target "$arch-linux" --define "_topdir $work/rpmbuild" --define "version $version" \
  --define "staged $rpm" --define "scripts $PWD/packaging" packaging/oxbloom.spec
cp "$work/rpmbuild/RPMS/$arch"/*.rpm "$files"

# maturin runs the first cargo in PATH. This one adds the list of crates to the library.
mkdir "$work/bin"
printf '#!/bin/sh\nexec %s auditable "$@"\n' "$(command -v cargo)" > "$work/bin/cargo"
chmod +x "$work/bin/cargo"
install -m 755 "$library" python/oxbloom
python3 packaging/licences.py "$triple" oxbloom oxbloom-python > python/oxbloom/THIRD-PARTY-LICENSES
(
  cd packaging
  PATH=$work/bin:$PATH maturin build --release --locked --manifest-path ../python/Cargo.toml \
    --zig --target "$triple" --compatibility "manylinux_$(echo $glibc | tr . _)" --out "$work"
)
if [ -n "${REPOSITORY_URL:-}" ]; then
  adapted="s,\]\(\.\./,](${REPOSITORY_URL%/}/,g"
else
  adapted='s,\[([^][]*)\]\(\.\./[^)]*\),\1,g'
fi
wheel unpack --dest "$work" "$work"/oxbloom-*.whl
sed -z -E -i "$adapted" "$work/oxbloom-$version/oxbloom-$version.dist-info/METADATA"
# Its other library then also loads with musl, for the reason in library.sh.
patchelf --remove-needed ld-linux-x86-64.so.2 "$work/oxbloom-$version/oxbloom/_oxbloom.abi3.so"
echo "Tag: cp311-abi3-musllinux_1_2_$arch" >> "$work/oxbloom-$version/oxbloom-$version.dist-info/WHEEL"
# maturin lists the components of the other library.
sboms=$work/oxbloom-$version/oxbloom-$version.dist-info/sboms
sed -i "s,$PWD,/oxbloom,g" "$sboms"/*.json
cp "$sboms"/*.json "$files/oxbloom-python-$version-linux-$arch.cdx.json"
cp "$work/doc/oxbloom.cdx.json" "$sboms"
cp "$work/doc/oxbloom.cdx.json" "$files/$archive.cdx.json"
wheel pack --dest-dir "$files" "$work/oxbloom-$version"

python3 packaging/provenance.py "$arch" "$files"/* > "$work/provenance.json"
cp "$work/provenance.json" "$files/$archive.provenance.json"
cp "$files"/* dist
