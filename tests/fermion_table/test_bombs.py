"""Small metadata that claims or holds gigabytes is refused before memory is taken."""

from __future__ import annotations

import msgspec
import pytest
import zstandard

from fermion_table.errors import CorruptMetadata
from fermion_table.json_codec import DECODED_BYTES_MAX, content_hash, stored
from fermion_table.manifest import ManifestReference, decode_manifest, encode_manifest
from fermion_table.manifest_store import open_packed, read_manifest
from fermion_table.schema import decode_schema
from fermion_table.testing import MemoryStore, made_up_entry
from tests.fermion.mutations import memory_limit

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
