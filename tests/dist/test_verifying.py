"""Verifies what is in the files of a release, as docs/installing.md says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import DIST, Machine, commands, version
from servers import ROOT

PACKAGES = ("*.tar.gz", "*.deb", "*.rpm", "*.whl")


@pytest.fixture
def downloaded(machine: Machine) -> Machine:
    """A machine with all files of the release."""
    machine.downloads("*")
    return machine


def statement() -> dict:
    (file,) = DIST.glob("*.provenance.json")
    return json.loads(file.read_text())


def change_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def components(name: str) -> set[tuple[str, str]]:
    """Returns the crates in a list of components, with their versions."""
    listed = json.loads((DIST / f"{name}-{version()}-linux-x86_64.cdx.json").read_text())
    assert listed["bomFormat"] == "CycloneDX"
    assert all(crate["licenses"] for crate in listed["components"])
    return {(crate["name"], crate["version"]) for crate in listed["components"]}


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
    assert ("redis-module", "2.0.8") in linked
    assert linked <= components("oxbloom") <= names


def test_the_packages_have_the_components(downloaded):
    downloaded.runs(commands("Debian and Ubuntu")[0])
    downloaded.runs("tar xzf *.tar.gz; cat *.rpm | rpm2archive - | tar xz")
    (listed,) = DIST.glob(f"oxbloom-{version()}-*.cdx.json")
    for folder in ("/usr/share/doc/oxbloom", "usr/share/doc/oxbloom", "oxbloom-*-linux-x86_64"):
        downloaded.runs(f"cmp {folder}/oxbloom.cdx.json {listed.name}")
    downloaded.runs("python3 -m zipfile -e *.whl wheel")
    sboms = next((downloaded.root / "release/wheel").glob("*.dist-info/sboms"))
    assert (sboms / "oxbloom.cdx.json").read_bytes() == listed.read_bytes()
    assert ("pyo3", "0.30.1") in components("oxbloom-python")
