"""Starts machines on which tests install the files of a release as root. Each is a new Debian with a server, and has no
network.

`make test-dist` builds the files, and a folder with the Debian.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pages
import pytest
from servers import ROOT

TARGET = Path(os.environ["TARGET"])
DIST = ROOT / "dist"
PAGE = (ROOT / "docs/installing.md").read_text()
# Debian's name of each processor for which `make dist` builds. The machines have the first one.
PROCESSORS = {"x86_64": "amd64", "aarch64": "arm64"}
# Servers for the second one, in qemu.
EMULATED = [TARGET / f"servers/redis-7.0-{library}-aarch64" for library in ("glibc", "musl")]
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    # Without a network, pip installs the files that a test has copied.
    "PIP_NO_INDEX": "1",
    "PIP_FIND_LINKS": "/release",
}

# Replacements for commands of the page. No systemd runs on these machines, and rpm does not know Debian's packages.
PROGRAMS = {
    "sudo": 'exec "$@"',
    "systemctl": 'exec service "${2%-server}-server" "$1"',
    "dnf": 'case $1 in install) shift; exec rpm -U --nodeps "$@";; remove) exec rpm -e oxbloom;; esac',
}


# Mounts a layer in memory over the Debian, so that each machine is new. The mounts disappear when the first process
# exits.
START = """
mount -t tmpfs none {folder}
mkdir {folder}/upper {folder}/work {folder}/root
mount -t overlay -o lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work none {folder}/root
mount -t proc proc {folder}/root/proc
ip link set lo up
cd {folder}/root
exec chroot . sh -c 'echo ready; exec sleep infinity'
"""


class Machine:
    """A new Debian with its own network, processes and mounts."""

    def __init__(self, folder: Path) -> None:
        start = START.format(folder=folder, lower=TARGET / "root-file-system")
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-ec", start],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        assert self.process.stdout.readline() == "ready\n"
        process = self.process.pid
        self.init = Path(f"/proc/{process}/task/{process}/children").read_text().strip()
        self.root = Path(f"/proc/{self.init}/root")
        (self.root / "release").mkdir()
        for name, code in PROGRAMS.items():
            program = self.root / "usr/local/bin" / name
            program.write_text(f"#!/bin/sh\n{code}\n")
            program.chmod(0o755)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()

    def runs(self, script: str) -> str:
        """Runs a script in the folder of the release's files. Returns what it prints."""
        command = ["nsenter", "--target", self.init, "--mount", "--net", "--pid", "--root"]
        done = subprocess.run(
            [*command, "--wd=/", "sh", "-euxc", f"cd /release\n{script}"],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def downloads(self, pattern: str) -> None:
        """Copies files of the release to the machine."""
        for file in built(pattern):
            shutil.copy(file, self.root / "release")

    def files(self) -> set[str]:
        """Returns all files and folders, except those of the tests and those that the system itself keeps changing."""
        bookkeeping = r"/(release|run|tmp|var/(log|cache|lib))(/|$)"
        found = self.runs("find / -xdev").splitlines()
        return {path for path in found if not re.match(bookkeeping, path)}

    def has_filters(self) -> bool:
        """Returns true if the server has the module: BF.ADD adds a new item."""
        self.runs("until redis-cli ping; do sleep 0.1; done")
        return self.runs("redis-cli DEL seen; redis-cli BF.ADD seen item").split()[-1] == "1"


def built(pattern: str) -> list[Path]:
    """Returns the files of the release for the machines that match a pattern. Fails if there are none."""
    found = [file for file in DIST.glob(pattern) if not re.search("aarch64|arm64", file.name)]
    assert found, pattern
    return sorted(found)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.stop()


def commands(heading: str) -> list[str]:
    """Returns the blocks of shell commands below a heading of docs/installing.md."""
    return pages.blocks(pages.section(PAGE, heading), "sh")


def version() -> str:
    """Returns the version of the project, from Cargo.toml."""
    found = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert found
    return found[1]
