"""File names: what they are, and that none leaves the table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table.errors import UnsafeStorage
from fermion_table.storage import paths


def test_names_are_those_of_the_specification() -> None:
    assert paths.snapshot_path(7) == "snapshot/00000000000000000007.json"
    assert paths.snapshot_path(7, "dev") == "branch/dev/snapshot/00000000000000000007.json"
    assert paths.latest_hint_path() == "snapshot/LATEST"
    assert paths.tag_path("v1.0") == "tags/v1.0.json"
    assert paths.schema_path(3, "ab") == "schema/3-ab.json"
    assert paths.schema_path(3, "ab", compressed=True) == "schema/3-ab.json.zst"
    assert paths.manifest_path("ab") == "manifest/ab.json"
    assert paths.manifest_index_path("ab") == "manifest/ab.index.fermion"
    assert paths.deletion_path("ab") == "deletion/ab.dv"
    assert paths.data_path("ab") == "data/ab.fermion"
    assert (
        paths.data_path("ab", [("day", "2024-01-01"), ("k", None)], bucket=3)
        == "data/day=2024-01-01/k=__HIVE_DEFAULT_PARTITION__/bucket-3/ab.fermion"
    )


@given(st.integers(0, paths.SNAPSHOT_ID_MAX))
def test_a_slot_gives_back_its_id_and_sorts_by_it(snapshot_id: int) -> None:
    name = paths.snapshot_path(snapshot_id).rsplit("/", 1)[-1]
    assert paths.snapshot_id_of(name) == snapshot_id
    assert len(name) == paths.SNAPSHOT_ID_DIGITS + len(".json")


@pytest.mark.parametrize(
    "name", ["LATEST", "7.json", "00000000000000000007.json.tmp", "99999999999999999999.json", ""]
)
def test_other_files_are_no_slots(name: str) -> None:
    assert paths.snapshot_id_of(name) is None


@pytest.mark.parametrize("snapshot_id", [-1, paths.SNAPSHOT_ID_MAX + 1])
def test_an_impossible_id_is_refused(snapshot_id: int) -> None:
    with pytest.raises(InvalidArgumentError, match="snapshot id"):
        paths.snapshot_path(snapshot_id)


@given(
    st.lists(st.tuples(st.text(max_size=300), st.none() | st.text(max_size=300)), max_size=3),
    st.none() | st.integers(0, 1000),
)
def test_no_partition_leaves_the_table(
    partition: list[tuple[str, str | None]], bucket: int | None
) -> None:
    path = paths.data_path("ab", partition, bucket)
    segments = path.split("/")
    assert segments[0] == "data"
    assert segments[-1] == "ab.fermion"
    assert len(segments) == 2 + len(partition) + (bucket is not None)
    assert all(len(segment.encode()) <= 255 for segment in segments)
    assert path.isascii()


@given(st.text(max_size=300), st.text(max_size=300))
def test_different_values_have_different_directories(one: str, other: str) -> None:
    if one != other:
        assert paths.partition_segment("k", one) != paths.partition_segment("k", other)


@pytest.mark.parametrize("name", ["v1", "a.b-c_d", "2024-01", "x" * 128, "_a"])
def test_good_names_of_tags_and_branches(name: str) -> None:
    assert paths.check_name(name, "tag") == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "12", "a b", "é", "x" * 129, "-a", "a.tmp", "main~1"]
)
def test_bad_names_of_tags_and_branches(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="name"):
        paths.check_name(name, "tag")


@pytest.mark.parametrize("path", ["a", "a/b", "data/k=..x/..y", "a/...", "snapshot/LATEST"])
def test_paths_within_the_table_pass(path: str) -> None:
    assert paths.check_path(path) == path


@pytest.mark.parametrize(
    "path", ["", "/", "/a", "a/", "..", "a/..", "../a", "a/./b", "a\\b", "c:/a", "a\0b", "x" * 5000]
)
def test_paths_that_could_leave_the_table_do_not(path: str) -> None:
    with pytest.raises(UnsafeStorage):
        paths.check_path(path)


def test_a_temporary_name_is_told_from_an_object() -> None:
    name = paths.temporary_name("00000000000000000007.json", paths.unique_name())
    assert paths.is_temporary(name)
    assert paths.snapshot_id_of(name) is None
    assert not paths.is_temporary(paths.data_path("ab"))
