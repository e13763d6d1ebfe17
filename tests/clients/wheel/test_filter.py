"""Tests the class BloomFilter. `test_pybloom_page.py` compares it with pybloom, and `filter/tests/promises` tests the
library below it: rates, membership, counting, forgetting."""

import ast
import copy
import os
import pickle
import random
import time
from datetime import UTC, datetime, timedelta
from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import oxbloom
import pytest
from kinds import KINDS, filled, items
from oxbloom import BloomFilter, FilterFullError

ABSENT = [f"absent {number}" for number in range(20_000)]


# --- Items ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
def test_single_items_and_batches_get_the_same_answers(name):
    kind = KINDS[name]
    batch = kind.create()
    one = batch.empty_like()
    members = items(kind.items) + items(kind.items // 2)
    random.Random(1).shuffle(members)
    assert batch.add_all(iter(members)) == [one.add(member) for member in members]
    assert batch.contains_all(ABSENT) == [absent in one for absent in ABSENT]
    assert len(batch) == len(one)


def test_update_adds_as_add_all_does():
    filter = BloomFilter(10_000, seed=1)
    other = filter.empty_like()
    for source in (items(3000), np.array(items(5000)), iter(items(6000))):
        assert filter.update(source) is None
    other.add_all(items(6000))
    assert filter == other
    with pytest.raises(TypeError, match="index 1 must be str or bytes, not int"):
        filter.update(["last", 2])
    assert "last" in filter
    full = BloomFilter(10, seed=1)
    with pytest.raises(FilterFullError, match="the first 10 of these"):
        full.update(items(5000))


def test_a_message_about_an_item_in_a_batch_names_its_index():
    def of(batch: Any) -> str:
        with pytest.raises((TypeError, ValueError)) as raised:
            BloomFilter(10_000).add_all(batch)
        return str(raised.value)

    many = items(5000)
    assert of([*many, 5]) == "the item at index 5000 must be str or bytes, not int"
    assert of([*many, None]).startswith(
        "the item at index 5000 must be str or bytes, not a missing"
    )
    assert of(["a", "\ud800"]).endswith("surrogates not allowed, in the item at index 1")
    released = memoryview(b"b")
    released.release()
    assert of(["a", released]).endswith("index 1 must be str or bytes, not memoryview")


def test_str_stands_for_its_utf8_bytes():
    filter = BloomFilter(100)
    filter.add_all(["é", "", "日本", "\0", b"\xff"])
    assert all(filter.contains_all(["é".encode(), b"", "日本".encode(), b"\0", b"\xff"]))


def test_text_that_has_no_utf8_is_an_error_after_the_items_before_it():
    filter = BloomFilter(100)
    with pytest.raises(UnicodeEncodeError):
        filter.add("\ud800")
    with pytest.raises(UnicodeEncodeError):
        filter.add_all(["before", "\ud800", "after"])
    assert filter.contains_all(["before", "after"]) == [True, False]


def test_subclasses_of_str_and_bytes_are_accepted():
    class Name(str):
        pass

    class Data(bytes):
        pass

    filter = BloomFilter(100)
    filter.add(Name("é"))
    filter.add_all([Name("b"), Data(b"c")])
    assert all(filter.contains_all(["é", b"b", "c"]))


def test_bytearrays_and_memory_views_of_bytes_are_items():
    filter = BloomFilter(100, counting=True)
    changing = bytearray(b"a")
    assert [filter.add(changing), filter.add(memoryview(b"xbx")[1:2])] == [False, False]
    assert filter.add_all([changing, memoryview(b"b"), bytearray()]) == [True, True, False]
    changing += b"more"
    assert filter.count_all(["a", b"b", "", "amore"]) == [2, 2, 1, 0]
    assert memoryview(b"a") in filter
    assert filter.remove(bytearray(b"a"))
    assert filter.count_of(memoryview(b"a")) == 1


@pytest.mark.parametrize("item", [1, None, 1.5, ["a"], ("a",), memoryview(b"abcd").cast("I")])
def test_other_types_are_rejected(item):
    filter = BloomFilter(100, counting=True)
    for call in (filter.add, filter.__contains__, filter.remove, filter.count_of):
        with pytest.raises(TypeError, match="must be str or bytes, not"):
            call(item)
    for call in (filter.add_all, filter.contains_all, filter.remove_all, filter.count_all):
        with pytest.raises(TypeError, match="must be str or bytes, not"):
            call(["before", item, "after"])
    # Batches stop at that item. The one before it was added, and then removed.
    assert filter.count_of("before") == 0
    assert filter.count == 0


def test_a_full_filter_says_how_many_items_it_took():
    filter = BloomFilter(100, seed=1)
    with pytest.raises(FilterFullError, match="it has the first 100 of these"):
        filter.add_all([*items(100), "one too many"])
    assert all(filter.contains_all(items(100)))
    with pytest.raises(IndexError):
        filter.add("one too many")
    assert filter.add("item 1")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"capacity": 0}, ValueError),
        ({"capacity": -1}, ValueError),
        ({"capacity": 1 << 70}, OverflowError),
        ({"capacity": (1 << 63) - 1}, MemoryError),
        ({"capacity": "10"}, TypeError),
        ({"error_rate": 0}, ValueError),
        ({"error_rate": 1}, ValueError),
        ({"error_rate": nan}, ValueError),
        ({"growing": 0}, ValueError),
        ({"growing": "yes"}, ValueError),
        ({"seed": -1}, OverflowError),
        ({"seed": 1, "classic": True}, ValueError),
        ({"counting": True, "classic": True}, ValueError),
        ({"counting": True, "rolling": True}, ValueError),
        *(({"window": window}, TypeError) for window in ("90", "7d", True, [90], object())),
        *(({"window": window}, ValueError) for window in (0, -1, 1e300, nan, inf)),
        ({"window": timedelta(0)}, ValueError),
        ({"window": timedelta(days=-1)}, ValueError),
        ({"window": timedelta(days=36_600)}, ValueError),
        ({"rolling": True, "growing": True}, ValueError),
        ({"refresh": True}, ValueError),
        ({"refresh": True, "rolling": True}, ValueError),
        ({"slices": 4}, ValueError),
        ({"slices": 1, "rolling": True}, ValueError),
        ({"slices": 65, "rolling": True}, ValueError),
        ({"slices": 256 + 8, "rolling": True}, ValueError),
        ({"slices": -1, "rolling": True}, ValueError),
        ({"unknown": True}, TypeError),
    ],
)
def test_options_that_make_no_sense_are_rejected(options, error):
    with pytest.raises(error):
        BloomFilter(**{"capacity": 100} | options)


