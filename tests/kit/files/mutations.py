"""Structured damage to files: change fields, bytes and types, put the checksums right, read.

Run as a program it mutates and reads files under a memory limit, in a process of its own, so that
a crash or a hang is an ordinary failure of the test that started it:

    python -m tests.kit.files.mutations FIRST_SEED COUNT
"""

from __future__ import annotations

import faulthandler
import functools
import json
import random
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pyarrow as pa

import fermion
from fermion.columns.types import column_node
from fermion.errors import FermionError
from fermion.io.compression import compress, decompress
from fermion.layout import FOOTER, PAGE_HEADER, Codec
from fermion.metadata.schema_area import build_schema_area
from fermion.reading.inspection import describe_file, describe_statistics
from tests.kit.files.feature import Feature
from tests.kit.files.features import FEATURES
from tests.kit.files.file_anatomy import Anatomy, Place, put, repair, schema_area_of, with_tail

MEMORY_BYTES_MAX = 256 * 2**20
CASE_SECONDS_MAX = 20
FAILURES_MAX = 20
EVERYWHERE_MAX = 2**18
OPTIONS = fermion.ReadOptions(threads=1)
# Nulls need no bytes, so a list that claims a billion of them may hold them.
MUTATED = [name for name in FEATURES if name != "lists_of_nulls"]


@functools.cache
def original(name: str) -> tuple[Feature, bytes]:
    """A feature and its file, the schema area uncompressed."""
    feature = FEATURES[name]()
    stored = feature.stored()
    return feature, with_tail(stored, schema_area_of(stored))


@functools.cache
def _field_pool() -> list[pa.Field]:
    """Fields of every type that some feature has."""
    found = {field.type: field for name in FEATURES for field in original(name)[0].table.schema}
    return list(found.values())


def _fields(place: Place) -> list[tuple[str, int, int]]:
    """Name, offset and width of the fields of a place, but for checksums."""
    fields = place.dtype.fields or {}
    return [
        (name, offset, dtype.itemsize)
        for name, (dtype, offset, *_) in fields.items()
        if "crc" not in name.lower()
    ]


