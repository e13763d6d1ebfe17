"""Runs `make install` and `make uninstall` as root does, without cargo and without a network.

The library under test is copied to where `make build` puts it, so that nothing is built.
"""

import re
import shutil
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from servers import OXBLOOM, ROOT, start

# All programs in the PATH. Neither cargo nor apt-get is among them.
TOOLS = ["sh", "install", "sed", "strip", "rm", "rmdir", "dirname", "printf"]
LAYOUTS = {
    "default": ([], "usr/local/lib/redis/modules", "usr/local/etc/redis"),
    "usr": (["PREFIX=/usr"], "usr/lib/redis/modules", "etc/redis"),
    "own": (["PREFIX=/opt/oxbloom"], "opt/oxbloom/lib/redis/modules", "opt/oxbloom/etc/redis"),
}


class Root:
    """The root user, with a checkout, a built library, and a PATH with few programs."""

    def __init__(self, folder: Path) -> None:
        self.target, self.path, self.destination = (
            folder / name for name in ("target", "bin", "destination")
        )
        self.path.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            assert found, tool
            (self.path / tool).symlink_to(found)
        self.destination.mkdir()

    def build(self) -> None:
        library = self.target / "release/liboxbloom.so"
        library.parent.mkdir(parents=True)
        shutil.copy(OXBLOOM, library)

    def make(self, goal: str, *variables: str) -> subprocess.CompletedProcess[str]:
        make = shutil.which("make")
        assert make
        return subprocess.run(
            [make, "-C", str(ROOT), goal, f"CARGO_TARGET_DIR={self.target}", *variables],
            env={"PATH": str(self.path)},
            capture_output=True,
            text=True,
            check=False,
        )

    def installs(self, *variables: str) -> str:
        return self.succeeds("install", *variables)

    def succeeds(self, goal: str, *variables: str) -> str:
        done = self.make(goal, *variables)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def files(self) -> set[str]:
        found = self.destination.rglob("*")
        return {str(path.relative_to(self.destination)) for path in found if path.is_file()}


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_it_installs_without_cargo_and_a_server_runs_what_it_installed(root, tmp_path):
    root.build()
    shown = root.installs(f"DESTDIR={root.destination}")
    lines = re.findall(r"^    (include|loadmodule) (/.*)$", shown, re.MULTILINE)
    assert [name for name, _ in lines] == ["include", "loadmodule"]
    configuration = tmp_path / "redis.conf"
    # With DESTDIR, the files are in another folder than the lines say.
    staged = "".join(f"{name} {root.destination}{path}\n" for name, path in lines)
    configuration.write_text(staged + "bf.error-rate 0.003\n")
    with ExitStack() as stack:
        server = start(stack, None, configuration=configuration)
        assert server.client.execute_command("BF.ADD", "seen", "item") == 1
        assert server.client.execute_command("BF.INFO", "seen", "ERROR") == [b"0.003"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_uninstalling_leaves_nothing(root, layout):
    root.build()
    variables, modules, configuration = LAYOUTS[layout]
    variables = [*variables, f"DESTDIR={root.destination}"]
    root.installs(*variables)
    assert root.files() == {f"{modules}/liboxbloom.so", f"{configuration}/oxbloom.conf"}
    root.succeeds("uninstall", *variables)
    assert list(root.destination.iterdir()) == []
    root.succeeds("uninstall", *variables)


def test_uninstalling_keeps_files_of_others(root):
    root.build()
    variables = [f"PREFIX={root.destination}/own", "DESTDIR="]
    others = {"own/lib/redis/modules/redisjson.so", "own/etc/redis/redis.conf"}
    for other in others:
        (root.destination / other).parent.mkdir(parents=True)
        (root.destination / other).touch()
    root.installs(*variables)
    assert len(root.files()) == 4
    root.succeeds("uninstall", *variables)
    assert root.files() == others


def test_uninstalling_needs_no_library(root):
    root.build()
    variable = f"DESTDIR={root.destination}"
    root.installs(variable)
    shutil.rmtree(root.target)
    root.succeeds("uninstall", variable)
    assert root.files() == set()


def test_installing_before_building_fails_and_says_what_to_do(root):
    rejected = root.make("install", f"DESTDIR={root.destination}")
    assert rejected.returncode != 0
    assert (
        f"{root.target}/release/liboxbloom.so is missing: run `make build' first" in rejected.stdout
    )
    assert root.files() == set()
