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


@pytest.mark.parametrize(
    ("scan", "status"),
    [
        ("echo \"ERR unknown type name 'type'\"", 0),  # the server has no keys of this type
        ("false", 1),
        ("echo NOAUTH Authentication required.", 1),
    ],
)
def test_a_scan_that_fails_ends(scan: str, status: int) -> None:
    done = run(f"scan() {{ {scan}; }}; keys_of_type scan type")
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr == "" or status


# A clock that only moves while a wait sleeps, by a second each time.
CLOCK = "slept=0; date() { echo $slept; }; sleep() { slept=$((slept + 1)); }"
LOST = "echo Could not connect to Redis at 127.0.0.1:6379: Connection refused >&2; false"


def test_a_wait_is_quiet() -> None:
    done = run(f"{CLOCK}\nwait_until '[ $slept = 3 ] || {{ echo LOADING; {LOST}; }}'; echo $slept")
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


@pytest.mark.parametrize(
    ("condition", "seconds"),
    [
        ("false", 600),
        (LOST, 60),
        # A server that restarts again and again is not lost.
        (f"[ $((slept % 50)) != 0 ] && {{ {LOST}; }}", 600),
    ],
)
def test_a_wait_ends_and_says_why(condition: str, seconds: int) -> None:
    done = run(f"{CLOCK}\nwait_until '{condition}' || echo $slept")
    assert int(done.stdout) == seconds
    still, gave_up = done.stderr.splitlines()
    assert still.startswith(f"still waiting for: {condition}")
    assert gave_up.startswith(f"gave up waiting for: {condition}")
    # At the 600th second, the restarted server replies.
    has_reason = ": Could not connect to Redis at 127.0.0.1:6379: Connection refused (" in gave_up
    assert has_reason == (seconds == 60)
