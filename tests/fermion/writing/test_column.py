"""Options that name many columns: each name is compared a few times, not with every other one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import fermion
from fermion.errors import InvalidArgumentError
from fermion.metadata.sort_order import sort_ordinals
from fermion.options import SortKey
from fermion.writing.column import physical_order
from tests.kit.counting import CountedName

COLUMNS = 400
MOST = 40 * COLUMNS
"""Comparing each with each would take 80,000 for each of the options."""
NAMES = [CountedName(f"c{number}") for number in range(COLUMNS)]
TABLE = pa.Table.from_arrays([pa.array([1, 2, 3])] * COLUMNS, names=[str(name) for name in NAMES])


@pytest.mark.parametrize(
    "options",
    [
        {"bloom_filters": NAMES},
        {"page_bloom_filters": NAMES},
        {"summaries": NAMES},
        {"global_dictionaries": NAMES},
        {"statistics": NAMES},
        {"encodings": dict.fromkeys(NAMES, "plain")},
        {"column_order": NAMES[::-1]},
        {"sorted_by": NAMES},
        {"column_page_bytes": dict.fromkeys(NAMES, 4096)},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_that_name_many_columns_compare_each_name_a_few_times(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    CountedName.compared = 0
    fermion.write_table(TABLE, tmp_path / "f", options=fermion.WriteOptions(**options))
    assert CountedName.compared < MOST
    with fermion.open(tmp_path / "f") as file:
        assert file.read().equals(TABLE)


def test_names_of_options_stay_tuples() -> None:
    options = fermion.WriteOptions(bloom_filters=["a", "b"], sorted_by=[SortKey("a"), "b"])
    assert options.bloom_filters == ("a", "b")
    assert repr(options.bloom_filters) == "('a', 'b')"
    assert "b" in options.bloom_filters
    assert "c" not in options.bloom_filters
    assert SortKey("a") in options.sorted_by


def test_a_name_that_options_have_twice_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="column_order names column 'c1' twice"):
        physical_order(["c0", "c1"], ["c1", "c0", "c1"], "f")
    with pytest.raises(InvalidArgumentError, match="column_order names column 'x', which"):
        physical_order(["c0", "c1"], ["c1", "x"], "f")
    assert list(physical_order(["a", "b", "a", "c"], ["a"], "f")) == [0, 2, 1, 3]
    with pytest.raises(InvalidArgumentError, match="column 'c1' comes twice"):
        sort_ordinals(["c0", "c1"], [SortKey("c1"), SortKey("c0"), SortKey("c1")], "f")
    for names, found in ((["a"], 0), (["a", "b", "b"], 2)):
        with pytest.raises(InvalidArgumentError, match=f"expected one column 'b', found {found}"):
            sort_ordinals(names, [SortKey("b")], "f")
    assert sort_ordinals(["a", "b"], [SortKey("b"), SortKey("a")], "f") == [1, 0]
