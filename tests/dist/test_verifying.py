"""Verifies what is in the files of a release, as docs/installing.md says."""

import json

import pytest
from conftest import DIST, Machine, commands, version


@pytest.fixture
def downloaded(machine: Machine) -> Machine:
    """A machine with all files of the release."""
    machine.downloads("*")
    return machine


def components(name: str) -> set[tuple[str, str]]:
    """Returns the crates in a list of components, with their versions."""
    listed = json.loads((DIST / f"{name}-{version()}-linux-x86_64.cdx.json").read_text())
    assert listed["bomFormat"] == "CycloneDX"
    assert all(crate["licenses"] for crate in listed["components"])
    return {(crate["name"], crate["version"]) for crate in listed["components"]}


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
