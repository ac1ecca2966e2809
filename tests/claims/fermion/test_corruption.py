"""Damaged files: our error or the right values, in bounded memory, without a crash or a hang."""

from __future__ import annotations

import decimal
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.columns.types import INT64, Bits
from fermion.errors import FermionError, InvalidFileError
from fermion.io import checksum
from fermion.layout import (
    FOOTER,
    FULL_CHUNK_DESC,
    NAME_INDEX_HEADER,
    NODE_HEADER,
    PAGE_HEADER,
    PAGE_META,
    SCHEMA_HEADER,
    SHAPE_BLOCK,
    STRIPE_META,
    TAIL_BLOCK_BYTES,
)
from fermion.metadata.cit import NameIndex, build_name_index
from fermion.metadata.schema_area import EXPANSION_FREE_BYTES, SchemaArea, build_schema_area
from fermion.options import WriteOptions
from fermion.pages import pages
from fermion.pages.pages import PageSlice, decode_pages, encode_chunk
from tests.kit.equality import assert_logically_equal
from tests.kit.files.feature import Feature
from tests.kit.files.features import FEATURES
from tests.kit.files.file_anatomy import Anatomy, repair, schema_area_of, unprotected, with_tail
from tests.kit.files.mutations import OPTIONS, memory_limit, original

# Features, and the columns of them that are enough for a short run (None: all).
CI_FEATURES: dict[str, list[str] | None] = {
    "floats": ["float", "double"],
    "booleans": None,
    "decimals": ["decimal128", "wide128"],
    "dictionaries": ["dictionary", "stored", "numbers"],
    "global_dictionaries": ["text"],
    "seed_examples": None,
    "structs": None,
    "maps": ["deep"],
    "shredded_maps": None,
    "shredded_batches": ["text"],
    "shredded_variants": None,
    "nulls": None,
    "null_slots_left_out": ["int", "text"],
    "no_rows": None,
    "pages_and_stripes": None,
    "batches": None,
    "batch_positions": None,
    "compact": None,
    "fsst": ["text"],
    "lz4": ["text", "number"],
    "bloom_filters": ["text", "money"],
    "page_bloom_filters": ["text", "flag"],
    "no_column_index": None,
    "changed_columns": None,
    "aligned": ["plain", "flag", "coded"],
    "checksum_crc32": None,
    "checksum_xxh3": None,
    "compressed_schema": None,
}
WHOLE = {"booleans", "structs", "nulls", "no_rows", "compact", "bloom_filters", "checksum_xxh3"}
"""Every byte of these is flipped in a short run; of the others, those that `sampled` takes."""
FLIP_STRIDE = 13
UNCHECKED = "checksum_none"  # nothing says that its pages are damaged
CI_CASES = 500
# Another thing than reading all is tried at every byte whose number is a multiple of this.
PROBE_STRIDE = 16
ZSTD_MAGIC = (0xFD2FB528).to_bytes(4, "little")

Probe = Callable[[fermion.FermionFile], None]


def probes_of(feature: Feature, data: bytes) -> list[Probe]:
    """Ways to read a file, each of which raises AssertionError for a wrong value."""

    def everything(file: fermion.FermionFile) -> None:
        assert_logically_equal(file.read(), feature.table)
        assert file.key_value_metadata == feature.metadata
        if feature.batches is not None:
            batch_columns(file)
        if "bloom_filters" in feature.options and not file.verify().ok:
            raise InvalidFileError  # nothing else looks at every filter

    def batch_columns(file: fermion.FermionFile) -> None:
        found = file.read(["index_in_batch"])["index_in_batch"].to_pylist()
        assert found == feature.index_in_batch()

    def verified(file: fermion.FermionFile) -> None:
        if file.verify().ok:
            everything(file)

    def some_rows(file: fermion.FermionFile) -> None:
        start, stop = feature.table.num_rows // 3, feature.table.num_rows // 2
        part = feature.table.slice(start, stop - start)
        assert_logically_equal(file.read(rows=(start, stop)), part)

    probes = [everything, verified, some_rows]
    with fermion.open(data) as sound:
        if feature.filter is not None:
            kept = sound.read(filter=feature.filter)
            probes.append(lambda file: filtered(file, feature.filter, kept))
        if feature.batches is not None:
            batch = sound.read_batch(1002)
            probes.append(lambda file: assert_logically_equal(file.read_batch(1002), batch))
    return probes


