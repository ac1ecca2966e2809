"""Variant values ↔ a column for each of some paths, and the rest; names and types of paths."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.types as pat

from fermion import kernels
from fermion.columns import validity
from fermion.columns.arrow_buffers import own_validity
from fermion.columns.types import VARIANT
from fermion.errors import InvalidArgumentError, InvalidFileError
from fermion.exports import NamedTuple
from fermion.options import Shred

PATH_NAMES_MAX = 64

TYPES: tuple[pa.DataType, ...] = (
    pa.null(),
    pa.bool_(),
    pa.int64(),
    pa.float64(),
    pa.string(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
)
"""What a column of a path holds, by the number that files have; never to change. 0: nothing."""
TEXT = TYPES.index(pa.string())
WHOLE = 9
"""What takes values of any type, as their bytes; in no file."""
GROUP_BYTES = 64 * 1024 * 1024
"""Of the columns of paths that are in memory at once."""
_WORDS = (None, np.uint8, np.int64, np.int64, None, np.int32, np.int64, np.int64)

Path = tuple[str, ...]

_NAME = r"[^.'\[\]\"*]+|'(?:[^']|'')*'"
_PATH = re.compile(rf"(?:{_NAME})(?:\.(?:{_NAME}))*", re.DOTALL)
_NAMES = re.compile(_NAME, re.DOTALL)
_PLAIN = re.compile(r"[^.'\[\]\"*]+", re.DOTALL)


def path_text(path: Sequence[str]) -> str:
    """A path as text: ``user.id``; a name that has one of ``.'"[]*``, or is empty, in quotes."""
    quoted = (
        name if _PLAIN.fullmatch(name) else "'{}'".format(name.replace("'", "''")) for name in path
    )
    return ".".join(quoted)


def parse_path(text: str, where: str) -> Path:
    """The names of a path.

    Raises InvalidArgumentError: The text is no path, or has more than 64 names.
    """
    if not _PATH.fullmatch(text):
        raise InvalidArgumentError(f"{where}: {text!r} is no path: write user.id, or 'a.b'.id")
    path = tuple(
        name[1:-1].replace("''", "'") if name.startswith("'") else name
        for name in _NAMES.findall(text)
    )
    if len(path) > PATH_NAMES_MAX:
        raise InvalidArgumentError(f"{where}: a path of {len(path)} names, expected at most 64")
    return path


STORAGE = pa.struct([pa.field(each, pa.binary(), nullable=False) for each in ("metadata", "value")])


class VariantType(pa.ExtensionType):
    """The type of columns of Variant values: ``arrow.parquet.variant`` over metadata and value.

    In Python a value is a dict of ``metadata`` and ``value``, both bytes; `fermion.variant.to_json`
    gives texts, and `fermion.variant.get` a part of each.
    """

    def __init__(self, storage: pa.DataType = STORAGE) -> None:
        names = set(storage.names) if pat.is_struct(storage) else set()
        # pyarrow gives shredded columns of Parquet this type, too.
        if not {"metadata"} < names <= {"metadata", "value", "typed_value"}:
            raise ValueError(f"{VARIANT} over {storage}: expected metadata and value")
        super().__init__(storage, VARIANT)

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> VariantType:
        return cls(storage)

    def __hash__(self) -> int:
        return hash((VariantType, str(self.storage_type)))

    def __reduce__(self) -> tuple[type[VariantType], tuple[pa.DataType]]:
        return VariantType, (self.storage_type,)


def paths_to_shred(chosen: Shred, where: str) -> frozenset[Path]:
    """The paths that are named to get columns; none where no list of them is given.

    Raises InvalidArgumentError: One is no path.
    """
    named = chosen.keys if isinstance(chosen.keys, tuple) else ()
    for path in map(str, named):
        if path.startswith("$."):  # as in variant_get
            raise InvalidArgumentError(f"{where}: {path!r} is no path: write {path[2:]}, without $")
    return frozenset(parse_path(str(path), where) for path in named)


class Values(NamedTuple):
    """Variant values in the form that kernels take; those that are null have no bytes.

    metas, values: ``uint8``. meta_ends, value_ends: ``int64``, shape (rows + 1,).
    """

    metas: np.ndarray
    meta_ends: np.ndarray
    values: np.ndarray
    value_ends: np.ndarray


