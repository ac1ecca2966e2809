"""Metadata of wrong numbers, types and sizes under a right checksum: our errors, bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from fermion.errors import FermionError
from fermion_table import Table
from fermion_table.metadata.snapshot import CHECKSUM_END, CHECKSUM_KEY
from fermion_table.storage import json_codec
from fermion_table.storage.cache import shared_cache
from tests.kit.files.mutations import memory_limit

NUMBERS = (-1, 0, 1, 99, 2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, -(2**63), -(2**70))
OTHERS = (None, True, 1.5, 1e300, "x", "1", "", [], [None], [[0, 2**62]], {}, {"a": 1}, [2**40] * 3)
ACTIONS: dict[str, Callable[[Table], Any]] = {
    "read": lambda t: t.scan(threads=1).to_arrow(),
    "filter": lambda t: t.scan(filter="v > 1 AND p = 'a'", threads=1).to_arrow(),
    "count": lambda t: t.scan().count(),
    "batch": lambda t: t.scan(batch_id=3, threads=1).to_arrow(),
    "verify": lambda t: t.verify(data=True),
    "inspect": lambda t: t.inspect.files(),
    "history": lambda t: str(t.history()),
    "changes": lambda t: t.scan_changes(3).to_arrow(),
    "append": lambda t: t.append({"p": ["a"], "v": [1]}),
    "delete": lambda t: t.delete("v = 2"),
    "compact": lambda t: t.compact(threads=1),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Files of two partitions and a deletion vector, in the tail of snapshot 4."""
    path = tmp_path_factory.mktemp("hostile") / "t"
    schema = pa.schema({"p": pa.string(), "v": pa.int64()})
    table = Table.create(path, schema, partition_by="p", durability="fast")
    for number in range(3):
        table.append({"p": ["a", "a", "a", "b"], "v": [number, 2, 5, 7]})
    table.delete("v = 0")
    return table


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of a JSON value, but for those of equal neighbours in long lists."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, (*path, key))
    elif isinstance(value, list):
        for position, each in list(enumerate(value))[:2]:
            yield from leaves(each, (*path, position))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A JSON value with another one at a place."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def stored(snapshot: Any) -> bytes:
    """A snapshot's bytes with the right checksum."""
    body = json.dumps(snapshot, separators=(",", ":")).encode()[:-1]
    return body + CHECKSUM_KEY + json_codec.content_hash(body).encode() + CHECKSUM_END


def act(slot: Path, data: bytes, names: list[str]) -> None:
    """Open the table and do something; errors of ours and missing files are fine."""
    for name in names:
        slot.write_bytes(data)
        shared_cache.clear()
        with suppress(FermionError, FileNotFoundError):
            ACTIONS[name](Table.open(slot.parent.parent, durability="fast"))
        for later in slot.parent.glob("0*5.json"):
            later.unlink()


def check(table: Table, every: int) -> int:
    """Put a wrong value at every n-th place and look what each action makes of it; how many."""
    slot = Path(table.location, "snapshot", f"{4:020}.json")
    original = slot.read_bytes()
    content = json.loads(original[: original.rindex(CHECKSUM_KEY)] + b"}")
    names = list(ACTIONS)
    count = 0
    try:
        with memory_limit():
            for path in leaves(content):
                for new in (*NUMBERS, *OTHERS):
                    count += 1
                    if count % every:
                        continue
                    chosen = names if every == 1 else [names[count // every % len(names)]]
                    try:
                        act(slot, stored(replaced(content, path, new)), chosen)
                    except BaseException as error:
                        error.add_note(f"{'.'.join(map(str, path))} = {new!r}, {chosen}")
                        raise
    finally:
        slot.write_bytes(original)
    return count


def test_wrong_values_anywhere_in_a_snapshot_give_our_errors(table: Table) -> None:
    """A sample of all places and values, one action for each."""
    check(table, every=7)


@pytest.mark.slow
def test_every_wrong_value_anywhere_in_a_snapshot_gives_our_errors(table: Table) -> None:
    print(
        "soak:", json.dumps({f"wrong values, {len(ACTIONS)} actions each": check(table, every=1)})
    )