def filtered(file: fermion.FermionFile, condition: str | None, expected: pa.Table) -> None:
    assert_logically_equal(file.read(filter=condition), expected)
    assert file.count(condition) == expected.num_rows


def attempt(data: bytes | bytearray, probe: Probe) -> bool:
    """Whether the file reads right; False for an error of the package, anything else is raised."""
    try:
        with fermion.open(data, options=OPTIONS) as file:
            probe(file)
    except FermionError:
        return False
    return True


def sampled(stored: bytes) -> set[int]:
    """One byte of eight, both ends of every part, and what lies around them."""
    found = Anatomy(stored)
    parts = [*found.pages, *found.blocks, *found.regions, *(place for _, *place in found.records)]
    parts += [(place.offset, place.dtype.itemsize) for place in found.places]
    ends = {at for start, length in parts for at in (start - 1, start, start + length - 1)}
    return {*range(0, len(stored), FLIP_STRIDE), *ends, len(stored) - 1} & {*range(len(stored))}


def survivors(
    feature: Feature, masks: Callable[[int], Iterator[int]], offsets: set[int] | None = None
) -> set[int]:
    """Flip bytes of a feature's file (all) by their masks; the offsets where that did not show."""
    stored = feature.stored()
    everything, *others = probes_of(feature, stored)
    data, found = bytearray(stored), set()
    with memory_limit():
        for number, offset in enumerate(sorted(offsets or range(len(data)))):
            for mask in masks(offset):
                data[offset] ^= mask
                if attempt(data, everything):
                    found.add(offset)
                if number % PROBE_STRIDE == 0:
                    attempt(data, others[number // PROBE_STRIDE % len(others)])
                data[offset] ^= mask
    return found


@pytest.mark.parametrize("name", CI_FEATURES)
def test_a_flip_of_any_byte_is_noticed(name):
    """All bits of a byte, or its lowest one, in turn; only bytes that mean nothing may change."""
    feature, columns = FEATURES[name](), CI_FEATURES[name]
    if columns is not None:
        feature = feature.of(columns)
    stored = feature.stored()
    tried = {*range(len(stored))} if name in WHOLE else sampled(stored)
    found = survivors(feature, lambda offset: iter([0xFF if offset % 3 else 1]), tried)
    assert found == unprotected(stored) & tried


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FEATURES.keys() - {UNCHECKED}))
def test_every_flip_of_any_byte_is_noticed(name):
    feature = FEATURES[name]()
    masks = [0xFF, *(1 << bit for bit in range(8))]
    assert survivors(feature, lambda _: iter(masks)) == unprotected(feature.stored())
    print("soak:", json.dumps({"flips": len(masks) * len(feature.stored())}))


@pytest.mark.parametrize("name", sorted(FEATURES))
def test_a_file_cut_anywhere_or_with_a_byte_too_many_is_refused(name):
    stored = FEATURES[name]().stored()
    with memory_limit():
        for length in range(len(stored)):
            with pytest.raises(FermionError):
                fermion.open(memoryview(stored)[:length], options=OPTIONS)
        for extra in (b"\0", b"1", b"FERMION1"):
            with pytest.raises(FermionError):
                fermion.open(stored + extra, options=OPTIONS)


def test_damage_names_the_file_and_the_place(tmp_path: Path):
    path = tmp_path / "x.fermion"
    stored = bytearray(FEATURES["integers"]().stored())
    ((offset, _), *_) = Anatomy(stored).pages
    stored[offset + PAGE_HEADER.itemsize] ^= 1
    path.write_bytes(stored)
    with pytest.raises(fermion.ChecksumError, match=rf"x\.fermion: page at offset {offset}: "):
        fermion.read_table(path)


