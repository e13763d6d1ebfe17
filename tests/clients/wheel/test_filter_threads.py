"""Uses `BloomFilter` in threads and forked processes, and interrupts it."""

import itertools
import operator
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from command_line import run_code
from kinds import items
from oxbloom import BloomFilter, FilterFullError

# --- Threads --------------------------------------------------------------------------------------


def test_threads_share_a_filter():
    filter = BloomFilter(100, growing=True, counting=True)
    errors: list[Exception] = []

    def work(number: int) -> None:
        try:
            names = [f"{number}:{each}" for each in range(5000)]
            for name in names[:1000]:
                filter.add(name)
            filter.add_all(names[1000:])
            assert all(filter.contains_all(names))
            assert len(filter | filter.empty_like()) > 0
            assert all(filter.remove_all(names[:2500]))
        except Exception as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert all(filter.contains_all(f"{n}:{each}" for n in range(4) for each in range(2500, 5000)))


def test_a_list_may_change_while_its_items_are_added():
    """A batch holds references to its items, since another thread may remove them from the list."""
    names = items(200_000)
    stopped = threading.Event()

    def change() -> None:
        while not stopped.is_set():
            for number in range(0, len(names), 1000):
                names[number] = f"other {number}"

    thread = threading.Thread(target=change)
    thread.start()
    filter = BloomFilter(400_000)
    try:
        assert len(filter.add_all(names)) == len(names)
    finally:
        stopped.set()
        thread.join()
    assert all(filter.contains_all(name for name in names if name.startswith("item")))


COMPARISONS = """
import operator, sys, threading, time
from oxbloom import BloomFilter

one = BloomFilter(100)
other = one.empty_like()
PAIRS = {"both ways": ((one, other), (other, one)), "with itself": ((one, one), (one, one))}
end = time.monotonic() + 3

def repeat(work, *arguments):
    while time.monotonic() < end:
        work(*arguments)

works = 2 * [(operator.eq, *pair) for pair in PAIRS[sys.argv[1]]]
works += [(operator.ior, *pair) for pair in PAIRS[sys.argv[1]]]
works += 2 * [(filter.update, ["item"] * 1000) for filter in (one, other)]
threads = [threading.Thread(target=repeat, args=work) for work in works]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert one == other
"""


@pytest.mark.parametrize("how", ["both ways", "with itself"])
def test_filters_are_compared_and_merged_while_they_change(how: str) -> None:
    """A comparison or a union holds the locks of two filters. Threads that wait to change them block those that want to
    read."""
    run_code(COMPARISONS, how)


SCARCE = """
import resource
from oxbloom import BloomFilter

filter = BloomFilter(50_000_000, 0.01)
filter.add("item")
same = filter.copy()
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()

def leave(free):
    resource.setrlimit(resource.RLIMIT_AS, (used + free, resource.RLIM_INFINITY))

leave(0)
try:
    filter == same
except MemoryError:
    pass
else:
    raise AssertionError
leave(40 << 20)
assert filter == same
same.add("other")
assert filter != same
"""


def test_a_comparison_copies_no_filter_and_needs_memory_for_chunks():
    run_code(SCARCE)


# --- Processes ------------------------------------------------------------------------------------

FORKS = """
import os, sys, threading, time
from oxbloom import BloomFilter

SAME = BloomFilter(1_000_000, 1e-15, growing=True, seed=1)
SAME.add("before")
WORK = {
    "add_all": lambda filter, number: filter.add_all(f"{number % 50} {each}" for each in range(20_000)),
    "contains_all": lambda filter, number: filter.contains_all(["item"] * 20_000),
    "copy": lambda filter, number: filter.copy(),
    "==": lambda filter, number: filter == SAME,
}

def status(child, within=20):
    end = time.monotonic() + within
    while not (done := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < end:
        time.sleep(0.001)
    if done[0]:
        return done[1]
    os.kill(child, 9)
    os.waitpid(child, 0)
    return "hangs"

def fork_during_work(forks):
    filter = SAME.copy()
    stopped = threading.Event()
    rounds = [0, 0]

    def run(thread):
        while not stopped.is_set():
            WORK[sys.argv[1]](filter, 2 * rounds[thread] + thread)
            rounds[thread] += 1

    threads = [threading.Thread(target=run, args=(thread,), daemon=True) for thread in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(forks):
        child = os.fork()
        if not child:
            whole = "before" in filter and filter.add("new") is False
            whole = whole and filter.add_all(["new", "newer"]) == [True, False]
            os._exit(0 if whole and BloomFilter.load(filter.dump()) == filter else 1)
        if result := status(child):
            return result
    stopped.set()
    for thread in threads:
        thread.join()
    return 0 if any(rounds) else "did not work"

# In each of these processes, threads are the first to use batches. If PyO3 initialized anything then, a fork could
# hang.
for _ in range(30):
    child = os.fork()
    if not child:
        os._exit(fork_during_work(1) != 0)
    assert (result := status(child, within=40)) == 0, result
assert (result := fork_during_work(40)) == 0, result
"""


