"""Metadata objects that a storage sends wrong are read again, once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fermion import col
from fermion_table import CorruptMetadata, Table
from fermion_table.storage import cache as metadata_cache
from fermion_table.storage.json_codec import content_hash, read_decoded, read_hashed
from fermion_table.storage.local import LocalStore


class Spoiler:
    """Sends the objects below a directory wrong, each so many times, and counts reads of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory, self.times = "", 0
        self.reads: dict[str, int] = {}
        read = LocalStore.read

        def spoiled(store: LocalStore, path: str, *limit: int) -> bytes:
            data = bytearray(read(store, path, *limit))
            if self.directory and path.startswith(self.directory) and not path.endswith("LATEST"):
                self.reads[path] = self.reads.get(path, 0) + 1
                if self.reads[path] <= self.times:
                    data[len(data) // 2] ^= 0x40
            return bytes(data)

        monkeypatch.setattr(LocalStore, "read", spoiled)

    def start(self, directory: str, times: int) -> None:
        self.directory, self.times = directory, times
        self.reads.clear()
        metadata_cache.shared_cache.clear()


@pytest.fixture
def spoiler(monkeypatch: pytest.MonkeyPatch) -> Spoiler:
    return Spoiler(monkeypatch)


@pytest.fixture
def location(tmp_path: Path) -> str:
    table = Table.create(tmp_path / "t", pa.schema([("n", pa.int64())]))
    for start in range(0, 30, 10):
        table.append(pa.table({"n": range(start, start + 10)}))
    table.delete(col("n") == 4)
    table.tags.create("kept")
    return str(tmp_path / "t")


def values(location: str) -> list[int]:
    table = Table.open(location)
    return sorted(table.scan().to_arrow()["n"].to_pylist())


@pytest.mark.parametrize("directory", ["snapshot/", "schema/"])
def test_a_metadata_object_that_is_sent_wrong_once_is_read_once_more(
    location: str, spoiler: Spoiler, directory: str
) -> None:
    """Each object is wrong at its first read, and then, in another opening, at its second too."""
    spoiler.start(directory, 0)
    expected, clean = values(location), dict(spoiler.reads)
    assert clean
    spoiler.start(directory, 1)
    assert values(location) == expected
    assert spoiler.reads == {path: count + 1 for path, count in clean.items()}
    spoiler.start(directory, 2)
    with pytest.raises(CorruptMetadata):
        values(location)
    assert max(spoiler.reads.values()) >= 2  # what is told of the error may read once more


def test_tags_that_are_sent_wrong_are_read_once_more(location: str, spoiler: Spoiler) -> None:
    spoiler.start("tags/", 1)
    assert Table.open(location, version="kept").scan().to_arrow().num_rows == 29
    spoiler.start("tags/", 9)
    with pytest.raises(CorruptMetadata):
        Table.open(location, version="kept")
    assert set(spoiler.reads.values()) == {2}


@pytest.mark.parametrize("times", [1, 9])
def test_verifying_reads_once_more(location: str, spoiler: Spoiler, times: int) -> None:
    """What is wrong once is no problem of the table."""
    table = Table.open(location)
    spoiler.start("s", times)
    assert table.verify().ok == (times == 1)


class Objects:
    """A store of one object, whose readings are given."""

    def __init__(self, *readings: bytes) -> None:
        self.readings = list(readings)

    def read(self, path: str, *limit: int) -> bytes:
        return self.readings.pop(0)


def test_what_has_its_hash_is_read_once() -> None:
    store = Objects(b"right", b"other")
    assert read_hashed(store, "x", content_hash(b"right")) == b"right"  # type: ignore[arg-type]
    assert store.readings == [b"other"]
    store = Objects(b"wrong", b"right", b"other")
    assert read_hashed(store, "x", content_hash(b"right")) == b"right"  # type: ignore[arg-type]
    assert store.readings == [b"other"]


def test_what_is_corrupt_twice_is_not_read_a_third_time() -> None:
    def refuse(data: bytes) -> None:
        raise CorruptMetadata("x", "right", repr(data))

    store = Objects(b"1", b"2", b"3")
    with pytest.raises(CorruptMetadata, match="2"):
        read_decoded(store, "x", refuse)  # type: ignore[arg-type]
    assert store.readings == [b"3"]


@pytest.mark.parametrize("directory", ["snapshot/", "schema/"])
def test_opening_a_table_reads_a_corrupt_object_twice(
    location: str, spoiler: Spoiler, directory: str
) -> None:
    """The search for a snapshot that opens does not read it once more."""
    spoiler.start(directory, times=1000)
    with pytest.raises(CorruptMetadata):
        Table.open(location)
    assert spoiler.reads
    assert set(spoiler.reads.values()) == {2}
