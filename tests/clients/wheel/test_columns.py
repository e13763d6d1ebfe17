"""Batches of BloomFilter take the columns of NumPy, pandas, Polars and pyarrow, and return masks that these accept."""

import array
import ctypes
import itertools
import mmap
import uuid
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from command_line import run_code
from oxbloom import BloomFilter

WORDS = ["", "a", "é", "日本語", "x" * 11, "x" * 12, "x" * 13, "a" * 300, "mid\0dle"]
BYTES = [word.encode() for word in WORDS]
TWICE = list(itertools.chain.from_iterable((word, "no") for word in WORDS))
PLACES = range(len(WORDS))
HIDDEN = [word == "no" for word in TWICE]


def of_duckdb(select: str) -> duckdb.DuckDBPyRelation:
    """Returns the words, in their order, as DuckDB gives them."""
    words = pa.table({"word": WORDS, "data": BYTES, "place": PLACES})  # noqa: F841
    return duckdb.sql(f"SELECT {select} AS word FROM words ORDER BY place")


class Swapped(np.ndarray):
    """A column whose items differ from its memory."""

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index).swapcase()

    def __iter__(self) -> Any:
        return (self[index] for index in PLACES)


DIGESTS = [bytes([number]) * 16 for number in range(len(WORDS))]
COLUMNS = {
    "NumPy U": np.array(WORDS),
    "NumPy S": np.array(BYTES),
    "NumPy reversed": np.array(WORDS[::-1])[::-1],
    "NumPy every other": np.array(TWICE)[::2],
    "NumPy swapped": np.array(WORDS).astype(np.array(WORDS).dtype.newbyteorder()),
    "NumPy object": np.array(WORDS, dtype=object),
    "NumPy object, every other": np.array(TWICE, dtype=object)[::2],
    "NumPy variable": np.array(WORDS, dtype=np.dtypes.StringDType()),
    "NumPy masked, nothing hidden": np.ma.array(WORDS, mask=[False] * len(WORDS)),
    "NumPy masked, compressed": np.ma.array(TWICE, mask=HIDDEN).compressed(),
    "NumPy characters": np.char.array([f"{word} " for word in WORDS]),
    "NumPy view": np.array([word.swapcase() for word in WORDS]).view(Swapped),
    "a memory view of NumPy U": memoryview(np.array(WORDS)),
    "a memory view of NumPy S": memoryview(np.array(BYTES)[::-1])[::-1],
    "bytearrays": pd.Series([bytearray(each) for each in BYTES], dtype=object),
    "memory views": pd.Series([memoryview(each) for each in BYTES], dtype=object),
    "memory views of a part": pd.Series([memoryview(each * 2)[: len(each)] for each in BYTES]),
    "DuckDB, NumPy": of_duckdb("word").fetchnumpy()["word"],
    "DuckDB, pandas": of_duckdb("word").df().word,
    "DuckDB, Polars": of_duckdb("word").pl()["word"],
    "DuckDB, Arrow": of_duckdb("word").to_arrow_table()["word"],
    "DuckDB binary, NumPy": of_duckdb("data").fetchnumpy()["word"],
    "DuckDB binary, pandas": of_duckdb("data").df().word,
    "DuckDB binary, Arrow": of_duckdb("data").to_arrow_table()["word"],
    "pandas sparse": pd.Series(pd.arrays.SparseArray(WORDS, fill_value="a")),
    "pandas str": pd.Series(WORDS),
    "pandas object": pd.Series(WORDS, dtype=object),
    "pandas bytes": pd.Series(BYTES),
    "pandas str and bytes": pd.Series([*WORDS[:3], *BYTES[3:]], dtype=object),
    "pandas string": pd.Series(WORDS, dtype="string"),
    "pandas string of Python": pd.Series(WORDS, dtype=pd.StringDtype("python")),
    "pandas of pyarrow": pd.Series(WORDS, dtype=pd.ArrowDtype(pa.string())),
    "pandas categories": pd.Series(WORDS, dtype="category"),
    "pandas some categories": pd.Series(TWICE, dtype="category")[::2],
    "pandas every other": pd.Series(TWICE)[::2],
    "pandas filtered": pd.DataFrame({"a": TWICE, "b": range(18)}).query("b % 2 == 0").a,
    "pandas index": pd.Index(WORDS),
    "pandas array": pd.array(WORDS),
    "Polars": pl.Series(WORDS),
    "Polars binary": pl.Series(BYTES),
    "Polars categories": pl.Series(WORDS, dtype=pl.Categorical),
    "Polars enum": pl.Series(WORDS, dtype=pl.Enum(["no", *WORDS[::-1]])),
    "Polars every other": pl.Series(TWICE).gather_every(2),
    "Polars slice": pl.Series(["no", *WORDS, "no"])[1:-1],
    "Polars chunks": pl.concat([pl.Series(WORDS[:4]), pl.Series(WORDS[4:])], rechunk=False),
    "Arrow utf8": pa.array(WORDS),
    "Arrow large utf8": pa.array(WORDS, pa.large_utf8()),
    "Arrow view": pa.array(WORDS, pa.string_view()),
    "Arrow binary": pa.array(BYTES, pa.binary()),
    "Arrow large binary": pa.array(BYTES, pa.large_binary()),
    "Arrow binary view": pa.array(BYTES, pa.binary_view()),
    "Arrow slice": pa.array(["no", *WORDS, "no"])[1:-1],
    "Arrow slice of views": pa.array(["no" * 10, *WORDS, "no"], pa.string_view())[1:-1],
    "Arrow slice of nulls": pa.array([None, *WORDS, None])[1:-1],
    "Arrow chunks": pa.chunked_array([WORDS[:3], [], WORDS[3:]]),
    "Arrow one chunk": pa.chunked_array([WORDS]),
    "Arrow categories": pa.array(WORDS).dictionary_encode(),
    "Arrow slice of categories": pa.array([None, "no", *WORDS]).dictionary_encode()[2:],
    "Arrow categories of views": pa.DictionaryArray.from_arrays(
        pa.array(range(len(WORDS)), pa.uint8()), pa.array(WORDS, pa.string_view())
    ),
    "Arrow extension of utf8": pa.ExtensionArray.from_storage(pa.json_(), pa.array(WORDS)),
    "Arrow chunks of categories": pa.chunked_array(
        [pa.array(WORDS[:3]).dictionary_encode(), pa.array(WORDS[3:]).dictionary_encode()]
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_have_the_items_that_a_loop_over_them_has(name: str) -> None:
    column: Any = COLUMNS[name]
    filter = BloomFilter(100, 1e-9, seed=3)
    for call, expected in (
        (filter.contains_all, [False] * len(WORDS)),
        (filter.add_all, [False] * len(WORDS)),
        (filter.add_all, [True] * len(WORDS)),
        (filter.contains_all, [True] * len(WORDS)),
    ):
        answers = call(column)
        assert isinstance(answers, np.ndarray)
        assert answers.dtype == bool
        assert answers.tolist() == expected
    assert filter.contains_all(WORDS) == [True] * len(WORDS)
    assert len(filter) == len(WORDS)
    assert "no" not in filter
    counting = BloomFilter(100, 1e-9, counting=True)
    counting.update(column)
    assert counting.count_all(column).dtype == np.uint64
    assert counting.count_all(column).tolist() == [1] * len(WORDS)
    assert counting.remove_all(column).tolist() == [True] * len(WORDS)


def test_binary_values_of_one_length_are_items() -> None:
    column = pa.array([b"no" * 8, *DIGESTS], pa.binary(16))[1:]
    filter = BloomFilter(100, 1e-9)
    assert not filter.add_all(column).any()
    assert all(filter.contains_all(DIGESTS))
    assert len(filter) == len(DIGESTS)


def test_the_idiom_keeps_the_new_rows() -> None:
    urls = ["a", "b", "a", "c"]
    f = BloomFilter(100, 1e-9)
    f.add("b")
    for df in (pd.DataFrame({"url": urls}), pd.DataFrame({"url": pd.Categorical(urls)})):
        filter = f.copy()
        assert df[~filter.add_all(df.url)].url.tolist() == ["a", "c"]
        assert df[filter.contains_all(df.url)].url.tolist() == urls
    assert pl.DataFrame({"url": urls}).filter(~f.copy().add_all(pl.Series(urls)))["url"].to_list() == ["a", "c"]  # fmt: skip
    table = pa.table({"url": urls})
    assert table.filter(~f.copy().add_all(table["url"]))["url"].to_pylist() == ["a", "c"]
    array = np.array(urls)
    assert array[~f.copy().add_all(array)].tolist() == ["a", "c"]


def test_other_iterables_get_lists() -> None:
    filter = BloomFilter(100, 1e-9, counting=True)
    for source in (["a"], ("a",), {"a"}, {"a": 1}, iter(["a"]), {"a": 1}.keys()):
        assert filter.contains_all(source) in ([True], [False])
        assert type(filter.add_all(source)) is list
        assert type(filter.count_all(source)) is list


def test_masks_belong_to_the_caller() -> None:
    answer = BloomFilter(100).add_all(np.array(["a", "b", "a"]))
    answer[0] = True
    assert answer.tolist() == [True, False, True]


def test_long_columns_give_the_same_answers_as_lists() -> None:
    words = [f"{number:x}" for number in range(20_000)]
    categories = [f"{number % 5000:x}" for number in range(20_000)]
    answers = []
    for column in (words, np.array(words), np.array(words, "S"), pa.array(words), pl.Series(words)):
        filter = BloomFilter(10_000, growing=True, seed=4)
        filter.add_all(column[::2])
        answers.append(list(filter.contains_all(column)))
    assert all(answer == answers[0] for answer in answers)
    filter = BloomFilter(10_000, 1e-9)
    assert filter.add_all(pd.Series(categories, dtype="category")).tolist() == [False] * 5000 + [True] * 15_000  # fmt: skip


EMPTY = {
    "NumPy U": np.array([], "U5"),
    "NumPy S": np.array([], "S5"),
    "NumPy object": np.array([], object),
    "NumPy float": np.array([]),
    "pandas": pd.Series([]),
    "pandas str": pd.Series([], dtype=str),
    "pandas float": pd.Series([], dtype=float),
    "pandas categories": pd.Series([], dtype="category"),
    "Polars": pl.Series([]),
    "Polars str": pl.Series([], dtype=pl.String),
    "Polars categories": pl.Series([], dtype=pl.Categorical),
    "Arrow": pa.array([]),
    "Arrow utf8": pa.array([], pa.utf8()),
    "Arrow view": pa.array([], pa.string_view()),
    "Arrow number": pa.array([], pa.int8()),
    "Arrow categories": pa.array([], pa.utf8()).dictionary_encode(),
    "no chunks": pa.chunked_array([], pa.utf8()),
    "no chunks of null": pa.chunked_array([], pa.null()),
}


@pytest.mark.parametrize("name", EMPTY)
def test_columns_may_be_empty(name: str) -> None:
    answers = BloomFilter(10).add_all(EMPTY[name])
    assert isinstance(answers, np.ndarray)
    assert answers.dtype == bool
    assert answers.tolist() == []


HOLEY = ["a", "b", None, "c"]
MISSING = {
    "NumPy object": np.array(HOLEY, dtype=object),
    "NumPy masked U": np.ma.array(["a", "b", "hidden", "c"], mask=[0, 0, 1, 0]),
    "NumPy masked S": np.ma.array([b"a", b"b", b"hidden", b"c"], mask=[0, 0, 1, 0]),
    "NumPy masked object": np.ma.array(np.array(HOLEY, dtype=object), mask=[0, 0, 1, 0]),
    "DuckDB, NumPy": duckdb.sql("SELECT unnest(['a', 'b', NULL, 'c']) AS a").fetchnumpy()["a"],
    "NumPy NaN": np.array(["a", "b", np.nan, "c"], dtype=object),
    "NumPy variable": np.array(HOLEY, dtype=np.dtypes.StringDType(na_object=None)),
    "pandas str": pd.Series(HOLEY),
    "pandas object": pd.Series(HOLEY, dtype=object),
    "pandas string": pd.Series(HOLEY, dtype="string"),
    "pandas string of Python": pd.Series(HOLEY, dtype=pd.StringDtype("python")),
    "pandas of pyarrow": pd.Series(HOLEY, dtype=pd.ArrowDtype(pa.string())),
    "pandas categories": pd.Series(HOLEY, dtype="category"),
    "pandas index": pd.Index(HOLEY),
    "Polars": pl.Series(HOLEY),
    "Polars categories": pl.Series(HOLEY, dtype=pl.Categorical),
    "Arrow utf8": pa.array(HOLEY),
    "Arrow large utf8": pa.array(HOLEY, pa.large_utf8()),
    "Arrow view": pa.array(HOLEY, pa.string_view()),
    "Arrow chunks": pa.chunked_array([HOLEY[:1], HOLEY[1:]]),
    "Arrow categories": pa.array(HOLEY).dictionary_encode(),
    "Arrow null among categories": pa.DictionaryArray.from_arrays([1, 1, 0, 1], [None, "a"]),
    "a list": HOLEY,
}


@pytest.mark.parametrize("name", MISSING)
def test_a_missing_value_is_named_with_its_index(name: str) -> None:
    filter = BloomFilter(10, 1e-9)
    with pytest.raises(TypeError, match=r"^the item at index 2 must be str or bytes, not a missing") as raised:  # fmt: skip
        filter.add_all(MISSING[name])
    assert len(raised.value.answers) == 2
    # The items before it were added.
    assert filter.contains_all(["a", "c"]) == [True, False]


def test_an_index_counts_all_chunks() -> None:
    column = pa.array(["a"] * 5000 + [None])
    for strings, number in ((column, 5000), (pa.chunked_array([["a", "b"], column]), 5002)):
        filter = BloomFilter(10, counting=True)
        with pytest.raises(TypeError, match=f"index {number} must be str or bytes"):
            filter.add_all(strings)
        assert filter.count_of("a") + filter.count_of("b") == number
    with pytest.raises(TypeError, match="index 0 must be str or bytes, not a missing value"):
        BloomFilter(10).add_all(pa.nulls(3))


@pytest.mark.parametrize(
    ("column", "name"),
    [
        (np.array([1, 2]), "int64"),
        (pd.Series([1, 2]), "int64"),
        (pd.Series([1.5, 2]), "float64"),
        (pd.Series([1, 2], dtype="category"), "int64"),
        (pl.Series([1, 2]), "int64"),
        (pl.Series([True]), "bool"),
        (pa.array([1, 2], pa.uint16()), "uint16"),
        (pa.array([1, 2]).dictionary_encode(), "int64"),
        (pa.array([["a"]]), "list"),
        (pa.array([["a"]], pa.large_list(pa.utf8())), "list"),
        (pa.array([["a"]], pa.list_(pa.utf8(), 1)), "list"),
        (pa.array([["a"]], pa.list_view(pa.utf8())), "list"),
        (pa.array([[("a", "b")]], pa.map_(pa.utf8(), pa.utf8())), "map"),
        (pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array(["a"])]), "union"),
        (pa.array([1], pa.decimal128(5)), "decimal"),
        (pa.array([1], pa.date32()), "date"),
        (pa.array([1], pa.time64("us")), "time"),
        (pa.array([1], pa.timestamp("us", "UTC")), "timestamp"),
        (pa.array([1], pa.duration("s")), "duration"),
        (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "interval"),
        (pc.run_end_encode(pa.array(["a", "a"])), "run-end encoded values"),
        (pa.array([uuid.uuid4().bytes], pa.uuid()), "extension type arrow.uuid"),
        (pd.Series([uuid.uuid4()]), "extension type arrow.uuid"),
        (pl.Series([object()], dtype=pl.Object), "object"),
        (np.array([b"ab"], "V2"), "void"),
        (np.rec.array([("a",)]), "record"),
        (memoryview(b"abcd").cast("I"), "int"),
        (duckdb.sql("SELECT 'a' AS a"), "pass one of its columns"),
        (pa.table({"a": ["b"]}), "pass one of its columns"),
        (pl.DataFrame({"a": ["b"]}), "pass one of its columns"),
    ],
)
def test_columns_of_other_types_are_rejected(column: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"index 0 must be str or bytes, not .*{name}"):
        BloomFilter(10).add_all(column)