def storage_of(array: pa.Array) -> pa.StructArray:
    """The struct of metadata and value below the extension type."""
    while isinstance(array, pa.ExtensionArray):
        array = array.storage
    return array


def values_of(array: pa.Array) -> Values:
    """The values of a Variant column.

    array: Of a column that `is_variant`.
    """
    storage = storage_of(array)
    visible = validity.to_flags(own_validity(storage), len(storage))
    parts: list[np.ndarray] = []
    for name in ("metadata", "value"):
        child = storage.field(name)
        if not visible.all():
            child = child.filter(pa.array(visible))
        child = child.cast(pa.large_binary())
        _, ends, data = child.buffers()
        bounds = np.zeros(len(storage) + 1, np.int64)
        if len(child):
            own = np.frombuffer(ends, np.int64, len(child) + 1, 8 * child.offset)
            bounds[1:] = own[np.cumsum(visible)]
            bounds[0] = own[0]
        parts += [np.frombuffer(data, np.uint8) if data is not None else _NONE, bounds]
    return Values(*parts)


_NONE = np.empty(0, np.uint8)


def with_values(array: pa.Array, values: np.ndarray, ends: np.ndarray) -> pa.Array:
    """A Variant column with other values, and the metadata that it has.

    Raises InvalidArgumentError: They do not fit the offsets of its type.
    """
    storage = storage_of(array)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(values)]
    made = pa.Array.from_buffers(pa.large_binary(), len(storage), buffers)
    field = storage.type.field("value")
    try:
        made = made.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidArgumentError(
            f"Variant values of {len(values)} bytes in one array: read fewer rows at once"
        ) from error
    visible = validity.to_flags(own_validity(storage), len(storage))
    changed = pa.StructArray.from_arrays(
        [storage.field("metadata"), made],
        fields=[storage.type.field("metadata"), field],
        mask=None if visible.all() else pa.array(~visible),
    )
    if isinstance(array, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(array.type, changed)
    return changed


def with_offsets(rest: pa.Array, where: str) -> pa.Array:
    """The rest of Variant values, with offsets where its objects and arrays have ranks.

    Raises InvalidFileError: Bytes are no such value.
    """
    values = values_of(rest)
    own = values.values[values.value_ends[0] : values.value_ends[-1]].copy()
    ends = values.value_ends - values.value_ends[0]
    try:
        kernels.variant_ranks(own, ends, back=True)
    except ValueError as error:
        raise InvalidFileError(f"{where}: {error}") from None
    return with_values(rest, own, ends)


class VariantParts(NamedTuple):
    """Parts of values that were taken out.

    kinds: The type of each path.
    codes, rows, words: ``uint32`` and ``int64``, shape (entries,), by row: which path, which row,
        and the value; of text its number.
    texts: All texts, or bytes.
    """

    kinds: np.ndarray
    codes: np.ndarray
    rows: np.ndarray
    words: np.ndarray
    texts: pa.Array

    def columns(self, rows: int) -> Iterator[list[pa.Array]]:
        """The column of each path, null where a row has no value; some at once."""
        step = max(GROUP_BYTES // max(8 * rows, 1), 1)
        for first in range(0, len(self.kinds), step):
            some = self.kinds[first : first + step].tolist()
            out = np.zeros((len(some), rows), np.int64)
            bits = np.zeros((len(some), (rows + 7) // 8), np.uint8)
            kernels.spread_keys(
                self.words,
                self.codes,
                self.rows,
                _NONE,
                np.arange(len(self.kinds)) - first,
                rows,
                out.reshape(-1),
                bits.reshape(-1),
            )
            yield [
                self._column(kind, values, flags)
                for kind, values, flags in zip(some, out, bits, strict=True)
            ]

    def _column(self, kind: int, words: np.ndarray, bits: np.ndarray) -> pa.Array:
        dtype, valid = pa.binary() if kind == WHOLE else TYPES[kind], pa.py_buffer(bits)
        found = pa.Array.from_buffers(pa.int64(), len(words), [valid, pa.py_buffer(words)])
        if kind in (TEXT, WHOLE):
            return self.texts.take(found).cast(dtype)
        return found.view(dtype) if dtype.bit_width == 64 else found.cast(pa.int32()).cast(dtype)


class PathTree:
    """Paths and the types of their columns, as kernels take them.

    paths: Without repeats.
    kinds: ``uint8``, shape (paths,): places in `TYPES`.
    """

    def __init__(self, paths: Sequence[Path], kinds: np.ndarray) -> None:
        nodes: dict[Path, int] = {(): 0}
        for path in paths:
            for depth in range(1, len(path) + 1):
                nodes.setdefault(path[:depth], len(nodes))
        names = [path[-1].encode() if path else b"" for path in nodes]
        self.kinds = np.asarray(kinds, np.uint8)
        self._parents = np.array([nodes[path[:-1]] if path else -1 for path in nodes], np.int32)
        self._ends = np.cumsum([0, *map(len, names)])
        self._text = np.frombuffer(b"".join(names), np.uint8)
        self._columns = np.full(len(nodes), -1, np.int32)
        self._columns[[nodes[path] for path in paths]] = np.arange(len(paths))

    @property
    def arguments(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What kernels take: parents, ends, text, columns, kinds."""
        return self._parents, self._ends, self._text, self._columns, self.kinds

    def split(self, values: Values) -> tuple[np.ndarray, np.ndarray, VariantParts, np.ndarray]:
        """Take the values of paths out.

        Returns: The bytes of what is left, and where its values end; what was taken out; and of
            each path whether another value but null is left, ``bool``.
        Raises ValueError, pyarrow.ArrowInvalid: Bytes are no Variant value.
        """
        incomplete = np.zeros(len(self.kinds), np.uint8)
        rest, ends, codes, rows, words, text = kernels.split_variants(
            *values, *self.arguments, incomplete
        )
        is_whole = bool((self.kinds == WHOLE).all())
        is_text = (self.kinds == (WHOLE if is_whole else TEXT))[codes]
        text_ends = np.append(0, words[is_text])
        words[is_text] = np.arange(len(text_ends) - 1)
        texts = pa.Array.from_buffers(
            pa.large_binary() if is_whole else pa.large_string(),
            len(text_ends) - 1,
            [None, pa.py_buffer(text_ends), pa.py_buffer(text)],
        )
        texts.validate(full=True)
        return rest, ends, VariantParts(self.kinds, codes, rows, words, texts), incomplete != 0

    def assemble(
        self, rest: pa.Array, places: Sequence[int], columns: Sequence[pa.Array], where: str
    ) -> pa.Array:
        """Whole values of what is left of them and columns of paths.

        places: Which paths the columns are of.
        Raises InvalidFileError: A value of a path has no object that it belongs to, or is in the
            rest as well.
        """
        codes, rows, words = [_CODES], [_ROWS], [_ROWS]
        texts: list[pa.Array] = [pa.array([], pa.large_string())]
        count = 0
        for place, column in zip(places, columns, strict=True):
            own = np.flatnonzero(validity.to_flags(own_validity(column), len(column)))
            kept = column.drop_null() if len(own) < len(column) else column
            kind = int(self.kinds[place])
            if kind == TEXT:
                texts.append(kept.cast(pa.large_string()))
                found = np.arange(count, count + len(kept))
                count += len(kept)
            elif kind == 1:
                found = kept.cast(pa.uint8()).to_numpy().astype(np.int64)
            else:
                dtype = np.dtype(_WORDS[kind])
                found = np.frombuffer(
                    kept.buffers()[1], dtype, len(kept), kept.offset * dtype.itemsize
                )
            codes.append(np.full(len(own), place, np.uint32))
            rows.append(own)
            words.append(found.astype(np.int64))
        joined = pa.concat_arrays(texts)
        _, ends, data = joined.buffers()
        try:
            values, value_ends = kernels.assemble_variants(
                *values_of(rest),
                *self.arguments,
                np.concatenate(codes),
                np.concatenate(rows),
                np.concatenate(words),
                np.frombuffer(ends, np.int64, len(joined) + 1, 8 * joined.offset)
                if len(joined)
                else np.zeros(1, np.int64),
                np.frombuffer(data, np.uint8) if data is not None else _NONE,
            )
        except ValueError as error:
            raise InvalidFileError(f"{where}: {error}") from None
        return with_values(rest, values, value_ends)


_CODES, _ROWS = np.empty(0, np.uint32), np.empty(0, np.int64)

with contextlib.suppress(pa.ArrowKeyError):  # another package has registered a type of this name
    pa.register_extension_type(VariantType())
