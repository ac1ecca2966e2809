"""Bytes that fail their checksum are read again, once: a storage may have sent them wrong."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import ChecksumError, ReadOptions, WriteOptions, col
from fermion.layout import SectionKind
from tests.kit.equality import assert_logically_equal

ROWS = 1200


class Storage:
    """A file in fsspec's memory, of which one byte is sent wrong so many times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = f"memory:///read-again-{uuid.uuid4().hex}/x.fermion"
        self.wrong_at, self.times_wrong, self.requests = -1, 0, 0
        self._system = fsspec.filesystem("memory")
        self._read = self._system.cat_file
        monkeypatch.setattr(self._system, "cat_file", self.cat_file)

    def cat_file(self, path: str, start: int = 0, end: int | None = None, **others: Any) -> bytes:
        data = bytearray(self._read(path, start=start, end=end, **others))
        self.requests += 1
        if self.times_wrong and start <= self.wrong_at < start + len(data):
            self.times_wrong -= 1
            data[self.wrong_at - start] ^= 0x40
        return bytes(data)

    def spoil(self, offset: int, times: int) -> None:
        """Send the byte at an offset wrong in the next requests for it."""
        self.wrong_at, self.times_wrong, self.requests = offset, times, 0


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    found = Storage(monkeypatch)
    yield found
    fsspec.filesystem("memory").rm(found.url.rpartition("/")[0], recursive=True)


def table_of_all() -> pa.Table:
    random = np.random.default_rng(3)
    columns: dict[str, Any] = {f"f{at}": random.random(ROWS) for at in range(30)}
    columns["n"] = pa.array([None if at % 5 == 0 else at for at in range(ROWS)])
    columns["s"] = [f"value {at % 700}" for at in range(ROWS)]
    columns["list"] = [[at, at + 1] for at in range(ROWS)]
    columns["struct"] = [{"a": at, "b": str(at)} for at in range(ROWS)]
    return pa.table(columns)


def page_of(file: fermion.FermionFile, name: str, page: int = 0) -> int:
    """An offset in the payload of a page of the column's last stream."""
    chunk = file.column(name).streams[-1].chunks[0]
    return chunk.pages[page].offset + 20


def block_of(file: fermion.FermionFile, name: str) -> int:
    return int(file.index.cit.ranges([file.index.find(name)])[0, 0]) + 12


def everything(file: fermion.FermionFile) -> pa.Table:
    return file.read()


def one_column(name: str) -> Callable[[fermion.FermionFile], pa.Table]:
    return lambda file: file.read([name])


def ten_rows(file: fermion.FermionFile) -> pa.Table:
    return file.take([3, 700, 701, 1199], columns=["n", "s", "list"])


def some_rows(file: fermion.FermionFile) -> pa.Table:
    return file.read(["f1", "n"], filter=col("n") > 1190)


Place = Callable[[fermion.FermionFile], int]
READS: dict[str, tuple[Place, Callable[[fermion.FermionFile], pa.Table]]] = {
    "page of a flat column, among many": (lambda file: page_of(file, "f3"), everything),
    "page of a flat column": (lambda file: page_of(file, "f3"), one_column("f3")),
    "page with nulls": (lambda file: page_of(file, "n"), one_column("n")),
    "page of strings": (lambda file: page_of(file, "s"), one_column("s")),
    "page of a list": (lambda file: page_of(file, "list"), one_column("list")),
    "page of a struct": (lambda file: page_of(file, "struct"), everything),
    "page of single rows": (lambda file: page_of(file, "n"), ten_rows),
    "page of single strings": (lambda file: page_of(file, "s"), ten_rows),
    "page of rows of lists": (lambda file: page_of(file, "list"), ten_rows),
    "page of a filter": (lambda file: page_of(file, "n", 2), some_rows),
    "CMB among many": (lambda file: block_of(file, "f3"), everything),
    "CMB": (lambda file: block_of(file, "struct"), one_column("struct")),
    "CMB of a filter": (lambda file: block_of(file, "n"), some_rows),
    "schema": (lambda file: file.index.footer.schema_offset + 5, everything),
    "stripe table": (
        lambda file: file.index.sections[SectionKind.STRIPE_TABLE][0] + 1,
        one_column("f3"),
    ),
    "section directory": (lambda file: file.index.footer.sections_offset + 3, everything),
    "footer": (lambda file: file.index.footer.file_length - 250, everything),
}


@pytest.mark.parametrize("prefetch", [None, 256], ids=["all held", "nothing held"])
@pytest.mark.parametrize("name", READS)
def test_what_fails_its_checksum_is_read_once_more(
    storage: Storage, name: str, prefetch: int | None
) -> None:
    """Sent wrong once: the values, for one request more. Twice: the error, for as many."""
    place, read = READS[name]
    options = ReadOptions(prefetch_bytes=prefetch, threads=2)
    written = WriteOptions(page_rows_max=400, profile="fast")
    fermion.write_table(table_of_all(), storage.url, options=written)

    def run() -> pa.Table:
        with fermion.open(storage.url, options=options) as file:
            return read(file)

    storage.spoil(-1, 0)
    expected, requests = run(), storage.requests
    with fermion.open(storage.url) as file:
        offset = place(file)
    storage.spoil(offset, 1)
    assert_logically_equal(run(), expected)
    assert storage.times_wrong == 0
    assert storage.requests == requests + 1
    storage.spoil(offset, 2)
    with pytest.raises(ChecksumError):
        run()
    assert storage.times_wrong == 0
    assert storage.requests <= requests + 1