@pytest.mark.parametrize(
    "table",
    [
        np.array([["a", "b"]]),
        np.array([["a", "b"]], "S"),
        np.array([["a", "b"]], object),
        np.array("a"),
        pd.DataFrame({"a": ["b"]}),
    ],
)
def test_tables_are_rejected(table: Any) -> None:
    with pytest.raises(TypeError, match="one dimension: pass one column"):
        BloomFilter(10).add_all(table)


def test_a_single_text_or_value_is_rejected(tmp_path: Path) -> None:
    """In a loop, it would be items of one letter or one byte."""
    (tmp_path / "file").write_bytes(b"abc")
    with (tmp_path / "file").open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:  # fmt: skip
        for single in (
            "abc",
            b"abc",
            bytearray(b"abc"),
            memoryview(b"abc"),
            memoryview(b"abc").cast("c"),
            mapped,
            array.array("b", b"abc"),
            array.array("u", "abc"),
            ctypes.create_string_buffer(b"abc"),
            ctypes.create_unicode_buffer("abc"),
            np.str_("abc"),
            np.bytes_(b"abc"),
            pa.py_buffer(b"abc"),
            pa.scalar("abc"),
        ):
            name = type(single).__name__
            with pytest.raises(TypeError, match=f"not {name}: put a single item into a list"):
                BloomFilter(10).add_all(single)  # type: ignore[call-overload]