class Mutation:
    """One damaged file, the same for the same seed.

    Attributes
    ----------
    name, feature
        The feature whose file was damaged.
    steps
        What was done, for people.
    data
        The bytes, with right checksums.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.name = self._random.choice(MUTATED)
        self.feature, data = original(self.name)
        self.steps: list[str] = []
        if self._random.random() < 0.15:
            data = self._with_other_types(data)
        self.data = bytearray(data)
        changes = (self._field, self._bytes, self._splice, self._compressed, self._everywhere)
        for _ in range(self._random.choice((1, 1, 1, 2, 3))):
            self._random.choices(changes, (6, 3, 1, 1, 2))[0](Anatomy(self.data))
            repair(self.data)

    def _with_other_types(self, data: bytes) -> bytes:
        """Give columns types with the same streams, or any at all."""
        schema = self.feature.table.schema
        fields = list(schema)
        for _ in range(self._random.choice((1, 2, 5))):
            at = self._random.randrange(len(fields))
            pool = _field_pool()
            if self._random.random() < 0.8:
                wanted = column_node(fields[at]).stream_types()
                pool = [each for each in pool if column_node(each).stream_types() == wanted]
            other = self._random.choice(pool or fields)
            other = other.with_nullable(self._random.random() < 0.7)
            self.steps.append(f"column {at}: {fields[at].type} as {other.type}")
            fields[at] = other.with_name(fields[at].name)
        area = build_schema_area(
            pa.schema(fields, metadata=schema.metadata),
            compress_metadata=self.feature.options.get("compress_schema", False),
        )
        stored = with_tail(data, area)
        return with_tail(stored, schema_area_of(stored))

    def _field(self, found: Anatomy) -> None:
        place = self._random.choice(found.places)
        name, offset, width = self._random.choice(_fields(place))
        at = place.offset + offset
        old = self._get(at, width)
        value = self._value(old, width, found)
        self.steps.append(f"{at}: {name} of {place.dtype.itemsize} bytes: {old} to {value}")
        put(self.data, at, value, width)

    def _everywhere(self, found: Anatomy) -> None:
        """Give every field that equals some field its new value too: counts that agree."""
        fields = [(place, *each) for place in found.places for each in _fields(place)]
        place, _, offset, width = self._random.choice(fields)
        old = self._get(place.offset + offset, width)
        # Not more: where all places agree on a count, that many slots are in the file.
        value = self._value(old, width, found) % EVERYWHERE_MAX
        for place, name, offset, width in fields:
            at = place.offset + offset
            if self._get(at, width) == old and value < 1 << 8 * width:
                self.steps.append(f"{at}: {name} of {place.dtype.itemsize} bytes: {old} to {value}")
                put(self.data, at, value, width)

    def _get(self, offset: int, width: int) -> int:
        return int.from_bytes(self.data[offset : offset + width], "little")

    def _value(self, old: int, width: int, found: Anatomy) -> int:
        choose = self._random
        top = 1 << 8 * width
        value = choose.choice(
            (
                choose.randrange(20),
                old + choose.choice((-8, -2, -1, 1, 2, 8)),
                top - choose.choice((1, 2, 3, 8)),
                (1 << choose.randrange(8 * width)) - choose.choice((0, 1)),
                old ^ 1 << choose.randrange(8 * width),
                choose.randrange(len(self.data) + 2),
                choose.choice(found.places).offset,
                choose.randrange(top),
                2 * old,
            )
        )
        return value % top

    def _region(self, found: Anatomy) -> tuple[int, int]:
        regions = found.regions + found.blocks + found.pages * 2
        regions = [
            (start, length)
            for start, length in regions
            if length > 0 and start >= 0 and start + length <= len(self.data)
        ]
        return self._random.choice(regions or [(0, len(self.data))])

    def _bytes(self, found: Anatomy) -> None:
        start, length = self._region(found)
        for _ in range(self._random.choice((1, 1, 2, 4))):
            at = start + self._random.randrange(length)
            value = self._random.choice((0, 1, 0x7F, 0x80, 0xFF, self._random.randrange(256)))
            self.steps.append(f"{at}: byte {self.data[at]} to {value}")
            self.data[at] = value

    def _splice(self, found: Anatomy) -> None:
        (source, length), (target, room) = self._region(found), self._region(found)
        size = self._random.randrange(1, min(length, room) + 1)
        self.steps.append(f"{target}: {size} bytes as at {source}")
        self.data[target : target + size] = self.data[source : source + size]

    def _compressed(self, found: Anatomy) -> None:
        """Change what a compressed page holds, where the change compresses as well."""
        pages = [each for each in found.pages if self.data[each[0] + 1] == Codec.ZSTD]
        if not pages:
            self._bytes(found)
            return
        offset, length = self._random.choice(pages)
        body = offset + PAGE_HEADER.itemsize
        raw_length = int.from_bytes(self.data[offset + 8 : offset + 12], "little")
        try:
            raw = decompress(self.data[body : offset + length], raw_length, padded=True)
        except FermionError:
            return
        changed = bytearray(raw)
        changed[self._random.randrange(len(changed))] = self._random.randrange(256)
        packed = compress(changed, 19)
        if len(packed) <= offset + length - body:
            self.steps.append(f"{offset}: a compressed page")
            self.data[body : offset + length] = packed.ljust(offset + length - body, b"\0")

    def read(self) -> None:
        """Do some of what a user may do with a file; errors of the package end one thing each."""
        prefetch = self._random.choice((None, None, FOOTER.itemsize, 700))
        options = OPTIONS.with_overrides({"prefetch_bytes": prefetch})
        try:
            file = fermion.open(self.data, options=options)
        except FermionError:
            return
        with file:
            actions = list(_actions(self.feature, self._random))
            for action in (actions[0], *self._random.sample(actions[1:], 3)):
                try:
                    result = action(file)
                except FermionError:
                    continue
                if isinstance(result, (pa.Table, pa.RecordBatch)):
                    check_arrow(result)


def _actions(
    feature: Feature, choose: random.Random
) -> Iterator[Callable[[fermion.FermionFile], Any]]:
    schema = feature.table.schema
    yield lambda file: file.read()
    yield lambda file: file.verify()
    yield lambda file: [list(map(str, (file.schema, file, file.key_value_metadata)))]
    yield lambda file: file.read(filter=feature.filter)
    yield lambda file: file.count(feature.filter)
    yield lambda file: file.read([choose.randrange(len(schema))])
    yield lambda file: file.read([choose.choice(schema.names)])
    yield lambda file: file.take([0, file.num_rows - 1, file.num_rows // 2])
    yield lambda file: file.read(rows=(file.num_rows // 3, file.num_rows // 2))
    yield lambda file: pa.Table.from_batches(file.iter_batches(batch_size=7), schema=file.schema)
    yield lambda file: [file.column(each) for each in range(min(file.num_columns, 20))]
    yield lambda file: [file.sort_order, describe_statistics(file.index)]
    yield lambda file: [describe_file(file.index)]
    yield lambda file: file.read_batch(1002)
    yield lambda file: file.read(["batch_id", "index_in_batch"])


def check_arrow(table: pa.Table | pa.RecordBatch) -> None:
    """Assert that Arrow can use a result without reading outside of its buffers.

    Values that a type does not allow may be there, for example bytes that are no UTF-8: reading
    does not look at every value, `FermionFile.verify` does.
    """
    table.validate()
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        harmless = ("UTF8", "UTF-8", "precision", "does not represent", "not within the acceptable")
        if not any(each in str(error) for each in harmless):
            raise


@contextmanager
def memory_limit(allowed: int = MEMORY_BYTES_MAX) -> Iterator[None]:
    """Let the process reserve at most so many bytes more than it has now."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        reserved = int(stream.read().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (reserved + allowed, hard))
    pool = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())  # the others reserve more than they use
    try:
        yield
    finally:
        pa.set_memory_pool(pool)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _is_for_nulls(error: BaseException) -> bool:
    """Whether memory ran out for nulls: a file may hold any number of them in no bytes at all."""
    names = {frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)}
    return bool(names & {"blank", "blank_values", "null_column", "_build_storage"})


