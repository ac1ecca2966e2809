"""Names of tables and namespaces: what is one, how it is quoted, and the directory it gets."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from fermion.errors import InvalidArgumentError
from fermion_table.catalog.names import (
    TableName,
    directory_of,
    is_directory_name,
    namespace_parts,
    parts_of,
    quoted,
    table_name,
)
from fermion_table.catalog.walking import number_of
from fermion_table.storage.paths import check_path

PARTS = st.text(min_size=1, max_size=40).filter(
    lambda text: text.isprintable() and text.encode("utf-8", "replace").decode() == text
)


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_a_name_reads_back_from_its_text(parts: list[str]) -> None:
    assert parts_of(quoted(parts)) == tuple(parts)


@given(PARTS, st.integers(0, 3))
def test_every_name_has_a_directory_of_its_own_within_the_warehouse(name: str, number: int) -> None:
    """Only the first directory of a good name for one is the name itself."""
    given_name = TableName(("db",), name)
    path = directory_of(given_name, number)
    assert check_path(path) == path
    assert (path == f"db/{name}") == (number == 0 and is_directory_name(name))
    assert number_of(given_name, path) == number
    assert path != directory_of(TableName(("db",), f"{name}x"), number)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ("a",)),
        ("a.b.c", ("a", "b", "c")),
        ("a.`b.c`", ("a", "b.c")),
        ("`a``b`", ("a`b",)),
        ("größe.日本 語", ("größe", "日本 語")),
        (("a", "b.c"), ("a", "b.c")),
        (["x"], ("x",)),
    ],
)
def test_parts_are_separated_by_dots_and_quoted_by_backticks(text, parts) -> None:
    name = table_name(text)
    assert (*name.namespace, name.name) == parts


@pytest.mark.parametrize(
    "text",
    ["", ".", "a.", ".a", "a..b", "`a", "a`b", "`a`b", "``", "a\nb", "x" * 256, (), ("a", ""),
     ".".join("a" * 17), "_catalog", "_catalog.tables", ".hidden.t", "a/b.t", "a:b.t", "a%b.t",
     "a*.t", "s3://b.t"],
)  # fmt: skip
def test_what_is_no_name_is_refused(text) -> None:
    with pytest.raises(InvalidArgumentError, match="name"):
        table_name(text)


@pytest.mark.parametrize("value", [None, 7, b"db.t", ["a", 7], {"a"}])
def test_a_name_of_another_type_is_refused(value) -> None:
    with pytest.raises(TypeError, match="name"):
        table_name(value)


def test_a_namespace_may_be_a_table_s_name_elsewhere() -> None:
    assert namespace_parts("a._catalog") == ("a", "_catalog")
    assert table_name("a._catalog").name == "_catalog"
    with pytest.raises(InvalidArgumentError, match="catalog lies there"):
        namespace_parts("_catalog.x")