@pytest.mark.parametrize("work", ["add_all", "contains_all", "copy", "=="])
def test_a_fork_during_a_batch_of_another_thread_copies_a_whole_filter(work: str) -> None:
    run_code(FORKS, work)


# --- Interruptions --------------------------------------------------------------------------------


class RingError(Exception):
    """Raised by the handler of an alarm, as KeyboardInterrupt is by that of Ctrl-C."""


@pytest.fixture
def bell() -> Iterator[None]:
    """Lets SIGALRM raise an error."""

    def ring(_number: int, _frame: object) -> None:
        raise RingError

    old = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)


def under_alarm(call: Callable[[Any], object], batch: Any) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    call(batch)


def interrupted(call: Callable[[Any], object], batch: Any) -> Any:
    """Returns the answers before the alarm. On a busy machine, it may ring before the call has begun, so it is called
    again until there are answers."""
    while True:
        with pytest.raises(RingError) as raised:
            under_alarm(call, batch)
        answers = getattr(raised.value, "answers", ())
        if len(answers):
            return answers


# A column without an end, for all practical purposes: its items share their memory.
ENDLESS = np.broadcast_to(np.array([b"x" * 100]), (1 << 40,))


@pytest.mark.parametrize("operation", ["add_all", "contains_all", "remove_all", "count_all"])
def test_a_signal_interrupts_a_long_column(bell, operation):
    filter = BloomFilter(100, counting=True)
    answers = interrupted(getattr(filter, operation), ENDLESS)
    assert isinstance(answers, np.ndarray)
    if operation == "add_all":
        # No addition is without its answer, and no answer without its addition.
        assert filter.count_of(b"x" * 100) == len(answers)
        assert answers.tolist() == [False] + [True] * (len(answers) - 1)


def test_other_threads_run_while_items_are_hashed(bell):
    """Another thread can send the signal, although the batch has no end."""
    main = threading.main_thread().ident
    thread = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGALRM))

    def look_up() -> None:
        thread.start()
        BloomFilter(100).contains_all(ENDLESS)

    with pytest.raises(RingError):
        look_up()
    thread.join()


def test_a_signal_interrupts_an_update(bell):
    filter = BloomFilter(100, counting=True)
    while not filter.count_of(b"x" * 100):
        with pytest.raises(RingError):
            under_alarm(filter.update, ENDLESS)


def test_a_signal_loses_no_item_of_an_iterator(bell):
    many = 1 << 40
    iterator = itertools.repeat("item", many)
    filter = BloomFilter(100, counting=True)
    answers = interrupted(filter.add_all, iterator)
    taken = many - operator.length_hint(iterator)
    assert taken == len(answers) == filter.count_of("item")


def test_a_signal_interrupts_a_generator_itself(bell):
    taken = itertools.count()
    filter = BloomFilter(100, 1e-18, growing=True)
    count = len(interrupted(filter.add_all, (str(number) for number in taken)))
    assert count == len(filter)
    # The generator may have been interrupted after it took a number, as in any loop.
    assert next(taken) - count <= 1
    assert filter.contains_all(str(number) for number in range(count)) == [True] * count


def test_a_signal_interrupts_the_loading_of_chunks(bell):
    filter = BloomFilter(100)
    filter.add("item")
    header, chunk = filter.chunks()
    # A chunk may be loaded again.
    endless = itertools.chain([header], itertools.repeat(chunk, 1 << 40))
    with pytest.raises(RingError):
        under_alarm(BloomFilter.from_chunks, endless)


def test_an_item_of_another_type_is_the_last_that_is_taken():
    numbers = iter([*items(5000), None, *items(10)])
    filter = BloomFilter(10_000)
    with pytest.raises(TypeError, match="index 5000 must be str or bytes") as raised:
        filter.add_all(numbers)
    assert len(raised.value.answers) == 5000
    assert list(numbers) == items(10)


def test_an_interrupt_in_an_iterable_comes_after_the_items_before_it():
    def interrupted() -> Iterator[str]:
        yield from items(100)
        raise KeyboardInterrupt

    filter = BloomFilter(1000, 1e-15)
    with pytest.raises(KeyboardInterrupt) as raised:
        filter.add_all(interrupted())
    assert raised.value.answers == [False] * 100
    assert all(filter.contains_all(items(100)))


def test_a_full_filter_reads_as_far_ahead_as_documented():
    rest = iter(items(10_000))
    with pytest.raises(FilterFullError, match="the first 1000 of these") as raised:
        BloomFilter(1000, 1e-15).add_all(rest)
    assert raised.value.answers == [False] * 1000
    assert int(next(rest).split()[1]) <= 1000 + 4096
    assert "4096 are read ahead" in BloomFilter.add_all.__doc__.replace("\n", " ")