class HangError(BaseException):
    """A case took too long; no `Exception`, so that nothing on the way catches it."""


def _on_alarm(signal_number: int, frame: FrameType | None) -> None:
    raise HangError


def main(first: int, count: int) -> int:
    """Run cases; print one line of JSON a failure, and how many cases there were."""
    signal.signal(signal.SIGALRM, _on_alarm)
    for name in FEATURES:
        original(name)
    _field_pool()
    failures = 0
    with memory_limit():
        for seed in range(first, first + count):
            # If the interpreter itself hangs or dies, this line says in which case.
            print(f"seed {seed}", flush=True)
            faulthandler.dump_traceback_later(3 * CASE_SECONDS_MAX, exit=True)
            signal.setitimer(signal.ITIMER_REAL, CASE_SECONDS_MAX)
            steps: list[str] = []
            try:
                mutation = Mutation(seed)
                steps = [mutation.name, *mutation.steps]
                mutation.read()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
                if isinstance(error, MemoryError) and _is_for_nulls(error):
                    continue
                failures += 1
                where = traceback.format_exception(error)[-4:]
                print(json.dumps({"seed": seed, "steps": steps, "error": where}), flush=True)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            if failures >= FAILURES_MAX:
                break
    faulthandler.cancel_dump_traceback_later()
    print(f"{failures} failures in seeds {first} to {seed}", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
