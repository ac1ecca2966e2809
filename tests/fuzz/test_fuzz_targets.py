"""What a fuzzer found, and small damage to its seeds, gives errors of ours and no others."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import pyarrow as pa
import pytest

import fermion
from fermion.errors import InvalidArgumentError
from fermion.predicate import parse_filter
from fermion_table.errors import CorruptMetadata
from fermion_table.metadata.manifest import decode_manifest
from fermion_table.schema.schema import decode_schema
from tests.fuzz.targets import DEEP, TARGETS
from tests.kit.files.mutations import memory_limit

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
MUTATIONS_PER_SEED = 60
NESTED = 100_000


def seeds(name: str) -> list[bytes]:
    """The seeds and findings of a target."""
    if name == "file":
        files = sorted(GOLDEN.glob("v1/*.fermion"), key=lambda path: path.stat().st_size)[:6]
        files.append(GOLDEN / "v1.3" / "shredded_maps.fermion")
        files.append(GOLDEN / "v1.5" / "shredded_variants.fermion")
        files.append(GOLDEN / "v1.6" / "shredded_variants.fermion")
        return [path.read_bytes() + end for path in files for end in (b"", DEEP)]
    return [path.read_bytes() for path in sorted((HERE / "corpus" / name).iterdir())]


def mutated(data: bytes, dice: random.Random) -> bytes:
    """A few bytes changed, removed, repeated or moved; the end of deep files stays."""
    end = DEEP if data.endswith(DEEP) else b""
    body = bytearray(data[: len(data) - len(end)])
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(body) + 1)
        length = dice.randint(1, 16)
        match dice.randrange(4):
            case 0:
                body[at : at + 1] = bytes([dice.randrange(256)])
            case 1:
                del body[at : at + length]
            case 2:
                body[at:at] = body[at : at + length]
            case _:
                other = dice.randrange(len(body) + 1)
                body[at : at + length] = body[other : other + length]
    return bytes(body) + end


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_seeds_give_our_errors_or_values(name: str) -> None:
    """Every seed as it is, and with small damage, within 256 MiB."""
    dice = random.Random(name)
    given = seeds(name)
    assert given
    TARGETS[name](given[0])  # libraries that are loaded when they are needed take memory
    with memory_limit():
        for seed in given:
            TARGETS[name](seed)
            for _ in range(MUTATIONS_PER_SEED):
                TARGETS[name](mutated(seed, dice))


@pytest.mark.parametrize(
    "text", [b"[" * NESTED, b'{"a":' * NESTED, b'{"entries":' + b"[" * NESTED], ids=range(3)
)
def test_deeply_nested_json_is_refused(text: bytes) -> None:
    """No stack overflows."""
    for decode in (decode_manifest, decode_schema):
        with pytest.raises(CorruptMetadata):
            decode(text, "x.json")
    TARGETS["snapshot"](text)
    TARGETS["reference"](text)


@pytest.mark.parametrize("text", ["(" * 20_000 + "a = 1" + ")" * 20_000, "NOT " * 20_000 + "a = 1"])
def test_a_deeply_nested_filter_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError):
        parse_filter(text)


def test_numbers_beyond_their_types_are_refused() -> None:
    """Sizes, counts and ids of JSON that no integer of 64 bits can hold."""
    for number in (2**63, 2**64, -(2**63) - 1, 1e308):
        manifest = {
            "format": "fermion-manifest",
            "format_version": 1,
            "entries": [{"path": "data/x", "rows": number, "size": number}],
        }
        with pytest.raises(CorruptMetadata):
            decode_manifest(json.dumps(manifest).encode(), "manifest/x.json")


@pytest.mark.parametrize(
    "text",
    [
        "i < INTERVAL '\x01' SECOND",
        "i < INTERVAL 'NaN' DAY",
        "t >= TIME '2020-0-01-01 00:00:00' AND x = X'\ufffd0ff'",
        "a < " + "9" * 5_000,
        "8 = X''",
    ],
)
def test_bug_number_errors_of_a_filter(text: str) -> None:
    """Intervals that are no numbers, integers of 5,000 digits, odd binary."""
    with pytest.raises(InvalidArgumentError):
        parse_filter(text)


@pytest.mark.parametrize("text", ["i < INTERVAL '1e400' SECOND", "i < INTERVAL '1e12' DAY"])
def test_bug_intervals_of_a_filter_that_are_too_great(text: str) -> None:
    """DuckDB computes them, so that the error comes with the rows."""
    sink = io.BytesIO()
    fermion.write_table(pa.table({"i": pa.array([1], pa.duration("s"))}), sink)
    with fermion.open(sink.getvalue()) as file, pytest.raises(InvalidArgumentError):
        file.read(filter=text)
