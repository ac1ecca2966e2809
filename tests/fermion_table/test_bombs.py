"""Small metadata that claims or holds gigabytes is refused before memory is taken."""

from __future__ import annotations

import msgspec
import pytest
import zstandard

from fermion_table.errors import CorruptMetadata
from fermion_table.json_codec import DECODED_BYTES_MAX
from fermion_table.manifest import decode_manifest, encode_manifest
from fermion_table.schema import decode_schema
from fermion_table.testing import made_up_entry
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
