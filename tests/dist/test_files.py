"""Checks the files that `make dist` built, without installing them."""

import re
import subprocess
import sys
import tomllib
import zipfile

import pytest
from conftest import DIST, EMULATED, PROCESSORS, TARGET, built, version
from licences import ACCEPTED, chosen, text
from servers import ROOT, running
from test_links import links

LIBRARIES = {processor: TARGET / f"dist-{processor}/liboxbloom.so" for processor in PROCESSORS}
EACH_LIBRARY = pytest.mark.parametrize("library", LIBRARIES.values(), ids=LIBRARIES)
GLIBC = (2, 17)


def printed(*command: object) -> str:
    return subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def test_the_files_have_the_version_of_cargo_toml():
    expected = {"SHA256SUMS", "SHA256SUMS.minisig"}
    for processor, debian in PROCESSORS.items():
        platforms = ("manylinux2014", "manylinux_2_17", "musllinux_1_2")
        tags = ".".join(f"{platform}_{processor}" for platform in platforms)
        expected |= {
            f"oxbloom-{version()}-linux-{processor}.tar.gz",
            f"oxbloom_{version()}-1_{debian}.deb",
            f"oxbloom-{version()}-1.{processor}.rpm",
            f"oxbloom-{version()}-cp311-abi3-{tags}.whl",
            f"oxbloom-{version()}-linux-{processor}.cdx.json",
            f"oxbloom-python-{version()}-linux-{processor}.cdx.json",
            f"oxbloom-{version()}-linux-{processor}.provenance.json",
        }
    assert {file.name for file in DIST.iterdir()} == expected


@EACH_LIBRARY
def test_the_library_needs_no_glibc_that_is_newer_than_the_pages_say(library):
    symbols = printed("readelf", "--dyn-syms", "--wide", library)
    needed = {
        tuple(map(int, found.split("."))) for found in re.findall(r"@GLIBC_([\d.]+)", symbols)
    }
    assert needed
    assert max(needed) <= GLIBC
    for page in ("docs/installing.md", "docs/security.md"):
        assert f"glibc {'.'.join(map(str, GLIBC))}" in (ROOT / page).read_text()


