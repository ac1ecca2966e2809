"""Variant values of a stripe → the columns of some of their paths, and the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns.variants import (
    TEXT,
    TYPES,
    Path,
    PathTree,
    Values,
    path_text,
    paths_to_shred,
    values_of,
    with_values,
)
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.metadata.map_keys import build_paths
from fermion.options import Shred, WriteOptions
from fermion.writing.column import ColumnPlans
from fermion.writing.flat import ColumnSet, Tables

SAMPLE_ROWS = 2048
"""Of a stripe, in which its paths are looked for."""
SPARSE_ROWS = 16
"""By default a path that fewer of so many rows have gets no column."""
SAME_TYPE = 0.9
"""Of the values of a path: at least this part has the type of its column."""
PATHS_MAX = 1 << 16
NAMES_BYTES_MAX = 4 << 20
GROUP_BYTES = 64 * 1024 * 1024
"""Of the columns of paths that are in memory at once."""


class VariantParts(NamedTuple):
    """Values of a stripe, taken apart.

    codes, rows, words: ``uint32`` and ``int64``, shape (entries,), by row: which path, which row,
        and the value; of text its number.
    texts: All texts.
    """

    codes: np.ndarray
    rows: np.ndarray
    words: np.ndarray
    texts: pa.Array


@dataclass(slots=True)
class ShreddedVariant:
    """A Variant column some paths of which get columns, over all stripes of a file.

    paths: Those that have a column, and the number of its type.
    complete: Of each stripe, ``bool``, shape (paths,): where the rest holds nothing of a path but
        nulls.
    """

    ordinal: int
    field: pa.Field
    chosen: Shred
    options: WriteOptions
    columns: ColumnSet
    wanted: frozenset[Path] = frozenset()
    paths: dict[Path, int] = field(default_factory=dict)
    complete: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(
        cls, ordinal: int, field: pa.Field, options: WriteOptions, where: str
    ) -> ShreddedVariant:
        """A column that the options name.

        Raises InvalidArgumentError: A path that they name is none.
        """
        chosen = options.shred[field.name]
        wanted = paths_to_shred(chosen, f"{where}: shred: column {field.name!r}")
        columns = ColumnSet.of(ColumnPlans(pa.schema([]), options), options, ())
        return cls(ordinal, field, chosen, options, columns, wanted)

    @property
    def keys(self) -> dict[Path, int]:
        """The paths that have columns."""
        return self.paths

    def stored(self) -> bytes:
        """The paths as the section MAP_KEYS has them."""
        flags = np.zeros((len(self.complete), len(self.paths)), bool)
        for stripe, found in enumerate(self.complete):
            flags[stripe, : len(found)] = found
        return build_paths(list(map(path_text, self.paths)), list(self.paths.values()), flags)

    def split(self, column: pa.ChunkedArray) -> tuple[pa.Array, Callable[[], Tables]]:
        """Take the values of a stripe apart; paths that are new may get columns.

        Returns: What is in no column, and what makes the columns.

        Raises InvalidArgumentError: Bytes are no Variant value.
        """
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        array = pa.concat_arrays(chunks) if chunks else pa.array([], self.field.type)
        values = values_of(array)
        try:
            self._choose(values, len(array))
            kinds = np.array(list(self.paths.values()), np.uint8)
            incomplete = np.zeros(len(kinds), np.uint8)
            rest, ends, codes, rows, words, text = kernels.split_variants(
                *values, *PathTree(list(self.paths), kinds).arguments, incomplete
            )
            is_text = kinds[codes] == TEXT
            text_ends = np.append(0, words[is_text])
            words[is_text] = np.arange(len(text_ends) - 1)
            texts = pa.Array.from_buffers(
                pa.large_string(),
                len(text_ends) - 1,
                [None, pa.py_buffer(text_ends), pa.py_buffer(text)],
            )
            texts.validate(full=True)
        except (ValueError, pa.ArrowInvalid) as error:
            raise InvalidArgumentError(f"shred: column {self.field.name!r}: {error}") from None
        self.complete.append(incomplete == 0)
        parts = VariantParts(codes, rows, words, texts)
        return with_values(array, rest, ends), partial(self._tables, parts, len(array))

    def _choose(self, values: Values, rows: int) -> None:
        """Give columns to the paths that a sample of rows has often, or that are named."""
        sample = np.unique(np.linspace(0, max(rows - 1, 0), SAMPLE_ROWS).astype(np.int64))[:rows]
        parents = np.empty(PATHS_MAX, np.int32)
        ends = np.empty(PATHS_MAX + 1, np.int64)
        text = np.empty(NAMES_BYTES_MAX, np.uint8)
        counts = np.zeros((PATHS_MAX, len(TYPES)), np.uint32)
        found = kernels.variant_paths(*values, sample, parents, ends, text, counts.reshape(-1))
        kinds = 1 + np.argmax(counts[:found, 1:], axis=1)
        best = counts[np.arange(found), kinds].astype(np.int64)
        total = counts[:found].sum(axis=1)
        names: list[Path] = [()]
        raw = text[: ends[found]].tobytes()
        for node in range(1, found):
            name = raw[ends[node] : ends[node + 1]].decode()
            names.append((*names[parents[node]], name))
        if isinstance(self.chosen.keys, tuple):
            often = best > 0
        else:
            often = (best * SPARSE_ROWS >= len(sample)) & (best >= total * SAME_TYPE) & (best > 0)
        order = np.argsort(-best, kind="stable")
        new = [
            int(at)
            for at in order[often[order]].tolist()
            if names[at] and names[at] not in self.paths
        ]
        if isinstance(self.chosen.keys, tuple):
            new = [at for at in new if names[at] in self.wanted]
        elif isinstance(self.chosen.keys, int):
            new = new[: max(self.chosen.keys - len(self.paths), 0)]
        for at in sorted(new):
            self.paths[names[at]] = int(kinds[at])
        if new:
            fields = [
                pa.field(f"{self.field.name}.{path_text(path)}", TYPES[kind])
                for path, kind in self.paths.items()
            ]
            self.columns.grow(fields, self.options)

    def _tables(self, parts: VariantParts, rows: int) -> Tables:
        """The columns of paths of a stripe, some at once, and the place of the first."""
        names = self.columns.plans.names
        kinds = list(self.paths.values())
        step = max(GROUP_BYTES // max(8 * rows, 1), 1)
        for first in range(0, len(names), step):
            some = kinds[first : first + step]
            out = np.zeros((len(some), rows), np.int64)
            bits = np.zeros((len(some), (rows + 7) // 8), np.uint8)
            kernels.spread_keys(
                parts.words,
                parts.codes,
                parts.rows,
                np.empty(0, np.uint8),
                np.arange(len(kinds)) - first,
                rows,
                out.reshape(-1),
                bits.reshape(-1),
            )
            arrays = [
                _column(kind, values, flags, parts.texts)
                for kind, values, flags in zip(some, out, bits, strict=True)
            ]
            yield first, pa.Table.from_arrays(arrays, names[first : first + step])


def _column(kind: int, words: np.ndarray, bits: np.ndarray, texts: pa.Array) -> pa.Array:
    """The column of a path: null where a row has no value."""
    dtype, valid = TYPES[kind], pa.py_buffer(bits)
    found = pa.Array.from_buffers(pa.int64(), len(words), [valid, pa.py_buffer(words)])
    if kind == TEXT:
        return texts.take(found).cast(dtype)
    return found.view(dtype) if dtype.bit_width == 64 else found.cast(pa.int32()).cast(dtype)
