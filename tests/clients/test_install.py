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
        self.path, self.destination = folder / "bin", folder / "destination"
        self.library = folder / "target/release/liboxbloom.so"
        for each in (self.path, self.destination, self.library.parent):
            each.mkdir(parents=True)
        for tool in TOOLS:
            (self.path / tool).symlink_to(str(shutil.which(tool)))
        shutil.copy(OXBLOOM, self.library)

    def make(self, goal: str, *variables: str, succeeds: bool = True) -> str:
        target = f"CARGO_TARGET_DIR={self.library.parents[1]}"
        done = subprocess.run(
            [str(shutil.which("make")), "-C", str(ROOT), goal, target, *variables],
            env={"PATH": str(self.path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode == 0) is succeeds, done.stdout + done.stderr
        return done.stdout

    def files(self) -> set[str]:
        found = self.destination.rglob("*")
        return {str(path.relative_to(self.destination)) for path in found if path.is_file()}


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_it_installs_without_cargo_and_a_server_runs_what_it_installed(root, tmp_path):
    shown = root.make("install", f"DESTDIR={root.destination}")
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
def test_uninstalling_leaves_nothing_and_needs_no_library(root, layout):
    variables, modules, configuration = LAYOUTS[layout]
    variables = [*variables, f"DESTDIR={root.destination}"]
    root.make("install", *variables)
    assert root.files() == {f"{modules}/liboxbloom.so", f"{configuration}/oxbloom.conf"}
    root.library.unlink()
    for _ in range(2):
        root.make("uninstall", *variables)
        assert list(root.destination.iterdir()) == []


def test_uninstalling_keeps_files_of_others(root):
    variables = [f"PREFIX={root.destination}/own", "DESTDIR="]
    others = {"own/lib/redis/modules/redisjson.so", "own/etc/redis/redis.conf"}
    for other in others:
        (root.destination / other).parent.mkdir(parents=True)
        (root.destination / other).touch()
    root.make("install", *variables)
    assert len(root.files()) == 4
    root.make("uninstall", *variables)
    assert root.files() == others


def test_installing_before_building_fails_and_says_what_to_do(root):
    root.library.unlink()
    shown = root.make("install", f"DESTDIR={root.destination}", succeeds=False)
    assert f"{root.library} is missing: run `make build' first" in shown
    assert root.files() == set()
