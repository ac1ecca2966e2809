"""Memory is used again when, and only when, nobody looks at it any more."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.io import source as reused_memory
from fermion.io.source import KEPT_BYTES_MAX, KEPT_BYTES_MIN, KeptMemory, LocalSource

SIZE = 2 * KEPT_BYTES_MIN


def address(piece) -> int:
    return np.frombuffer(piece, np.uint8).ctypes.data


def test_memory_is_lent_again_once_it_was_let_go():
    memory = KeptMemory()
    piece = memory.borrow(SIZE)
    first = address(piece)
    assert len(piece) == SIZE
    del piece
    again = memory.borrow(SIZE - 5)
    assert (address(again), len(again)) == (first, SIZE - 5)


@pytest.mark.parametrize(
    "held",
    [
        lambda piece: piece,
        lambda piece: piece[7:9],
        lambda piece: piece.data,
        lambda piece: memoryview(piece).toreadonly()[5:],
        lambda piece: np.frombuffer(piece.data[8:16], np.int64),
        lambda piece: pa.py_buffer(piece).slice(3),
        lambda piece: pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(piece[:8])]),
    ],
)
def test_memory_that_anything_looks_at_is_not_lent(held):
    """A view of any kind is enough, without the array itself."""
    memory = KeptMemory()
    piece = memory.borrow(SIZE)
    first, view = address(piece), held(piece)
    del piece
    others = [memory.borrow(SIZE) for _ in range(3)]
    assert len({first, *map(address, others)}) == 4
    del view
    assert address(memory.borrow(SIZE)) == first


def test_small_pieces_and_more_than_the_limit_are_not_kept():
    memory = KeptMemory()
    held = [memory.borrow(KEPT_BYTES_MAX // 4) for _ in range(6)]
    assert sum(map(len, memory._pieces)) == KEPT_BYTES_MAX
    held.append(memory.borrow(KEPT_BYTES_MIN - 1))
    assert len(memory._pieces) == 4
    memory.clear()
    assert not memory._pieces
    assert len({address(piece) for piece in held}) == 7


def test_reads_of_a_file_share_memory_and_a_closed_file_keeps_none(tmp_path):
    path = tmp_path / "bytes"
    content = np.random.default_rng(1).integers(0, 256, 4 * SIZE, np.uint8)
    path.write_bytes(content.tobytes())
    source = LocalSource(path)
    addresses = set()
    for start in range(4):
        part = source.read(start * SIZE, SIZE)
        assert part.readonly
        assert part == content[start * SIZE : (start + 1) * SIZE].data
        addresses.add(address(part))
        del part
    assert len(addresses) == 1
    kept = source.read(5, SIZE)
    source.close()
    assert kept == content[5 : 5 + SIZE].data
    assert not source._memory._pieces


def test_results_that_are_views_of_what_was_read_stay_as_they_are(tmp_path, monkeypatch):
    """Plain aligned columns, each read several times over, whose pages are lent to the results."""
    monkeypatch.setattr(reused_memory, "KEPT_BYTES_MIN", 1024)
    random = np.random.default_rng(3)
    table = pa.table({name: random.integers(0, 2**62, 20_000) for name in "abcd"})
    options = {"align": 64, "encodings": dict.fromkeys("abcd", "plain"), "stripe_rows": 5_000}
    path = tmp_path / "plain.fmn"
    fermion.write_table(table, path, durable=False, **options)
    with fermion.open(path) as file:
        found = [file.read([name]) for name in "abcdabcd"]
        assert file.read().equals(table)
    for name, part in zip("abcdabcd", found, strict=True):
        assert part.equals(table.select([name]))


HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.skipif(
    not HUGE_PAGES.exists() or "[never]" in HUGE_PAGES.read_text(),
    reason="this kernel has no huge pages for memory that asks for them",
)
def test_reads_of_more_than_what_is_kept_cause_few_page_faults(tmp_path):
    """Counted by the system, which clears 4 KiB at each of them, or 2 MiB of huge pages."""
    columns = {
        f"f{place}": np.random.default_rng(place).normal(size=700_000) for place in range(15)
    }
    path = tmp_path / "a.fermion"
    fermion.write_table(pa.table(columns), path, durable=False)
    stored = path.stat().st_size
    assert stored > 2 * KEPT_BYTES_MAX
    faults = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        with fermion.open(path) as file:
            file.read()
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert min(faults[1:]) < stored / 4096 / 2


def test_results_take_the_memory_that_results_before_them_let_go(tmp_path):
    """Page faults, counted by the system: new memory would cause one for each of its pages."""
    values = np.random.default_rng(5).normal(size=2_000_000)
    table = pa.table({"x": values, "t": pa.array([f"text {n}" for n in range(200_000)] * 10)})
    fermion.write_table(table, tmp_path / "a.fermion", durable=False)
    faults = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        with fermion.open(tmp_path / "a.fermion") as file:
            file.read()
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert min(faults[1:]) < table.nbytes / resource.getpagesize() / 8
