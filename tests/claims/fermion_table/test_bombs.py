"""Small metadata that claims or holds gigabytes is refused before memory is taken."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
import zstandard
from pyroaring import BitMap64

from fermion_table import Table
from fermion_table.commit.commit import create_table
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata import deletion_vector
from fermion_table.metadata.deletion_vector import pack, ranges_of, unpack
from fermion_table.metadata.manifest import (
    DeletionVector,
    ManifestReference,
    decode_manifest,
    encode_manifest,
)
from fermion_table.metadata.manifest_store import open_packed, read_manifest, read_stored
from fermion_table.metadata.snapshot import (
    CHECKSUM_END,
    CHECKSUM_KEY,
    Delta,
    decode_snapshot,
    encode_snapshot,
)
from fermion_table.schema.schema import decode_schema
from fermion_table.storage.json_codec import DECODED_BYTES_MAX, content_hash, stored
from fermion_table.storage.local import LocalStore
from fermion_table.storage.location import open_store
from fermion_table.storage.paths import latest_hint_path, snapshot_path
from tests.kit.files.mutations import memory_limit
from tests.kit.stores import MemoryStore, made_up_entry, made_up_schema

MIB = 2**20


def frame_of(mebibytes: int, *, claims: int | None = None) -> bytes:
    """Spaces, compressed; the frame may claim another size."""
    size = mebibytes * MIB
    made = zstandard.ZstdCompressor(level=1).compressobj(size=size)
    piece = b" " * MIB
    frame = bytearray(b"".join([*(made.compress(piece) for _ in range(mebibytes)), made.flush()]))
    if claims is not None:
        header = zstandard.frame_header_size(frame)
        assert zstandard.frame_content_size(frame) == size
        width = 4 if size < 2**32 else 8
        frame[header - width : header] = claims.to_bytes(width, "little")
        assert zstandard.frame_content_size(frame) == claims
    return bytes(frame)


@pytest.mark.parametrize("decode", [decode_manifest, decode_schema])
def test_a_frame_that_holds_more_than_the_limit_is_refused(decode) -> None:
    """A few kilobytes that expand to more than 1 GiB, in 256 MiB."""
    bomb = frame_of(DECODED_BYTES_MAX // MIB + 16)
    assert len(bomb) < MIB
    with memory_limit(), pytest.raises(CorruptMetadata, match="at most"):
        decode(bomb, "manifest/x.json.zst")


@pytest.mark.parametrize("claims", [0, 10, 300 * MIB + 1, 2**31])
def test_a_frame_that_holds_other_bytes_than_it_claims_is_refused(claims: int) -> None:
    bomb = frame_of(300, claims=claims)
    with memory_limit(DECODED_BYTES_MAX), pytest.raises(CorruptMetadata):
        decode_manifest(bomb, "manifest/x.json.zst")


def test_runs_of_columns_are_never_spelled_out() -> None:
    """An entry that claims to hold 2^62 columns costs as much as one that holds ten."""
    entry = msgspec.structs.replace(
        made_up_entry("x"), columns=((0, 2**62), (2**62 + 2, 2**63 - 1))
    )
    with memory_limit():
        (found,) = decode_manifest(encode_manifest([entry]), "manifest/x.json").entries
        assert found.has_column(2**61)
        assert not found.has_column(2**62 + 1)


MANY = 4_000_000


def many_entries(count: int = MANY) -> bytes:
    """The JSON of a manifest of the shortest entries that there are."""
    entry = b'{"size":0,"rows":0}'
    head = b'{"format":"fermion-manifest","format_version":1,"entries":['
    return head + b",".join([entry] * count) + b"]}"


def reference_of(data: bytes, entries: int, kind: str = "loose") -> ManifestReference:
    return ManifestReference(
        path="manifest/x.json.zst", hash=content_hash(data), size=len(data), entries=entries,
        rows=0, bytes=0, kind=kind,  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("said", [1, MANY])
def test_a_manifest_of_few_bytes_and_millions_of_entries_is_refused(said: int) -> None:
    """12 KB, whatever its reference says; no more than 64 MiB are taken."""
    frame = zstandard.ZstdCompressor(level=3).compress(many_entries())
    assert len(frame) < 12_000
    store = MemoryStore()
    store.write("manifest/x.json.zst", frame)
    with memory_limit(64 * MIB), pytest.raises(CorruptMetadata, match="at most"):
        read_manifest(store, reference_of(frame, said))
    with memory_limit(64 * MIB), pytest.raises(CorruptMetadata, match="at most"):
        decode_manifest(frame, "manifest/x.json.zst")


def test_entries_that_their_reference_does_not_say_take_no_memory() -> None:
    """80 MB of JSON that is not compressed: counted, and refused before any is decoded."""
    data = many_entries()
    store = MemoryStore()
    store.write("manifest/x.json.zst", data)
    with memory_limit(512 * MIB), pytest.raises(CorruptMetadata, match="1 entries"):
        read_manifest(store, reference_of(data, 1))


def test_a_packed_manifest_of_more_entries_than_bytes_is_refused() -> None:
    """Before it is opened."""
    with pytest.raises(CorruptMetadata, match="at most 3 entries in 3 bytes"):
        open_packed(MemoryStore(), reference_of(b"abc", 4, "packed"))


def test_what_is_too_much_alike_is_stored_as_it_is() -> None:
    """A writer makes nothing that a reader refuses."""
    data, compressed = stored(many_entries(10_000))
    assert not compressed
    assert len(decode_manifest(data, "manifest/x.json").entries) == 10_000


def test_a_hint_of_a_gibibyte_is_no_hint_and_takes_no_memory(tmp_path: Path) -> None:
    """The table opens; no more than 20 of the bytes are read."""
    table = Table.create(tmp_path / "t", pa.schema([("a", pa.int64())]))
    table.append({"a": [1]})
    with open(tmp_path / "t" / latest_hint_path(), "wb") as file:
        file.truncate(2**30)
    with memory_limit(64 * MIB):
        assert Table.open(tmp_path / "t").snapshot.id == 1


def test_an_object_longer_than_its_reference_says_takes_no_memory(tmp_path: Path) -> None:
    """One byte more than said is read, and says that there is more."""
    store = LocalStore(tmp_path, durability="fast")
    store.write("manifest/x.json.zst", b"x")
    with open(tmp_path / "manifest" / "x.json.zst", "ab") as file:
        file.truncate(2**30)
    with memory_limit(64 * MIB), pytest.raises(CorruptMetadata, match="more than 100 bytes"):
        read_stored(store, "manifest/x.json.zst", "0" * 64, 100)


@pytest.mark.parametrize("url", ["local", "memory://stops"])
def test_a_store_reads_no_more_than_it_is_asked_for(url: str, tmp_path: Path) -> None:
    store = open_store(tmp_path / "t" if url == "local" else url)
    store.write("manifest/x", b"0123456789")
    assert store.read("manifest/x") == b"0123456789"
    assert [store.read("manifest/x", stop) for stop in (1, 9, 10, 11)] == [
        b"0", b"012345678", b"0123456789", b"0123456789",
    ]  # fmt: skip


@pytest.mark.parametrize("where", ["tail", "removed"])
def test_a_snapshot_of_millions_of_entries_is_refused(where: str) -> None:
    """Counted before any is decoded; a writer refuses to store it."""
    store = MemoryStore()
    snapshot = create_table(store, made_up_schema())
    entry = b'{"size":0,"rows":0}'
    entries = b"[" + b",".join([entry] * MANY) + b"]"
    body = store.objects[snapshot_path(0)].rpartition(CHECKSUM_KEY)[0]
    body += b',"tail":' + entries if where == "tail" else b',"delta":{"removed":' + entries + b"}"
    data = body + CHECKSUM_KEY + content_hash(body).encode() + CHECKSUM_END
    del entries
    with memory_limit(512 * MIB), pytest.raises(CorruptMetadata, match="at most 4096 entries in"):
        decode_snapshot(data, snapshot_path(0))
    many = (made_up_entry("x"),) * 4_097
    wrong = {"tail": many} if where == "tail" else {"delta": Delta(removed=many)}
    with pytest.raises(CorruptMetadata, match="at most 4096 entries in"):
        encode_snapshot(msgspec.structs.replace(snapshot, **wrong))


def runs_of(rows: int) -> tuple[bytes, DeletionVector]:
    """A vector that marks all of these rows by runs, and how an entry names it."""
    bitmap = BitMap64()
    bitmap.add_range(0, rows)
    data, ((offset, size),) = pack([bitmap])
    return data, DeletionVector(path="deletion/x.dv", offset=offset, size=size, rows=rows)


def test_a_deletion_vector_of_billions_of_rows_that_its_file_lacks_is_refused() -> None:
    """1 MB that would be 32 GB spelled out."""
    data, vector = runs_of(2**32)
    assert len(data) < MIB
    with memory_limit(64 * MIB), pytest.raises(CorruptMetadata, match="at most 1000 deleted rows"):
        unpack(data[vector.offset :], vector, 1000)
    said = msgspec.structs.replace(vector, rows=5)
    with memory_limit(64 * MIB), pytest.raises(CorruptMetadata, match="5 deleted rows"):
        unpack(data[vector.offset :], said, 2**33)


def test_billions_of_deleted_rows_are_never_spelled_out() -> None:
    """Where the entry claims to have them: they stay ranges."""
    data, vector = runs_of(2**32)
    with memory_limit(128 * MIB):
        bitmap = unpack(data[vector.offset :], vector, 2**40)
        assert list(ranges_of(bitmap)) == [(0, 2**32)]


def test_deleted_rows_are_the_same_ranges_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of 10 rows over sparse, dense and far rows, as all rows at once."""
    rows = [0, 1, 9, 10, 11, *range(15, 60), 75, *range(1000, 1020), 2**40, 2**40 + 1]
    bitmap = BitMap64(rows)
    whole = list(ranges_of(bitmap))
    monkeypatch.setattr(deletion_vector, "ROWS_AT_ONCE", 10)
    assert list(ranges_of(bitmap)) == whole
    assert [row for start, stop in whole for row in range(start, stop)] == rows
