"""JSON objects: unknown keys survive a rewriting, broken bytes are refused by name."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.manifest import Manifest, decode_manifest
from fermion_table.storage import json_codec
from tests.kit.stores import made_up_entry

MANIFEST = Manifest(entries=(made_up_entry("a"), made_up_entry("b", rows=3)))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def test_an_object_comes_back() -> None:
    data = json_codec.encode(MANIFEST)
    assert json_codec.decode(data, Manifest, "m") == MANIFEST
    assert json_codec.decode_keeping(data, Manifest, "m") == MANIFEST


@pytest.mark.parametrize("key", ["", "new", "#hash"])
def test_what_a_writer_never_writes_is_no_short_way(key: str) -> None:
    """An object that names the place of unknown keys itself gets what any unknown key gets."""
    raw = msgspec.json.decode(json_codec.encode(MANIFEST))
    raw["entries"][1][key] = {"x": 1}
    kept = json_codec.decode_keeping(msgspec.json.encode(raw), Manifest, "m")
    assert kept.entries[1].unknown == ({} if key == "" else {key: {"x": 1}})


@given(st.dictionaries(st.text(min_size=1).map(lambda key: "new_" + key), json_values, min_size=1))
def test_unknown_keys_are_kept_where_they_were(future: dict[str, object]) -> None:
    raw = msgspec.json.decode(json_codec.encode(MANIFEST))
    raw["entries"][1] |= future
    data = msgspec.json.encode(raw)
    assert json_codec.decode(data, Manifest, "m") == MANIFEST
    kept = json_codec.decode_keeping(data, Manifest, "m")
    assert kept.entries[0] == MANIFEST.entries[0]
    assert kept.entries[1].unknown == future
    assert msgspec.json.decode(json_codec.encode(kept)) == raw


def test_large_objects_are_compressed_and_small_ones_are_not() -> None:
    small, compressed = json_codec.stored(b"[]" * 100)
    assert (small, compressed) == (b"[]" * 100, False)
    large = b"[%s]" % b",".join(b"%d" % number for number in range(20_000))
    data, compressed = json_codec.stored(large)
    assert compressed
    assert len(data) < len(large) / 2
    assert json_codec.decompressed(data, "m") == large


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'{"entries":[{}]}', b'{"entries":1}', b"\xff\xfe", b"[" * 100_000],
    ids=range(7),
)
def test_broken_json_names_the_object(data: bytes) -> None:
    for decode in (json_codec.decode, json_codec.decode_keeping):
        with pytest.raises(CorruptMetadata, match="manifest/x"):
            decode(data, Manifest, "manifest/x")


def test_every_cut_and_flip_of_a_compressed_object_is_refused_or_reads_as_json() -> None:
    data = zstandard.ZstdCompressor(write_checksum=True).compress(json_codec.encode(MANIFEST))
    assert json_codec.decode(data, Manifest, "m") == MANIFEST
    for cut in range(len(data)):
        with pytest.raises(CorruptMetadata):
            json_codec.decode(data[:cut], Manifest, "m")
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 0x10
        try:
            json_codec.decode(bytes(flipped), Manifest, "m")
        except CorruptMetadata:
            continue


def test_a_zstd_bomb_is_refused_before_it_grows() -> None:
    frame = bytearray(zstandard.ZstdCompressor().compress(b"0" * 100_000))
    header = zstandard.get_frame_parameters(bytes(frame))
    assert header.content_size == 100_000
    size_at = bytes(frame).index((100_000 - 0).to_bytes(4, "little"))
    frame[size_at : size_at + 4] = (2**32 - 1).to_bytes(4, "little")
    with pytest.raises(CorruptMetadata, match="at most"):
        json_codec.decompressed(bytes(frame), "m")


def test_a_hash_is_64_digits_and_differs_by_content() -> None:
    assert len(json_codec.content_hash(b"")) == 64
    assert json_codec.content_hash(b"a") != json_codec.content_hash(b"b")


def test_bug_unicode_error_of_an_unknown_key() -> None:
    """What no field takes is read a second time, to be kept; it was not checked before."""
    for end in (b'"\xe5x"', b'{"\xff":1}', b"[" * 100_000):
        data = b'{"format":"fermion-manifest","format_version":1,"entries":[],"later":' + end + b"}"
        with pytest.raises(CorruptMetadata, match="JSON"):
            decode_manifest(data, "manifest/x.json", keep_unknown=True)


FIRST_USES = """
import sys
import threading
import msgspec
from fermion_table.storage import json_codec

sys.setswitchinterval(1e-6)
wrong = []
for number in range(60):
    inner = msgspec.defstruct(f"Inner{number}", [(f"a{n}", int | None, None) for n in range(30)])
    outer = msgspec.defstruct(f"Outer{number}", [("inner", inner), ("more", list[inner])])
    ready = threading.Barrier(8)

    def use() -> None:
        ready.wait()
        found = json_codec.decode(b'{"inner":{"a7":1},"more":[{"a2":2}]}', outer, "path")
        if (found.inner.a7, found.more[0].a2) != (1, 2):
            wrong.append(found)

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
assert not wrong
print("right")
"""


def test_bug_first_uses_of_a_struct_by_many_threads_ended_the_process(project_environment):
    """In a process of its own, whose threads take turns after each step."""
    done = subprocess.run(
        [sys.executable, "-c", FIRST_USES],
        env=project_environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "right\n", "")
