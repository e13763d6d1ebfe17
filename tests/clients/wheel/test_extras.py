"""The package works without the packages that only its extras need. Where they are missing, it says what to install."""

import subprocess
import sys

import oxbloom
import pytest

# A module that is None cannot be imported, as if it were not installed.
WITHOUT = "import sys; sys.modules[{package!r}] = None\n"

CORE = """
from oxbloom import *
assert not any(sys.modules.get(package) for package in ("redis", "scrapy"))
seen = BloomFilter(100)
seen.add("item")
assert "item" in seen and module_path().is_file()
"""


def run(code: str) -> str:
    """Runs code in a new process. Returns the last line that it writes to standard error."""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize("package", ["redis", "scrapy"])
def test_filters_in_the_process_need_neither_redis_py_nor_scrapy(package):
    assert run(WITHOUT.format(package=package) + CORE) == ""


@pytest.mark.parametrize(
    ("package", "code", "extra"),
    [
        ("redis", "import oxbloom.scrapy", "scrapy"),
        ("scrapy", "import oxbloom.scrapy", "scrapy"),
        ("scrapy_redis", "from oxbloom.scrapy import RFPDupeFilter", "scrapy"),
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_installs_it(package, code, extra):
    error = f'ImportError: this needs the package {package}: pip install "oxbloom[{extra}]"'
    assert run(WITHOUT.format(package=package) + code) == error


def test_a_broken_package_is_not_reported_as_missing():
    error = run(WITHOUT.format(package="redis.exceptions") + "import oxbloom.scrapy")
    assert error.startswith("ModuleNotFoundError: import of redis.exceptions halted")


@pytest.mark.parametrize("package", ["redis", "valkey", "scrapy"])
def test_filters_on_servers_need_only_the_library_of_their_client(package):
    assert run(WITHOUT.format(package=package) + "from oxbloom import ShardedFilter") == ""


def test_shells_complete_the_names_of_filters_on_servers_without_importing_a_client():
    names = set(dir(oxbloom))
    assert {"AsyncRemoteFilter", "BloomFilter", "RemoteFilter", "ShardedFilter"} <= names
    assert all(hasattr(oxbloom, name) for name in names)
    assert (
        run("import oxbloom, sys; dir(oxbloom); assert 'oxbloom._sharded' not in sys.modules") == ""
    )


def test_other_names_are_not_there():
    error = run("import oxbloom; oxbloom.Filter")
    assert error.startswith("AttributeError: module 'oxbloom' has no attribute 'Filter'")
