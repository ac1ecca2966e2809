"""The snapshot's bytes: the fields of the specification, a checksum, and refusals by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fermion_table.errors import CorruptMetadata, UnsupportedFeature
from fermion_table.metadata.manifest import Entry, ManifestReference
from fermion_table.metadata.snapshot import (
    CHECKSUM_KEY,
    Delta,
    Snapshot,
    SnapshotReference,
    Totals,
    Touched,
    check_writable,
    decode_snapshot,
    encode_snapshot,
)
from fermion_table.schema.schema import SchemaReference
from fermion_table.storage import json_codec
from tests.kit.stores import made_up_entry

PATH = "snapshot/00000000000000000002.json"


def live_entry(name: str) -> Entry:
    return made_up_entry(name).inherit(snapshot_id=1, sequence_start=1, row_id_start=0)


def snapshot(**fields: Any) -> Snapshot:
    defaults: dict[str, Any] = {
        "format": "fermion-table",
        "format_version": 1,
        "table_uuid": "t",
        "id": 2,
        "uuid": "u",
        "parent": SnapshotReference(1, "ab"),
        "kind": "append",
        "time_ms": 1_700_000_000_000,
        "schema": SchemaReference(id=0, path="schema/0-a.json", hash="cd", size=2),
    }
    return Snapshot(**defaults | fields)


def with_keys(data: bytes, **keys: Any) -> bytes:
    """Stored bytes with keys set and the checksum made anew."""
    raw = msgspec.json.decode(data)
    del raw["checksum"]
    body = msgspec.json.encode(raw | keys)[:-1]
    return body + CHECKSUM_KEY + json_codec.content_hash(body).encode() + b'"}'


FULL = snapshot(
    author="a",
    message="m",
    properties={"k": "v"},
    tail=(live_entry("a"), live_entry("b")),
    manifests=(
        ManifestReference(
            path="manifest/m.json", hash="ef", size=9, entries=5, dead=(1, 3), rows=3, bytes=3
        ),
    ),
    delta=Delta(tail_entries=1, removed=(live_entry("c"),)),
    totals=Totals(files=5, rows=6, bytes=7, rows_deleted=8),
    commit_user="job",
    commit_identifier=7,
    touched=Touched(partitions=((1, "x"), (None, "y"))),
)


def test_a_snapshot_comes_back_with_the_hash_of_its_bytes() -> None:
    data = encode_snapshot(FULL)
    back = decode_snapshot(data, PATH)
    assert back.hash == json_codec.content_hash(data)
    assert msgspec.structs.replace(back, hash="") == FULL
    assert encode_snapshot(back) == data


def test_the_json_has_the_names_of_the_specification() -> None:
    raw = msgspec.json.decode(encode_snapshot(FULL))
    assert raw["parent"] == {"id": 1, "hash": "ab"}
    assert raw["schema"] == {"id": 0, "path": "schema/0-a.json", "hash": "cd", "size": 2}
    assert raw["touched"] == {"partitions": [[1, "x"], [None, "y"]]}
    assert raw["manifests"][0]["dead"] == [1, 3]
    assert raw["tail"][0]["path"] == "data/a.fermion"
    assert "hash" not in raw
    assert "#hash" not in raw
    assert list(raw)[-1] == "checksum"
    assert decode_snapshot(encode_snapshot(snapshot(touched=Touched("many"))), PATH).touched == (
        Touched("many")
    )


def test_every_flipped_byte_is_found_and_every_cut_too() -> None:
    data = encode_snapshot(FULL)
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1
        with pytest.raises(CorruptMetadata, match=PATH):
            decode_snapshot(bytes(flipped), PATH)
    for cut in range(len(data)):
        with pytest.raises(CorruptMetadata, match=PATH):
            decode_snapshot(data[:cut], PATH)


def test_an_unknown_key_is_ignored_and_known_to_the_reader() -> None:
    back = decode_snapshot(with_keys(encode_snapshot(FULL), future=[1]), PATH)
    assert back.unknown == {"future": [1]}
    assert back.tail == FULL.tail


def test_unknown_keys_of_entries_and_references_are_kept() -> None:
    raw = msgspec.json.decode(encode_snapshot(FULL))
    raw["tail"][1]["future"] = 1
    raw["manifests"][0]["future"] = 2
    back = decode_snapshot(
        with_keys(encode_snapshot(FULL), tail=raw["tail"], manifests=raw["manifests"]), PATH
    )
    again = msgspec.json.decode(encode_snapshot(back))
    assert again["tail"] == raw["tail"]
    assert again["manifests"] == raw["manifests"]


def test_an_unknown_reader_feature_is_refused_by_name() -> None:
    data = encode_snapshot(snapshot(reader_features=("rainbows",)))
    with pytest.raises(UnsupportedFeature, match="reader feature 'rainbows'"):
        decode_snapshot(data, PATH)


def test_an_unknown_writer_feature_is_read_and_not_written() -> None:
    back = decode_snapshot(encode_snapshot(snapshot(writer_features=("rainbows",))), PATH)
    with pytest.raises(UnsupportedFeature, match="writer feature 'rainbows'"):
        check_writable(back, PATH)


def test_a_newer_format_version_is_refused() -> None:
    data = encode_snapshot(snapshot(format_version=2))
    with pytest.raises(UnsupportedFeature, match="version 2"):
        decode_snapshot(data, PATH)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"format": "iceberg"}, "fermion-table"),
        ({"parent": None}, "a parent"),
        ({"parent": {"id": 5, "hash": "ab"}}, "parent 1"),
        ({"delta": {"tail_entries": 3}}, "at most 2 inline entries"),
        ({"delta": {"tail_entries": -1}}, "tail_entries"),
        ({"tail": [{"path": "data/a", "size": 1, "rows": 1}]}, "added_snapshot"),
        ({"id": "two"}, "JSON of a Snapshot"),
        ({"kind": "prank"}, "JSON of a Snapshot"),
    ],
)
def test_a_contradiction_is_corrupt(keys: dict[str, Any], expected: str) -> None:
    data = with_keys(encode_snapshot(FULL), **keys)
    with pytest.raises(CorruptMetadata, match=expected):
        decode_snapshot(data, PATH)


@pytest.mark.parametrize("dead", [[3, 1], [1, 1], [-1], [5]])
def test_dead_ordinals_ascend_within_the_manifest(dead: list[int]) -> None:
    raw = msgspec.json.decode(encode_snapshot(FULL))
    raw["manifests"][0]["dead"] = dead
    data = with_keys(encode_snapshot(FULL), manifests=raw["manifests"])
    with pytest.raises(CorruptMetadata, match="dead"):
        decode_snapshot(data, PATH)


def test_the_same_invariants_hold_before_writing() -> None:
    with pytest.raises(CorruptMetadata, match="a parent"):
        encode_snapshot(snapshot(parent=None))