@EACH_LIBRARY
def test_the_library_needs_no_other_libraries_than_those_that_musl_also_has(library):
    needed = re.findall(r"NEEDED.*\[(.*)\]", printed("readelf", "--dynamic", library))
    assert set(needed) <= {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"}


def test_the_library_fits_the_largest_memory_pages():
    segments = printed("readelf", "--segments", "--wide", LIBRARIES["aarch64"])
    alignments = [int(line.split()[-1], 16) for line in segments.splitlines() if "  LOAD " in line]
    assert alignments
    assert all(alignment % (64 << 10) == 0 for alignment in alignments)


@pytest.mark.parametrize("server", EMULATED)
def test_a_server_for_aarch64_loads_the_library(server):
    with running(str(LIBRARIES["aarch64"]), program=str(server)) as emulated:
        assert emulated.client.bf().add("seen", "item") == 1
        assert emulated.client.info("server")["os"].endswith("aarch64")


@pytest.mark.parametrize(
    ("python", "processor"),
    [("aarch64", "aarch64"), ("musl-aarch64", "aarch64"), ("musl-x86_64", "x86_64")],
)
def test_python_for_musl_and_for_aarch64_loads_the_wheel(tmp_path, python, processor):
    (wheel,) = DIST.glob(f"*{processor}.whl")
    printed(sys.executable, "-m", "zipfile", "-e", wheel, tmp_path)
    code = "import oxbloom, platform; f = oxbloom.BloomFilter(1000, 0.01); f.add('item');"
    code += "print('item' in f, oxbloom.__file__, platform.machine())"
    shown = printed("env", f"PYTHONPATH={tmp_path}", TARGET / f"python-{python}", "-c", code)
    assert shown.split() == ["True", str(tmp_path / "oxbloom/__init__.py"), processor]


@EACH_LIBRARY
def test_the_library_names_no_folder_of_this_machine(library):
    content = library.read_bytes()
    for folder in (str(ROOT).encode(), b"/.cargo/", b"/rustlib/src/"):
        assert folder not in content


@pytest.mark.parametrize("processor", PROCESSORS)
def test_all_files_have_this_library(tmp_path, processor):
    archive, wheel, deb, rpm = (
        next(DIST.glob(pattern))
        for pattern in (
            f"*{processor}.tar.gz",
            f"*{processor}.whl",
            f"*{PROCESSORS[processor]}.deb",
            f"*{processor}.rpm",
        )
    )
    (tmp_path / "tar").mkdir()
    printed("tar", "xzf", archive, "-C", tmp_path / "tar")
    printed("dpkg-deb", "-x", deb, tmp_path / "deb")
    (tmp_path / "rpm").mkdir()
    printed("sh", "-c", f"rpm2archive - < {rpm} | tar -xz -C {tmp_path}/rpm")
    printed(sys.executable, "-m", "zipfile", "-e", wheel, tmp_path / "whl")
    found = [file.read_bytes() for file in tmp_path.rglob("liboxbloom.so")]
    assert found == [LIBRARIES[processor].read_bytes()] * 4
    for name in ("redis.conf.example", "installing.md"):
        assert len(list(tmp_path.rglob(name))) == 3, name
    licences = [file.read_text() for file in tmp_path.rglob("THIRD-PARTY-LICENSES")]
    assert len(licences) == 4
    assert sum("pyo3" in text for text in licences) == 1


@pytest.mark.parametrize(
    ("offered", "used"),
    [
        ("MIT/Apache-2.0", ["MIT"]),
        ("GPL-3.0 OR Apache-2.0 OR MIT", ["MIT"]),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", ["MIT", "Unicode-3.0"]),
    ],
)
def test_of_the_licences_of_a_crate_accepted_ones_are_used(offered, used):
    assert chosen({"name": "crate", "license": offered}) == used


@pytest.mark.parametrize("offered", ["GPL-3.0", "MIT AND GPL-3.0", None])
def test_a_crate_without_an_accepted_licence_fails_the_build(offered):
    with pytest.raises(ValueError, match="no licence of crate is accepted"):
        chosen({"name": "crate", "license": offered})


def test_the_workspace_and_the_release_accept_the_same_licences():
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    assert set(rules["licenses"]["allow"]) == set(ACCEPTED)


def test_a_crate_without_the_text_of_its_licence_fails_the_build(tmp_path):
    (tmp_path / "LICENSE").write_text("MIT")
    crate = {"name": "crate", "repository": None, "manifest_path": tmp_path / "Cargo.toml"}
    with pytest.raises(ValueError, match="crate comes without the text"):
        text("MIT", crate, [crate])


def test_the_links_of_the_pages_lead_somewhere_in_the_archive(tmp_path):
    (archive,) = built("*.tar.gz")
    printed("tar", "xzf", archive, "-C", tmp_path)
    (folder,) = tmp_path.iterdir()
    # CONTRIBUTING.md is for a checkout.
    found = [page for page in folder.rglob("*.md") if page.name != "CONTRIBUTING.md"]
    assert len(found) > 30
    for page in found:
        targets = [link.partition("#")[0] for link in links(page)]
        # The archive has no sources.
        targets = [target for target in targets if not target.endswith(".rs")]
        assert [target for target in targets if not (page.parent / target).exists()] == [], page


def test_pypi_can_follow_the_links_in_the_wheel():
    (wheel,) = built("*.whl")
    with zipfile.ZipFile(wheel) as files:
        readme = files.read(f"oxbloom-{version()}.dist-info/METADATA").decode()
    assert "The command `oxbloom` builds, checks and copies filters" in " ".join(readme.split())
    assert "](../" not in readme


@pytest.mark.timeout(3600)
def test_building_elsewhere_gives_the_same_files(tmp_path):
    clone = tmp_path / "another/clone"
    printed("git", "clone", "-q", ROOT, clone)
    # This includes changes that are not committed.
    printed("sh", "-c", f"cd {ROOT} && git ls-files -z | xargs -0 cp --parents -t {clone}")
    printed("git", "-C", clone, "add", "--all")
    (clone / "target").mkdir()
    for tools in ("dist-tools", "zig"):
        (clone / "target" / tools).symlink_to(TARGET / tools)
    for processor in PROCESSORS:
        printed(clone / "packaging/build.sh", clone / "target", processor)
    printed("sh", "-c", f"cd {clone}/dist && sha256sum --check --strict {DIST}/SHA256SUMS")