def test_damage_in_a_long_tail_is_noticed_by_those_who_read_there():
    """Tails are checked by block: a column reads right or not at all, and `verify` sees all."""
    columns = {f"column {i}": pa.nulls(1, pa.int8()) for i in range(20_000)}
    stored = Feature(pa.table({**columns, "last": [7]})).stored()
    data = bytearray(stored)
    footer = np.frombuffer(stored, FOOTER, 1, len(stored) - FOOTER.itemsize)[0]
    start, stop = int(footer["cmb_offset"] + footer["cmb_length"]), int(footer["sections_offset"])
    assert stop - start > 3 * TAIL_BLOCK_BYTES
    outcomes = set()
    for offset in range(start, stop, (stop - start) // 25):
        data[offset] ^= 1
        read = attempt(data, lambda file: assert_value(file.read(["last"]), 7))
        if read and True not in outcomes:
            with fermion.open(data, options=OPTIONS) as file:
                assert not file.verify().ok
        outcomes.add(read)
        data[offset] ^= 1
    assert outcomes == {True, False}


def assert_value(table: pa.Table, value: object) -> None:
    assert table.column(0).to_pylist() == [value]


def run_mutations(project_environment: dict[str, str], project: Path, count: int) -> None:
    """Run cases in a process of its own.

    `python -m tests.kit.files.mutations SEED 1` repeats one.
    """
    first = int(os.environ.get("FERMION_MUTATION_SEED") or random.SystemRandom().getrandbits(40))
    finished = subprocess.run(
        [sys.executable, "-m", "tests.kit.files.mutations", str(first), str(count)],
        cwd=project,
        env=project_environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = finished.stdout.splitlines()
    told = [line for line in lines if not line.startswith("seed ")]
    last = next((line for line in reversed(lines) if line.startswith("seed ")), "no case began")
    print(f"{count} cases from seed {first} on")
    assert finished.returncode == 0, "\n".join([f"last case: {last}", *told])


@pytest.mark.long
@pytest.mark.parametrize("count", [CI_CASES])
def test_damage_under_right_checksums_gives_our_error_or_values(
    project, project_environment, count
):
    """Fields, bytes, spans and types change, checksums are repaired: no crash, hang, or hunger."""
    run_mutations(project_environment, project, count)


def test_a_repaired_file_is_the_original():
    """The checksums that `repair` computes are those that the writer wrote."""
    for name in FEATURES:
        stored = FEATURES[name]().stored()
        data = bytearray(stored)
        repair(data)
        assert bytes(data) == stored
        assert_logically_equal(fermion.read_table(original(name)[1]), original(name)[0].table)


# Bugs that this file found, each under a name of its own.


def test_bug_search_without_end_for_a_name_cut_short():
    """A group was read again as a whole, also where the whole was the one name cut short."""
    index = bytearray(build_name_index(["abc"]))
    interval = NAME_INDEX_HEADER.fields["restartInterval"][1]
    index[interval] = 1
    index[20] = 0x0F  # 15 bytes and more, though 3 follow
    names = NameIndex(lambda at, size: memoryview(index)[at : at + size], len(index), 1, "x")
    for search in (names.all, lambda: names.find("abc")):
        with pytest.raises(InvalidFileError, match="cut short"):
            search()


def test_bug_unicode_error_of_a_nested_name():
    """Arrow keeps names undecoded until someone asks for them."""
    stored = Feature(pa.table({"s": [{"qqqq": 1}]})).stored()
    damaged = bytearray(with_tail(stored, schema_area_of(stored)))
    damaged[damaged.index(b"qqqq")] = 0xFF
    repair(damaged)
    with fermion.open(damaged) as file, pytest.raises(InvalidFileError, match="not UTF-8"):
        file.read()


def test_bug_unicode_error_of_a_time_zone():
    stored = Feature(pa.table({"t": pa.array([1], pa.timestamp("s", "qqqq"))})).stored()
    damaged = bytearray(with_tail(stored, schema_area_of(stored)))
    damaged[damaged.index(b"qqqq")] = 0xFF
    repair(damaged)
    with fermion.open(damaged) as file, pytest.raises(InvalidFileError, match="not UTF-8"):
        file.read()


def test_bug_unicode_error_of_the_metadata():
    """The JSON decoder raises Python's error for bytes that are not UTF-8, not its own."""
    stored = bytearray(Feature(pa.table({"a": [1]}), metadata={"qqqq": "value"}).stored())
    stored[stored.index(b"qqqq")] = 0xFF
    repair(stored)
    with fermion.open(stored) as file, pytest.raises(InvalidFileError, match="metadata"):
        _ = file.key_value_metadata


def test_bug_error_of_arrow_out_of_a_filter():
    """Arrow compares decimals only where they have as many digits as their type says."""
    values = pa.array([decimal.Decimal(1)] * 9, pa.decimal32(9, 0))
    stored = bytearray(Feature(pa.table({"d": values, "i": range(9)})).stored())
    (page, *_) = Anatomy(stored).pages
    at = page[0] + PAGE_HEADER.itemsize + NODE_HEADER.itemsize
    assert stored[at : at + 4] == b"\1\0\0\0"
    stored[at : at + 4] = (2**31 - 1).to_bytes(4, "little")
    repair(stored)
    options = OPTIONS.with_overrides({"use_statistics": False})
    with fermion.open(stored, options=options) as file, pytest.raises(InvalidFileError) as caught:
        file.read(filter="d > 0.5")
    assert "cannot be compared" in str(caught.value)


def test_bug_power_of_ten_for_a_decimal_of_any_scale():
    """Arrow lets a scale be any int32; ten to that power was computed."""
    table = pa.table({"d": pa.nulls(2, pa.decimal128(9, 2**30)), "i": [1, 2]})
    with fermion.open(Feature(table).stored()) as file:
        assert file.read().equals(table)
        with memory_limit(), pytest.raises(fermion.InvalidArgumentError, match="scale"):
            file.read(filter="d > 1")


def test_bug_memory_for_slots_that_a_page_only_claims():
    """One constant in 48 bytes could claim 2**32 - 1 slots, which were allocated."""
    options = WriteOptions()
    (page,) = encode_chunk(np.zeros(9, np.int64), INT64, np.array([0, 9]), options=options).pages
    slots = pages.PAGE_EXPANSION_FREE_BYTES // 8 + 1
    claim = bytearray(page)
    claim[4:8] = slots.to_bytes(4, "little")
    with pytest.raises(InvalidFileError, match="expected slots of at most"):
        decode_pages([PageSlice(claim, 16, slots, 0, slots)], INT64, checks=checksum.UNCHECKED)


@pytest.mark.parametrize("value", [-5, 1, 2**31, 2**40])
def test_bug_offsets_that_fall(value):
    """Where the pages of a list say their child slots start was taken for granted."""
    table = pa.table({"l": [[i] * (i % 3) for i in range(30)]})
    stored = Feature(table, {"page_rows_max": 10}).stored()
    places = [place.offset for place in Anatomy(stored).places if place.dtype == PAGE_META]
    assert len(places) == 6  # of the offsets and of the elements
    for place in places:
        for field in ("minVal", "maxVal"):
            damaged = bytearray(stored)
            at = place + PAGE_META.fields[field][1]
            damaged[at : at + 8] = value.to_bytes(8, "little", signed=True)
            repair(damaged)
            for start, stop in ((0, 30), (7, 23), (15, 16)):
                expected = table.slice(start, stop - start)
                with suppress(FermionError), fermion.open(damaged, options=OPTIONS) as file:
                    assert_logically_equal(file.read(rows=(start, stop)), expected)


@pytest.mark.parametrize("share", [0, 10], ids=["no nulls", "most null"])
def test_bug_pages_that_only_their_writer_took_for_small_enough(monkeypatch, share):
    """The limit of what a page expands to counts null slots, also those that are left out."""
    monkeypatch.setattr(pages, "PAGE_EXPANSION_FREE_BYTES", 1_000)
    monkeypatch.setattr(pages, "PAGE_EXPANSION_MAX", 4)
    values, valid = np.zeros(1_000, np.int64), np.full(1_000, not share)
    valid[:: share or 1] = True
    bits, cuts = Bits.pack(valid), np.array([0, 100, 1_000])
    chunk = encode_chunk(values, INT64, cuts, options=WriteOptions(), validity=bits)
    small, large = chunk.pages
    assert len(small) < 250
    assert len(large) * 4 >= 900 * 8
    slices = [
        PageSlice(page, 0, stop - start, 0, stop - start, Bits.pack(valid[start:stop]))
        for page, (start, stop) in zip(chunk.pages, ((0, 100), (100, 1_000)), strict=True)
    ]
    assert np.array_equal(decode_pages(slices, INT64), values)


def test_bug_error_of_arrow_out_of_verify():
    """A string that is not UTF-8 is a problem of the file, to be reported as the others are."""
    stored = bytearray(Feature(pa.table({"s": ["fermion", "boson"]})).stored())
    stored[stored.index(b"boson")] = 0xFF
    repair(stored)
    with fermion.open(stored) as file:
        (problem,) = file.verify().problems
    assert "column 's'" in problem
    assert "UTF8" in problem


def test_bug_memory_for_a_shape_block_that_only_claims_its_size():
    """The size that a zstd frame records was allocated, whatever the directory said."""
    area = bytearray(build_schema_area(pa.schema([("a", pa.int64())])))
    view = memoryview(area)
    entry = np.frombuffer(area, SHAPE_BLOCK, 1, SCHEMA_HEADER.itemsize)[0]
    start = int(entry["offset"])
    assert area[start : start + 4] == ZSTD_MAGIC
    content_size = 2**33
    area[start + 4 : start + 13] = b"\xe0" + content_size.to_bytes(8, "little")
    schema = SchemaArea(lambda at, size: view[at : at + size], len(area), 1, "x")
    with memory_limit(), pytest.raises(InvalidFileError, match=str(content_size)):
        schema.shape(0)


def test_bug_stripes_of_a_column_that_are_not_the_files():
    """Rows of stripes are in every column's block, too, and have to agree."""
    stored = bytearray(FEATURES["integers"]().stored())
    (place, *_) = [place for place in Anatomy(stored).places if place.dtype == STRIPE_META]
    stored[place.offset] += 1
    repair(stored)
    with fermion.open(stored) as file, pytest.raises(InvalidFileError, match="expected 12 rows"):
        file.read()


def test_bug_data_that_are_all_null():
    """A length that means so only for validity was taken for a default by other streams."""
    stored = bytearray(Feature(pa.table({"l": [[1], [2]]})).stored())
    places = [place for place in Anatomy(stored).places if place.dtype == FULL_CHUNK_DESC]
    for place in places:
        at = place.offset + FULL_CHUNK_DESC.fields["length"][1]
        stored[at : at + 4] = b"\xff" * 4
    repair(stored)
    with fermion.open(stored) as file, pytest.raises(InvalidFileError, match="only VALIDITY"):
        file.read()


def test_a_shape_block_may_not_expand_beyond_the_limit():
    area = bytearray(build_schema_area(pa.schema([("a", pa.int64())])))
    view = memoryview(area)
    raw_length = SCHEMA_HEADER.itemsize + SHAPE_BLOCK.fields["rawLength"][1]
    area[raw_length : raw_length + 4] = (EXPANSION_FREE_BYTES + 1).to_bytes(4, "little")
    schema = SchemaArea(lambda at, size: view[at : at + size], len(area), 1, "x")
    with pytest.raises(InvalidFileError, match=f"raw {EXPANSION_FREE_BYTES + 1}"):
        schema.shape(0)


def test_compressed_metadata_of_the_schema_may_not_expand_beyond_the_limit():
    """Neither by what the header says nor by what the frame says, and only who asks for them."""
    schema = pa.schema([("a", pa.int64())], metadata={"text": "x" * 5_000})
    area = bytearray(build_schema_area(schema, compress_metadata=True))
    at = SCHEMA_HEADER.fields["metadataRawLength"][1]
    raw_length = int.from_bytes(area[at : at + 4], "little")

    def opened() -> SchemaArea:
        view = memoryview(area)
        return SchemaArea(
            lambda at, size: view[at : at + size], len(area), 1, "x", has_compressed_metadata=True
        )

    assert opened().metadata() == schema.metadata
    for wrong, message in (
        (EXPANSION_FREE_BYTES + 1, f"found {EXPANSION_FREE_BYTES + 1}"),
        (raw_length + 1, f"expected {raw_length + 1} bytes of content, found {raw_length}"),
        (0, f"expected 0 bytes of content, found {raw_length}"),
    ):
        area[at : at + 4] = wrong.to_bytes(4, "little")
        with memory_limit(), pytest.raises(InvalidFileError, match=message):
            opened().metadata()
        assert opened().shape(0).type == pa.int64()


def test_failed_openings_leave_no_descriptor_behind(tmp_path: Path):
    path = tmp_path / "x.fermion"
    path.write_bytes(FEATURES["integers"]().stored()[:-1])
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        with pytest.raises(FermionError):
            fermion.open(path)
    assert len(os.listdir("/proc/self/fd")) <= before
