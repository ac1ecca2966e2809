"""Pages of each tree of encodings, flipped and cut at every byte and read in every way.

The files stay open while bytes of their pages change: what is read is what lies there then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import ReadOptions, kernels
from fermion.errors import FermionError
from fermion.layout import FULL_CHUNK_DESC, NODE_HEADER, PAGE_HEADER, PAGE_META
from fermion.reading import many_pages, stripe
from tests.kit.equality import assert_logically_equal, is_logically_equal
from tests.kit.files.encoded_columns import ENCODED, trees_of
from tests.kit.files.file_anatomy import Anatomy, put, repair
from tests.kit.files.mutations import check_arrow, memory_limit
from tests.kit.read_strategies import only_general

OPTIONS = ReadOptions(threads=1, use_statistics=False)
CODES = OPTIONS.with_overrides({"keep_dictionaries": True})
MAPPED = OPTIONS.with_overrides({"memory_map": True})
START_BYTES, END_BYTES, STRIDE = 40, 8, 29
"""In a short run every byte at the start and the end of a page changes, and these in between."""
CHECKED_STRIDE = 7
BATCH_ROWS = 300
TAKES = {"take", "take of many"}

PAGED, FLAT = {"decode_pages", "pick_pages", "match_pages"}, {"decode_flat", "pick_flat"}
KERNELS: dict[str, frozenset[str]] = {
    name: frozenset(kernels_of.split())
    for names, kernels_of in {
        "packed_in_one_page codes_in_one_page": "decode_flat pick_flat",
        "packed_in_a_small_page pcodec_in_a_small_page words_in_one_page bytes": "pick_flat",
        "words_and_nulls symbols_in_one_page texts_in_one_page": "pick_flat",
        "symbols texts plain_texts": "decode_pages pick_pages",
        "words_of_all_stripes": "pick_pages",
        "flags numbers_and_nulls": "",
    }.items()
    for name in names.split()
}
"""Those that read a column; `PAGED` where none are named."""

Way = Callable[[fermion.FermionFile], pa.Table]


def ways_of(name: str) -> dict[str, Way]:
    """The ways to read a file of a column, by what they do."""
    condition = ENCODED[name].condition
    rows = ENCODED[name].table().num_rows
    few = np.array([0, rows // 3, rows // 3 + 1, rows - 1])
    part = rows // 4, rows * 2 // 3

    def in_runs(file: fermion.FermionFile) -> pa.Table:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(many_pages, "RUN_ROWS_MIN", 1)
            return file.read(rows=part)

    def tested_encoded(file: fermion.FermionFile) -> pa.Table:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stripe, "TOGETHER_COLUMNS_MAX", 0)
            return file.read(filter=condition)

    def counted(file: fermion.FermionFile) -> pa.Table:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stripe, "TOGETHER_COLUMNS_MAX", 0)
            return pa.table({"count": [file.count(condition)]})

    def verified(file: fermion.FermionFile) -> pa.Table:
        return file.read() if file.verify().ok else pa.table({})

    return {
        "all": lambda file: file.read(),
        "filter": tested_encoded,
        "take": lambda file: file.take(few),
        "filter of a small stripe": lambda file: file.read(filter=condition),
        "slice": lambda file: file.read(rows=part),
        "slice of whole pages": in_runs,
        "count": counted,
        "take of many": lambda file: file.take(np.arange(0, rows, 3)),
        "batches": lambda file: pa.Table.from_batches(
            file.iter_batches(batch_size=BATCH_ROWS), schema=file.schema
        ),
        "verify": verified,
    }


class OpenFile:
    """Files of one column that are open, in memory and mapped, over bytes that change."""

    def __init__(self, name: str, checksum: str, path: Path, stack: ExitStack) -> None:
        self.stored = ENCODED[name].stored(checksum=checksum)
        self.ways = ways_of(name)
        path.write_bytes(self.stored)
        self._written = stack.enter_context(path.open("r+b", buffering=0))
        self.data = bytearray(self.stored)
        end = max(offset + length for offset, length in pages_of(name, checksum))
        self._prefetch = {"prefetch_bytes": len(self.stored) - end}  # nothing of a page is held
        self.file = stack.enter_context(self._open(self.data, OPTIONS))
        self.codes = stack.enter_context(self._open(self.data, CODES))
        self.mapped = stack.enter_context(self._open(path, MAPPED))
        self.expected = {way: read(self.file) for way, read in self.ways.items()}
        self.expected_codes = self.codes.read()

    def _open(self, place: bytearray | Path, options: ReadOptions) -> fermion.FermionFile:
        return fermion.open(place, options=options.with_overrides(self._prefetch))

    @contextmanager
    def flipped(self, offset: int, mask: int, *, mapped: bool = False) -> Iterator[None]:
        """With some bits of a byte changed; in the file that is mapped only if it is to be read."""
        self._flip(offset, mask, mapped)
        try:
            yield
        finally:
            self._flip(offset, mask, mapped)

    def _flip(self, offset: int, mask: int, mapped: bool) -> None:
        self.data[offset] ^= mask
        if mapped:
            self._written.seek(offset)
            self._written.write(self.data[offset : offset + 1])


@contextmanager
def opened(name: str, checksum: str, folder: Path) -> Iterator[OpenFile]:
    with ExitStack() as stack:
        yield OpenFile(name, checksum, folder / "x.fermion", stack)


@cache
def pages_of(name: str, checksum: str) -> list[tuple[int, int]]:
    """Where pages lie, without dictionaries of all stripes: a file reads those once."""
    found = Anatomy(ENCODED[name].stored(checksum=checksum))
    shared = {(offset, length) for _, offset, length in found.records}
    return [place for place in found.pages if place not in shared]


def outcome(way: Way, file: fermion.FermionFile) -> pa.Table | FermionError:
    try:
        found = way(file)
    except FermionError as error:
        return error
    check_arrow(found)
    return found


def is_same(found: pa.Table, expected: pa.Table) -> bool:
    return found.equals(expected) or is_logically_equal(found, expected)


@pytest.mark.parametrize("name", ENCODED)
def test_the_columns_are_stored_as_they_are_named(name):
    """And read right in every way."""
    column = ENCODED[name]
    stored = column.stored()
    assert trees_of(stored) == column.trees
    whole = column.table()
    with fermion.open(stored) as file:
        found = {way: read(file) for way, read in ways_of(name).items()}
        with only_general():
            for way, read in ways_of(name).items():
                assert_logically_equal(found[way], read(file))
    for way in ("all", "batches", "verify"):
        assert_logically_equal(found[way], whole)
    assert 0 < found["filter"].num_rows <= whole.num_rows
    assert found["count"]["count"].to_pylist() == [found["filter"].num_rows]
    assert_logically_equal(found["filter"], found["filter of a small stripe"])


@pytest.mark.parametrize("name", ENCODED)
def test_the_kernels_over_pages_read_these_columns(name: str, monkeypatch: pytest.MonkeyPatch):
    """Kernels that give an answer, instead of leaving the column to the general way."""
    answered = set()

    def counted(kernel: str):
        call = getattr(kernels, kernel)

        def asked(*arguments):
            result = call(*arguments)
            if kernel == "pick_flat":
                is_known = bool(np.all(result.fine))
            elif kernel == "decode_flat":
                is_known = None not in result
            else:
                is_known = result is not None and result is not False
            answered.update([kernel] if is_known else [])
            return result

        return asked

    for kernel in PAGED | FLAT:
        monkeypatch.setattr(kernels, kernel, counted(kernel))
    with fermion.open(ENCODED[name].stored(), options=OPTIONS) as file:
        for read in ways_of(name).values():
            read(file)
    assert answered >= KERNELS.get(name, PAGED)


@pytest.mark.long
def test_a_flip_of_a_page_is_noticed_in_every_way(tmp_path: Path):
    """Right rows or an error; where all rows are read, an error. Ways take turns."""
    with memory_limit():
        for name in ENCODED:
            with opened(name, "crc32c", tmp_path) as found:
                flip_under_checksums(name, found)


def flip_under_checksums(name: str, found: OpenFile) -> None:
    turn = 0
    for start, length in pages_of(name, "crc32c"):
        for offset in range(start, start + length, CHECKED_STRIDE):
            way, read = list(found.ways.items())[turn % len(found.ways)]
            is_mapped = turn % 7 == 0
            with found.flipped(offset, 0xFF if offset % 2 else 1, mapped=is_mapped):
                result = outcome(read, found.mapped if is_mapped else found.file)
                in_codes = outcome(found.ways["all"], found.codes) if turn % 5 == 0 else None
            what = f"{name}: byte {offset - start} of a page, {way}"
            if isinstance(result, pa.Table):
                assert way != "all", what
                assert not result.num_columns or is_same(result, found.expected[way]), what
            assert not isinstance(in_codes, pa.Table), what
            turn += 1


@pytest.mark.long
def test_damaged_pages_without_checksums_are_read_alike_both_ways(tmp_path: Path):
    """With the kernels over pages and without them: the same rows, or an error in the same words.

    Nothing but the checks of the encodings themselves stands between damage and memory.
    """
    with memory_limit():
        for name in ENCODED:
            with opened(name, "none", tmp_path) as found:
                turn = 0
                for start, length in pages_of(name, "none"):
                    for offset in in_a_short_run(start, length):
                        way = list(found.ways)[turn % len(found.ways)]
                        with found.flipped(offset, 0xFF if offset % 3 else 1 << offset % 8):
                            what, is_take = f"{name}: {offset - start}, {way}", way in TAKES
                            compare(found.ways[way], found.file, what, is_take=is_take)
                        turn += 1


def in_a_short_run(start: int, length: int) -> list[int]:
    return [
        start + at
        for at in range(length)
        if at < START_BYTES or at >= length - END_BYTES or at % STRIDE == 0
    ]


def compare(way: Way, file: fermion.FermionFile, what: str, *, is_take: bool) -> None:
    """``is_take``: where rows are picked, damage that only other rows show need not be noticed."""
    result = outcome(way, file)
    with only_general():
        expected = outcome(way, file)
    if isinstance(result, pa.Table) and isinstance(expected, pa.Table):
        assert is_same(result, expected) or has_impossible_values(file), what
    elif not (is_take and isinstance(result, pa.Table)):
        assert (type(result), str(result)) == (type(expected), str(expected)), what


def has_impossible_values(file: fermion.FermionFile) -> bool:
    """Decimals with more digits than their type has: a comparison may say anything of them."""
    try:
        file.read().validate(full=True)
    except pa.ArrowInvalid as error:
        return "precision" in str(error)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODED)
def test_every_flip_of_a_page_is_read_alike_both_ways(name: str, tmp_path: Path):
    """Every byte, a bit of it and all of them, in every way."""
    with memory_limit(), opened(name, "none", tmp_path) as found:
        for start, length in pages_of(name, "none"):
            for offset in range(start, start + length):
                for mask in (1 << offset % 8, 0xFF):
                    with found.flipped(offset, mask):
                        for way, read in found.ways.items():
                            what = f"{name}: {offset - start}, {mask}, {way}"
                            compare(read, found.file, what, is_take=way in TAKES)


@pytest.mark.long
@pytest.mark.parametrize("stride", [17, pytest.param(1, marks=pytest.mark.slow)])
def test_pages_cut_at_any_length_are_read_alike_both_ways(stride: int):
    """A page ends too soon, and says so or not; checksums are right, and lengths in metadata."""
    with memory_limit():
        for name, column in ENCODED.items():
            stored, ways = column.stored(), list(ways_of(name).items())
            turn = 0
            for place in first_and_last(stored):
                for length in range(0, place.length, stride):
                    for with_root in (False, True):
                        way, read = ways[turn % len(ways)]
                        turn += 1
                        damaged = place.cut(stored, length, with_root=with_root)
                        try:
                            file = fermion.open(damaged, options=OPTIONS)
                        except FermionError:
                            continue
                        with file:
                            what = f"{name}: cut to {length}, {way}"
                            compare(read, file, what, is_take=way in TAKES)


@dataclass(frozen=True)
class PagePlace:
    """A page, and the structs that say how long it is.

    Attributes
    ----------
    chunk, meta
        Offsets of its FULL_CHUNK_DESC and its PAGE_META; None for the only page of a chunk.
    is_first
        Whether it is the first of several pages: it then ends where it did, and starts later.
    """

    offset: int
    length: int
    chunk: int
    chunk_length: int
    meta: int | None
    is_first: bool

    def cut(self, stored: bytes, length: int, *, with_root: bool) -> bytearray:
        """The file with the page cut; ``with_root``: its root node says that it ends there."""
        data, less = bytearray(stored), self.length - length
        start = self.offset + less if self.is_first else self.offset
        data[start : start + length] = stored[self.offset : self.offset + length]
        put(data, self.chunk, start if self.is_first else self._chunk_offset(stored), 8)
        put(data, self.chunk + 8, self.chunk_length - less)
        if self.meta is not None:
            put(data, self.meta, length)
        inside = length - PAGE_HEADER.itemsize - NODE_HEADER.itemsize
        if with_root and inside >= 0 and not data[start + 1]:
            put(data, start + 8, length - PAGE_HEADER.itemsize)
            put(data, start + PAGE_HEADER.itemsize + 4, inside)
        repair(data)
        return data

    def _chunk_offset(self, stored: bytes) -> int:
        return int.from_bytes(stored[self.chunk : self.chunk + 8], "little")


def first_and_last(stored: bytes) -> Iterator[PagePlace]:
    """The first and the last page of each chunk with a full descriptor."""
    found = Anatomy(stored)
    for place in found.places:
        if place.dtype != FULL_CHUNK_DESC:
            continue
        chunk = np.frombuffer(stored, FULL_CHUNK_DESC, 1, place.offset)[0]
        start, total, count = int(chunk["offset"]), int(chunk["length"]), int(chunk["numPages"])
        if count <= 1:
            yield PagePlace(start, total, place.offset, total, None, is_first=False)
            continue
        block = max(offset for offset, _ in found.blocks if offset < place.offset)
        at = block + int(chunk["pageMetaOffset"])
        sizes = np.frombuffer(stored, PAGE_META, count, at)["pageSize"].tolist()
        yield PagePlace(start, sizes[0], place.offset, total, at, is_first=True)
        last = at + PAGE_META.itemsize * (count - 1)
        yield PagePlace(
            start + total - sizes[-1], sizes[-1], place.offset, total, last, is_first=False
        )
