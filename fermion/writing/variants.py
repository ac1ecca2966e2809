"""Variant values of a stripe → the columns of some of their paths, and the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial

import numpy as np
import pyarrow as pa

from fermion import kernels
from fermion.columns.variants import (
    TYPES,
    Path,
    PathTree,
    Values,
    VariantParts,
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

        Returns: What is in no column, with ranks in place of offsets, and what makes the columns.

        Raises InvalidArgumentError: Bytes are no Variant value.
        """
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        array = pa.concat_arrays(chunks) if chunks else pa.array([], self.field.type)
        values = values_of(array)
        try:
            self._choose(values, len(array))
            kinds = np.array(list(self.paths.values()), np.uint8)
            rest, ends, parts, incomplete = PathTree(list(self.paths), kinds).split(values)
            kernels.variant_ranks(rest, ends, back=False)
        except (ValueError, pa.ArrowInvalid) as error:
            raise InvalidArgumentError(f"shred: column {self.field.name!r}: {error}") from None
        self.complete.append(~incomplete)
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
        names, first = self.columns.plans.names, 0
        for arrays in parts.columns(rows):
            stop = first + len(arrays)
            yield first, pa.Table.from_arrays(arrays, names[first:stop])
            first = stop
