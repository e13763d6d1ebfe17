"""Tests that `ShardedFilter` and `AsyncShardedFilter` take and return what `BloomFilter` does."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from oxbloom import BloomFilter, RemoteFilter
from servers import Server
from sharded import FOUR_WAYS, TIGHT, Place

both = pytest.mark.parametrize("way", [way for way in FOUR_WAYS if not way.clustered], ids=str)


@both
def test_columns_and_other_iterables_get_the_answers_of_a_bloom_filter(place: Place) -> None:
    filter, local = place.filter(shards=4, capacity=20_000), BloomFilter(20_000, TIGHT)
    words = [f"item {number}" for number in range(10_500)] + ["item 3", "item 10_499"]
    chunks = pa.chunked_array([words[:7], [], words[7:]])
    for items in (words, np.array(words), chunks, pd.Series(words), iter(words)):
        filter.clear()
        local.clear()
        answers, expected = filter.add_all(items), local.add_all(words)
        assert list(answers) == expected
        assert filter.card() == len(local)
        assert isinstance(answers, np.ndarray) is (items is not words and hasattr(items, "__len__"))
    column = pd.Series(["item 1", "new"])
    assert list(filter.contains_all(column)) == [True, False]
    assert column[~filter.add_all(column)].tolist() == ["new"]


def test_columns_work_with_a_filter_in_one_key(server: Server) -> None:
    filter = RemoteFilter(server.client, "seen", error_rate=TIGHT, counting=True)
    column = pa.array(["a", "b", "a"])
    for answers, expected in (
        (filter.add_all(column), [False, False, True]),
        (filter.contains_all(pd.Series([bytearray(b"a"), memoryview(b"c")])), [True, False]),
        (filter.contains_all(np.array(["a", "c"])), [True, False]),
        (filter.remove_all(pd.Series(["a", "a", "b"])), [True, False, True]),
    ):
        assert isinstance(answers, np.ndarray)
        assert answers.dtype == bool
        assert answers.tolist() == expected


@both
@pytest.mark.parametrize("item", [1, None, 1.5, ["a"], "\ud800"])
def test_items_of_other_types_are_rejected_with_the_same_message(place: Place, item: Any) -> None:
    filter, local = place.filter(counting=True), BloomFilter(100, counting=True)
    operations = ("add", item), ("add_all", ["a", "b", item, "c"]), ("remove", item)
    for operation, words in operations:
        with pytest.raises((TypeError, UnicodeEncodeError)) as expected:
            getattr(local, operation)(words)
        with pytest.raises(expected.type) as raised:
            getattr(filter, operation)(words)
        assert str(raised.value) == str(expected.value)
        if operation == "add_all":
            assert raised.value.answers == expected.value.answers == [False, False]
    assert filter.contains_all(["a", "b", "c"]) == [True, True, False]
    with pytest.raises((TypeError, UnicodeEncodeError)):
        filter.contains(item)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "b"]),
        pa.array([1]),
        pc.run_end_encode(pa.array(["a"])),
        np.array([["a"]]),
        np.ma.array(["a", "b"], mask=[0, 1]),
        pd.Series([1, 2]),
        b"a",
    ],
)
def test_columns_that_a_bloom_filter_rejects_are_rejected(server: Server, column: Any) -> None:
    with pytest.raises(TypeError) as expected:
        BloomFilter(100).add_all(column)
    with pytest.raises(TypeError) as raised:
        RemoteFilter(server.client, "seen").add_all(column)
    assert str(raised.value) == str(expected.value)


def test_an_exception_has_the_answers_of_the_batches_before_it(server: Server) -> None:
    def items() -> Any:
        yield from (f"item {number}" for number in range(10_500))
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone") as raised:
        RemoteFilter(server.client, "seen", error_rate=TIGHT).add_all(items())
    assert raised.value.answers == [False] * 10_500
