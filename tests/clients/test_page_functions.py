"""The functions in examples/ that pages read into their shell do what their comments say, also when a server fails."""

import subprocess

import pasting
import pytest
from servers import ROOT, WITHIN


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a shell that has the functions."""
    files = [f". {ROOT / file}" for file in pasting.FUNCTIONS]
    return subprocess.run(
        ["sh", "-eu", "-c", "\n".join([*files, code])],
        check=False,
        capture_output=True,
        text=True,
        timeout=WITHIN,
    )


def test_keys_are_listed_until_the_cursor_is_0() -> None:
    done = run(r"""
        scan() { [ "$2 $4" = "0 type" ] && printf '17\none\ntwo words\n' || printf '0\nthree\n\n'; }
        keys_of_type scan type
    """)
    assert done.stdout.splitlines() == ["one", "two words", "three"]


def test_a_type_that_the_server_does_not_know_has_no_keys() -> None:
    done = run("""scan() { echo "ERR unknown type name 'type'"; }; keys_of_type scan type""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("fails", ["false", "echo NOAUTH Authentication required."])
def test_a_scan_that_fails_ends(fails: str) -> None:
    done = run(f"scan() {{ {fails}; }}; keys_of_type scan type")
    assert done.returncode == 1
    assert done.stdout == ""