def test_the_options_can_be_read_back():
    filter = BloomFilter(50, 0.01, growing=4, seed=42)
    assert (filter.capacity, filter.growing, filter.seed) == (50, 4, 42)
    assert BloomFilter(10).growing is None
    assert BloomFilter(10, growing=True).growing == 2
    assert BloomFilter(10, classic=True).seed is None
    assert BloomFilter(10).seed != BloomFilter(10).seed
    assert "42" not in repr(filter)
    info = BloomFilter(10, window=timedelta(hours=1), slices=4, rolling=True, refresh=True).info()
    assert (info["window"], info["slices"]) == (timedelta(hours=1), 4)
    assert info["rolling"]
    assert info["refresh"]


# --- Counting -------------------------------------------------------------------------------------


def test_only_counting_filters_remove_and_count():
    for call in ("remove", "count_of"):
        with pytest.raises(TypeError, match="counting=True"):
            getattr(BloomFilter(10), call)("a")
    for call in ("remove_all", "count_all"):
        with pytest.raises(TypeError, match="counting=True"):
            getattr(BloomFilter(10), call)(["a"])


# --- Time -----------------------------------------------------------------------------------------


def test_a_window_is_over_after_its_time():
    filter = BloomFilter(100, window=timedelta(seconds=80), seed=1)
    start = datetime(2020, 1, 1, tzinfo=UTC)
    filter.advance_to(start)
    assert not filter.add("a")
    filter.advance_to(start + timedelta(seconds=79))
    assert filter.add("a")
    filter.advance_to(start + timedelta(seconds=91))
    assert "a" not in filter
    assert len(filter) == 0
    filter.advance_to((start + timedelta(seconds=1)).timestamp())  # time does not go back
    assert "a" not in filter


@pytest.mark.parametrize("window", [90, 90.0, timedelta(seconds=90), np.float64(90)])
def test_a_window_is_a_timedelta_or_seconds(window):
    assert BloomFilter(10, window=window).info()["window"] == timedelta(seconds=90)
    assert BloomFilter(10, window=0.25).info()["window"] == timedelta(milliseconds=250)


def test_without_advance_to_the_systems_clock_is_used():
    filter = BloomFilter(100, window=timedelta(milliseconds=400), slices=2)
    filter.add("a")
    assert "a" in filter
    assert filter.contains_all(["a"]) == [True]
    time.sleep(0.7)
    assert "a" not in filter
    assert filter.contains_all(["a"]) == [False]
    assert len(filter) == 0
    assert not filter.add("a")


def test_copies_keep_their_clock():
    filter = BloomFilter(100, window=timedelta(seconds=80))
    filter.advance_to(1000)
    filter.add("a")
    for other in (filter.copy(), pickle.loads(pickle.dumps(filter))):
        assert "a" in other
        other.advance_to(1100.0)
        assert "a" not in other
    assert "a" in filter


@pytest.mark.parametrize("time", [-1, float("nan"), float("inf"), "now", None])
def test_invalid_times_are_rejected(time):
    with pytest.raises((ValueError, TypeError)):
        BloomFilter(10, window=timedelta(1)).advance_to(time)


def test_filters_without_a_window_have_no_time():
    for filter in (BloomFilter(10), BloomFilter(10, rolling=True)):
        with pytest.raises(TypeError, match="window"):
            filter.advance_to(1)


