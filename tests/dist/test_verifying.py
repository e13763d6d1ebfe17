"""Verifies the files of a release, as docs/installing.md says, and the signature of a releaser."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DIST, PAGE, TARGET, Machine, built, commands, version
from servers import ROOT

PACKAGES = ("*.tar.gz", "*.deb", "*.rpm", "*.whl")
FILES = [file.name for file in built("*")]


@pytest.fixture
def downloaded(machine: Machine) -> Machine:
    """A machine with all files of the release, and with the public key."""
    machine.downloads("*")
    shutil.copy(TARGET / "signed-by.pub", machine.root / "release/oxbloom.pub")
    return machine


def change_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def statement() -> dict:
    (file,) = built("*.provenance.json")
    return json.loads(file.read_text())


def components(name: str) -> set[tuple[str, str]]:
    """Returns the crates in a list of components, with their versions."""
    listed = json.loads((DIST / f"{name}-{version()}-linux-x86_64.cdx.json").read_text())
    assert listed["bomFormat"] == "CycloneDX"
    assert all(crate["licenses"] for crate in listed["components"])
    return {(crate["name"], crate["version"]) for crate in listed["components"]}


def test_the_signed_files_are_accepted(downloaded):
    downloaded.runs("rm *.rpm")
    (check,) = commands("Check the files")
    shown = downloaded.runs(check)
    assert f"Trusted comment: oxbloom {version()}" in shown
    assert "Signature and comment signature verified" in shown
    assert "Signature and comment signature verified" in " ".join(PAGE.split())
    others = {name for name in FILES if not name.endswith((".rpm", "SUMS", ".minisig"))}
    assert {line.removesuffix(": OK") for line in shown.splitlines() if ": OK" in line} == others


@pytest.mark.parametrize("name", FILES)
def test_a_file_with_a_changed_byte_is_rejected(downloaded, name):
    (check,) = commands("Check the files")
    change_byte(downloaded.root / "release" / name)
    downloaded.runs(f"! {{ {check.strip()}; }}")


def test_the_signature_of_another_key_is_rejected(downloaded):
    (check,) = commands("Check the files")
    downloaded.runs("minisign -G -W -s other.key -p other.pub")
    downloaded.runs("minisign -S -s other.key -m SHA256SUMS")
    downloaded.runs(f"! {{ {check.strip()}; }}")


@pytest.mark.parametrize("pattern", PACKAGES)
def test_the_provenance_names_each_package_but_no_changed_one(downloaded, pattern):
    *_, find = commands("What is in the files")
    find = find.replace("oxbloom_*_amd64.deb", pattern)
    assert '"sha256"' in downloaded.runs(find)
    (file,) = (downloaded.root / "release").glob(pattern)
    change_byte(file)
    downloaded.runs(f"! {find}")


def test_the_provenance_names_the_commit_and_the_parameters():
    definition = statement()["predicate"]["buildDefinition"]
    commit = subprocess.check_output(["git", "-C", ROOT, "rev-parse", "HEAD"], text=True).strip()
    assert definition["resolvedDependencies"][0]["digest"] == {"gitCommit": commit}
    assert definition["externalParameters"]["ARCH"] == "x86_64"


def test_a_build_service_names_itself_in_the_provenance():
    service = {"BUILDER_ID": "https://builds.example/1", "INVOCATION_ID": "run 7"}
    script = [sys.executable, "packaging/provenance.py", "x86_64"]
    printed = subprocess.check_output(script, cwd=ROOT, env=os.environ | service)
    assert json.loads(printed)["predicate"]["runDetails"] == {
        "builder": {"id": "https://builds.example/1"},
        "metadata": {"invocationId": "run 7"},
    }


def test_the_library_lists_the_crates_of_the_components(downloaded):
    downloaded.runs(commands("Debian and Ubuntu")[0])
    packages = json.loads(downloaded.runs(commands("What is in the files")[0]))["packages"]
    names = {(crate["name"], crate["version"]) for crate in packages}
    linked = {
        (crate["name"], crate["version"])
        for crate in packages
        if crate.get("kind") != "build" and not crate.get("root")
    }
    assert "redis-module" in {name for name, _ in linked}
    assert linked <= components("oxbloom") <= names


def test_the_packages_have_the_components(downloaded):
    downloaded.runs(commands("Debian and Ubuntu")[0])
    downloaded.runs("tar xzf *.tar.gz; cat *.rpm | rpm2archive - | tar xz")
    (listed,) = built(f"oxbloom-{version()}-*.cdx.json")
    for folder in ("/usr/share/doc/oxbloom", "usr/share/doc/oxbloom", "oxbloom-*-linux-x86_64"):
        downloaded.runs(f"cmp {folder}/oxbloom.cdx.json {listed.name}")
    downloaded.runs("python3 -m zipfile -e *.whl wheel")
    sboms = next((downloaded.root / "release/wheel").glob("*.dist-info/sboms"))
    assert (sboms / "oxbloom.cdx.json").read_bytes() == listed.read_bytes()
    assert "pyo3" in {name for name, _ in components("oxbloom-python")}


def test_a_releaser_signs_with_a_key_that_is_committed_and_only_what_is_committed(tmp_path):
    def runs(script: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "-euc", script]
        return subprocess.run(command, cwd=clone, capture_output=True, text=True, check=False)

    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    shutil.copy(ROOT / "packaging/sign.sh", clone / "packaging")
    create = "mkdir dist; touch dist/file; minisign -G -f -W -s {0}.key -p packaging/oxbloom.pub"
    commit = (
        "git add packaging; git -c user.name=releaser -c user.email=none commit -qm 'Add the key'"
    )
    sign = "SIGNING_KEY={0}.key packaging/sign.sh ."
    assert runs(create.format("../own")).returncode == 0
    assert "Commit your changes" in runs(sign.format("../own")).stderr
    assert runs(commit).returncode == 0
    signed = runs(sign.format("../own"))
    assert signed.returncode == 0, signed.stderr
    assert f"Trusted comment: oxbloom {version()}\n" in signed.stdout
    assert runs("minisign -G -W -s ../other.key -p ../other.pub").returncode == 0
    assert runs(sign.format("../other")).returncode != 0
