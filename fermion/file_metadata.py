"""A file's metadata from what its writer collected: CMBs, tail region, directory and footer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from fermion.batch_meta import STREAM_TYPES
from fermion.checksum import crc32c
from fermion.cit import build_cit, build_unindexed
from fermion.cmb import ChunkRecord, build_cmb
from fermion.column_writer import ColumnPlan, EncodedColumn
from fermion.footer import Footer, build_footer, build_sections
from fermion.layout import (
    FILE_STATISTICS_ENTRY,
    FOOTER,
    STRIPE_ENTRY,
    SectionKind,
    Setting,
    align,
)
from fermion.name_index import build_name_index
from fermion.schema_area import build_field_ids
from fermion.statistics import ColumnStatistics, merge_columns
from fermion.version import created_by

FILE_STATISTICS_COLUMNS_MAX = 1000


class ColumnLog:
    """Chunk records and statistics of one column, stripe by stripe."""

    __slots__ = ("has_data", "statistics", "streams")

    def __init__(self, num_streams: int) -> None:
        self.streams: list[list[ChunkRecord]] = [[] for _ in range(num_streams)]
        self.statistics: dict[tuple[str, ...], list[ColumnStatistics]] = {}
        self.has_data = False

    def add(self, column: EncodedColumn) -> None:
        """Note one stripe."""
        for records, stream in zip(self.streams, column.streams, strict=True):
            records.append(stream.record)
        for path, statistics in column.statistics.items():
            self.statistics.setdefault(path, []).append(statistics)
        self.has_data |= not column.all_null

    def merged(self) -> dict[tuple[str, ...], ColumnStatistics]:
        """Statistics of the column's leaves over all stripes."""
        return {path: merge_columns(parts) for path, parts in self.statistics.items()}


@dataclass(frozen=True, slots=True)
class FileContents:
    """What a file's metadata says.

    Attributes
    ----------
    schema_area
        The schema as it is stored.
    plans, logs
        One a column.
    batch_records
        Of the two streams of the batch column; None outside batch mode.
    statistics
        Of each column's leaves, one mapping a column.
    sort_order
        The section of that name; empty: none.
    """

    schema: pa.Schema
    schema_area: bytes
    plans: Sequence[ColumnPlan]
    logs: Sequence[ColumnLog]
    stripe_rows: Sequence[int]
    batch_records: Sequence[Sequence[ChunkRecord]] | None
    statistics: Sequence[Mapping[tuple[str, ...], ColumnStatistics]]
    key_values: Mapping[str, str]
    settings: int
    sort_order: bytes = b""

    def build(self, cmb_offset: int) -> tuple[bytes, int]:
        """Everything from the CMB area to the end of the file.

        Parameters
        ----------
        cmb_offset
            Where it goes in the file; a multiple of 8.

        Returns
        -------
        The bytes, and how many of them follow the CMB area.
        """
        cmbs = list(self._cmbs())
        indexed = not self.settings & Setting.NO_CIT
        area = b"".join(cmbs) if indexed else build_unindexed(cmbs)
        start = cmb_offset + len(area)
        tail, sections = bytearray(_padded(self.schema_area)), {}
        for kind, data in self._sections():
            sections[kind] = (start + len(tail), len(data))
            tail += _padded(data)
        cit = build_cit(cmb_offset, [len(cmb) for cmb in cmbs]) if indexed else b""
        cit_offset = start + len(tail) if indexed else cmb_offset
        tail += cit
        directory = build_sections(sections, bytes(tail))
        end = start + len(tail)
        footer = Footer(
            schema_offset=start,
            schema_length=len(self.schema_area),
            cit_offset=cit_offset,
            cit_length=len(cit),
            cmb_offset=cmb_offset,
            cmb_length=len(area),
            sections_offset=end,
            sections_length=len(directory),
            num_columns=len(self.plans),
            num_rows=sum(self.stripe_rows),
            num_stripes=len(self.stripe_rows),
            num_system_columns=int(self.batch_records is not None),
            file_length=end + len(directory) + FOOTER.itemsize,
            settings=self.settings,
            crc_sections=crc32c(directory),
            created_by=created_by(),
        )
        rest = bytes(tail) + directory + build_footer(footer)
        return area + rest, len(rest)

    def _cmbs(self) -> Iterator[bytes]:
        for plan, log in zip(self.plans, self.logs, strict=True):
            if log.has_data:
                yield build_cmb(plan.node.stream_types(), self.stripe_rows, log.streams)
            else:
                yield b""
        if self.batch_records is not None:
            yield build_cmb(STREAM_TYPES, self.stripe_rows, self.batch_records)

    def _sections(self) -> Iterator[tuple[SectionKind, bytes]]:
        ids = build_field_ids(self.schema)
        if ids is not None:
            yield SectionKind.FIELD_IDS, ids
        if self.key_values:
            yield SectionKind.KEY_VALUE, msgspec.json.encode(self.key_values)
        if any(self.statistics) and len(self.plans) <= FILE_STATISTICS_COLUMNS_MAX:
            yield SectionKind.FILE_STATISTICS, self._file_statistics()
        if self.sort_order:
            yield SectionKind.SORT_ORDER, self.sort_order
        stripes = np.zeros(len(self.stripe_rows), STRIPE_ENTRY)
        stripes["rowCount"] = self.stripe_rows
        stripes["firstRow"][1:] = np.cumsum(self.stripe_rows)[:-1]
        yield SectionKind.STRIPE_TABLE, stripes.tobytes()
        yield SectionKind.NAME_INDEX, build_name_index(self.schema.names)

    def _file_statistics(self) -> bytes:
        entries = [
            (ordinal, int(found.flags), found.min, found.max, found.null_count)
            for ordinal, plan in enumerate(self.plans)
            if (found := self.statistics[ordinal].get((plan.node.name,))) is not None
        ]
        return np.array(entries, FILE_STATISTICS_ENTRY).tobytes()


def _padded(data: bytes) -> bytes:
    return data + bytes(align(len(data)) - len(data))