# --- Sets -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["native", "grown", "counting", "growing counting", "classic"])
def test_a_union_has_the_items_of_both(name):
    one, members = filled(name)
    other = one.empty_like()
    others = [f"other {number}" for number in range(100)]
    other.add_all(others[:90])
    for union in (one | other, one.union(other)):
        assert all(union.contains_all(members + others[:90]))
    assert not all(one.contains_all(others[:90]))
    one |= other
    assert all(one.contains_all(members + others[:90]))


def test_an_intersection_has_the_common_items():
    one = BloomFilter(1000, seed=5)
    other = BloomFilter(1000, seed=5)
    one.add_all(items(600))
    other.add_all(items(900)[300:])
    for common in (one & other, one.intersection(other)):
        assert all(common.contains_all(items(600)[300:]))
        assert sum(common.contains_all(ABSENT)) < 200
    one &= other
    assert sum(one.contains_all(items(300))) < 30


def test_a_filter_is_united_with_itself():
    filter, members = filled("counting")
    assert (filter | filter).count_of(members[0]) == 2
    filter |= filter
    assert filter.count_of(members[0]) == 2


def test_filters_that_differ_are_not_united():
    filter = BloomFilter(100, seed=1)
    for other in (BloomFilter(100, seed=2), BloomFilter(100, classic=True)):
        for call in (filter.union, filter.intersection, filter.__ior__, filter.__iand__):
            with pytest.raises(ValueError, match="empty_like"):
                call(other)
    grown, window = filled("grown")[0], filled("window")[0]
    with pytest.raises(ValueError, match="grown"):
        grown & grown
    with pytest.raises(ValueError, match="forget"):
        window | window
    with pytest.raises(TypeError):
        filter | {"a"}


@pytest.mark.parametrize("name", KINDS)
def test_a_cleared_filter_is_empty_and_keeps_its_options(name):
    filter, members = filled(name)
    kept = ("kind", "error_rate", "growing", "seed", "window", "slices", "refresh", "rolling")
    before = {fact: filter.info()[fact] for fact in kept}
    filter.clear()
    assert len(filter) == 0
    assert not any(filter.contains_all(members))
    assert {fact: filter.info()[fact] for fact in kept} == before
    filter.add_all(members)
    assert all(filter.contains_all(members))


@pytest.mark.parametrize("name", KINDS)
def test_a_folded_filter_is_smaller_and_has_its_items(name):
    filter, members = filled(name)
    before, memory = filter.copy(), filter.memory
    if filter.info()["kind"] != "native":
        with pytest.raises(ValueError, match="only native filters can be folded"):
            filter.fold()
        assert filter == before
        return
    factor = filter.fold(2 * len(members))
    assert factor == 1 or filter.memory < memory // factor + 200
    assert (factor > 200) == (name == "large")
    assert len(filter) == len(before)
    assert all(filter.contains_all(members))
    assert before | filter == filter | before == filter
    filter.fold()
    assert all(filter.contains_all(members))
    with pytest.raises(OverflowError):
        filter.fold(-1)


@pytest.mark.parametrize("name", KINDS)
def test_filters_with_the_same_bits_are_equal(name):
    filter, _ = filled(name)
    same = filter.copy()
    assert filter == same
    assert filter == BloomFilter.load(filter.dump())
    assert filter != filter.empty_like()
    same.clear()
    assert filter != same
    assert filter != "filter"
    assert BloomFilter(10, seed=1) != BloomFilter(10, seed=2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(filter)


@pytest.mark.parametrize("name", KINDS)
def test_copies_share_nothing(name):
    filter, members = filled(name)
    for other in (
        filter.copy(),
        copy.copy(filter),
        copy.deepcopy(filter),
        pickle.loads(pickle.dumps(filter)),
    ):
        assert other.info() == filter.info()
        assert all(other.contains_all(members))
    empty = filter.empty_like()
    empty.add("new")
    assert len(empty) == 1
    assert len(filter) > 1


# --- Documentation --------------------------------------------------------------------------------


def test_help_shows_what_editors_show():
    """Editors show the docstrings of the stub, and help() shows those of the library. They are the same."""
    stub = ast.parse((Path(oxbloom.__file__).parent / "_oxbloom.pyi").read_text())
    [kind] = [each for each in stub.body if getattr(each, "name", "") == "BloomFilter"]
    assert isinstance(kind, ast.ClassDef)
    documented = {
        each.name: ast.get_docstring(each)
        for each in kind.body
        if isinstance(each, ast.FunctionDef) and ast.get_docstring(each)
    }
    del documented["__contains__"]  # Python has its own text for it
    assert ast.get_docstring(kind) == BloomFilter.__doc__
    assert {name: getattr(BloomFilter, name).__doc__ for name in documented} == documented
    public = {name for name in vars(BloomFilter) if not name.startswith("_")}
    assert public == {name for name in documented if not name.startswith("_")}


def test_files_may_be_paths(tmp_path: Path) -> None:
    filter = BloomFilter(10, seed=1)
    filter.add("apple")
    for path in (tmp_path / "path", str(tmp_path / "text"), os.fsencode(tmp_path / "bytes")):
        filter.tofile(path)
        assert BloomFilter.fromfile(path) == filter
    with pytest.raises(FileNotFoundError):
        BloomFilter.fromfile(tmp_path / "missing")