def test_memory_views_that_cannot_be_read_are_rejected() -> None:
    swapped = np.array(WORDS).dtype.newbyteorder()
    for column in (np.array(WORDS).astype(swapped), np.ma.array(["a", "b"], mask=[0, 1])):
        filter = BloomFilter(100)
        with pytest.raises(NotImplementedError, match="format"):
            filter.add_all(memoryview(column))
        assert len(filter) == 0


def test_columns_that_are_not_unicode_are_rejected() -> None:
    column = np.array([0x61, 0x110000], np.uint32).view("U1")
    filter = BloomFilter(10)
    with pytest.raises(ValueError, match="the item at index 1 is not valid Unicode"):
        filter.add_all(column)
    assert "a" in filter


WITHOUT_PYARROW = """
import sys
sys.modules["pyarrow"] = None
import numpy as np
import pandas as pd
from oxbloom import BloomFilter

for values in (
    pd.Series(["a", "b"]), pd.Series(["a", "b"], dtype=object), pd.Series(["a", "b"], dtype="category"),
    pd.Series(["a", "b"], dtype="string"), pd.Index(["a", "b"]), pd.Series(["a", "no", "b"])[::2],
):
    filter = BloomFilter(10, 1e-9)
    df = pd.DataFrame({"url": values.to_numpy()})
    answers = filter.add_all(values)
    assert isinstance(answers, np.ndarray) and answers.dtype == bool, answers
    assert answers.tolist() == [False, False] and len(filter) == 2
    assert len(df[~filter.add_all(values)]) == 0
assert BloomFilter(10).add_all(pd.Series([])).tolist() == []
for values, word in ((pd.Series(["a", None]), "index 1 must be str or bytes, not a missing value"),
                     (pd.Series([1]), "index 0 must be str or bytes, not int"),
                     (pd.DataFrame({"a": ["b"]}), "pass one column")):
    try:
        BloomFilter(10).add_all(values)
    except TypeError as error:
        assert word in str(error), error
    else:
        raise AssertionError(values)
"""

WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
import polars as pl
from oxbloom import BloomFilter

assert BloomFilter(10).add_all(pl.Series(["a", "a"])) == [False, True]
assert BloomFilter(10, counting=True).count_all(pl.Series(["a"])) == [0]
"""


@pytest.mark.parametrize("program", [WITHOUT_PYARROW, WITHOUT_NUMPY], ids=["pyarrow", "NumPy"])
def test_neither_pyarrow_nor_numpy_is_needed(program: str) -> None:
    run_code(program)
