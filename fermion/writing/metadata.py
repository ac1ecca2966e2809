"""A file's metadata from what its writer collected: CMBs, tail region, directory and footer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from fermion.columns.types import is_variant
from fermion.errors import InvalidArgumentError
from fermion.exports import LoadedWhenAskedFor, dataclass
from fermion.io.checksum import crc32c
from fermion.layout import (
    FILE_STATISTICS_ENTRY,
    FOOTER,
    STRIPE_ENTRY,
    Incompat,
    SectionKind,
    Setting,
    padded,
)
from fermion.metadata.cit import build_cit, build_indexed, build_name_index, build_unindexed
from fermion.metadata.cmb import ChunkRecord, build_cmb
from fermion.metadata.footer import (
    KNOWN_SIZES,
    FileIdentity,
    Footer,
    build_footer,
    build_sections,
    minor_version,
)
from fermion.metadata.map_keys import build_map_keys
from fermion.metadata.schema_area import build_field_ids
from fermion.pages.batches import stream_types
from fermion.version import created_by
from fermion.writing.column import ColumnPlans
from fermion.writing.log import FileLog
from fermion.writing.maps import ShreddedMap

if TYPE_CHECKING:
    import msgspec

    from fermion.writing.variants import ShreddedVariant
else:
    msgspec = LoadedWhenAskedFor("msgspec")

FILE_STATISTICS_COLUMNS_MAX = 1000


@dataclass(frozen=True, slots=True)
class FileContents:
    """What a file's metadata says.

    schema_area: The schema as it is stored.
    batch_records: Of the streams of the batch column: three if it has positions, else two; None
        outside batch mode.
    identity: What tells the file from others; its place key binds checksums to their places.
    sort_order, ordered_dictionaries: The sections of these names; empty: none.
    maps: Maps and Variant columns whose keys and paths have columns.
    """

    schema: pa.Schema
    schema_area: bytes
    plans: ColumnPlans
    log: FileLog
    stripe_rows: Sequence[int]
    batch_records: Sequence[Sequence[ChunkRecord]] | None
    key_values: Mapping[str, str]
    settings: int
    identity: FileIdentity
    sort_order: bytes = b""
    ordered_dictionaries: bytes = b""
    maps: Sequence[ShreddedMap | ShreddedVariant] = ()
    has_blobs: bool = False

    def build(self, cmb_offset: int) -> tuple[bytearray, int]:
        """Everything from the CMB area to the end of the file.

        cmb_offset: Where it goes in the file; a multiple of 8.
        Returns: The bytes, and how many of them follow the CMB area.
        """
        cmbs, lengths = self.log.blocks()
        has_positions = self.batch_records is not None and len(self.batch_records) > 2
        if self.batch_records is not None:
            types = stream_types(has_positions=has_positions)
            cmbs += build_cmb(types, self.stripe_rows, self.batch_records)
            lengths = np.append(lengths, len(cmbs) - lengths.sum())
        for each in self.maps:
            own, own_lengths = each.columns.log.blocks()
            cmbs, lengths = cmbs + own, np.append(lengths, own_lengths)
        features = Incompat.BATCH_POSITIONS if has_positions else Incompat(0)
        features |= Incompat.MAP_KEYS if self.maps else 0
        features |= Incompat.BLOBS if self.has_blobs else 0
        if any(is_variant(each.field) for each in self.maps):
            features |= Incompat.VARIANT_PATHS | Incompat.VARIANT_RANKS
        indexed = not self.settings & Setting.NO_CIT
        build_area = build_indexed if indexed else build_unindexed
        area = build_area(cmbs, lengths, cmb_offset, self.identity.place_key)
        cit = build_cit(cmb_offset, lengths) if indexed else b""
        footer = blank_footer(
            cmbs=(cmb_offset, len(area)),
            columns=(len(self.plans), len(lengths) - len(self.plans)),
            num_rows=sum(self.stripe_rows),
            num_stripes=len(self.stripe_rows),
            settings=self.settings,
            identity=self.identity,
            incompat=int(features),
        )
        statistics = b""
        if len(self.plans) <= FILE_STATISTICS_COLUMNS_MAX:
            statistics = self._file_statistics()
        sections = {
            SectionKind.FIELD_IDS: build_field_ids(self.schema) or b"",
            SectionKind.KEY_VALUE: encode_key_values(self.key_values),
            SectionKind.FILE_STATISTICS: statistics,
            SectionKind.SORT_ORDER: self.sort_order,
            SectionKind.ORDERED_DICTIONARIES: self.ordered_dictionaries,
            SectionKind.MAP_KEYS: build_map_keys(
                {each.ordinal: each.stored() for each in self.maps},
                [len(each.keys) for each in self.maps],
            )
            if self.maps
            else b"",
            SectionKind.STRIPE_TABLE: build_stripe_table(self.stripe_rows),
            SectionKind.NAME_INDEX: build_name_index(self.schema.names),
        }
        rest = build_end(footer, self.schema_area, sections, cit)
        return area + rest, len(rest)

    def _file_statistics(self) -> bytes:
        entries = [
            (ordinal, int(found.flags), found.min, found.max, found.null_count)
            for ordinal, name in enumerate(self.plans.names)
            if (found := self.log.column(ordinal).merged().get((name,))) is not None
        ]
        return np.array(entries, FILE_STATISTICS_ENTRY).tobytes()


def blank_footer(
    *,
    cmbs: tuple[int, int],
    columns: tuple[int, int],
    num_rows: int,
    num_stripes: int,
    settings: int,
    identity: FileIdentity,
    incompat: int = 0,
    sizes: tuple[int, ...] = KNOWN_SIZES,
) -> Footer:
    """A footer that does not say yet where what follows the CMB area is.

    cmbs: Offset and length of the CMB area.
    columns: How many there are, and how many system columns behind them.
    """
    (cmb_offset, cmb_length), (num_columns, num_system_columns) = cmbs, columns
    incompat |= Incompat.PLACED if identity.place_key else 0
    return Footer(
        schema_offset=0,
        schema_length=0,
        cit_offset=cmb_offset,
        cit_length=0,
        cmb_offset=cmb_offset,
        cmb_length=cmb_length,
        sections_offset=0,
        sections_length=0,
        num_columns=num_columns,
        num_rows=num_rows,
        num_stripes=num_stripes,
        num_system_columns=num_system_columns,
        file_length=0,
        settings=settings,
        crc_sections=0,
        created_by=created_by(),
        identity=identity,
        incompat=incompat,
        minor=minor_version(incompat),
        sizes=sizes,
    )


def build_end(
    footer: Footer, schema_area: bytes, sections: Mapping[SectionKind, bytes], cit: bytes
) -> bytes:
    """Tail region, section directory and footer: all that follows the CMB area.

    footer: A `blank_footer`; where things are is filled in.
    sections: Those that are empty are left out, but for the stripe table.
    cit: Empty for a file without one.
    """
    start = footer.tail_offset
    tail, places = bytearray(padded(schema_area)), {}
    for kind, data in sections.items():
        if data or kind is SectionKind.STRIPE_TABLE:
            places[kind] = (start + len(tail), len(data))
            tail += padded(data)
    cit_offset = start + len(tail) if footer.has_cit else footer.cit_offset
    tail += cit
    directory = build_sections(places, bytes(tail))
    end = start + len(tail)
    whole = replace(
        footer,
        schema_offset=start,
        schema_length=len(schema_area),
        cit_offset=cit_offset,
        cit_length=len(cit),
        sections_offset=end,
        sections_length=len(directory),
        file_length=end + len(directory) + FOOTER.itemsize,
        crc_sections=crc32c(directory),
    )
    return bytes(tail) + directory + build_footer(whole)


def build_stripe_table(stripe_rows: Sequence[int]) -> bytes:
    """The section STRIPE_TABLE."""
    stripes = np.zeros(len(stripe_rows), STRIPE_ENTRY)
    stripes["rowCount"] = stripe_rows
    stripes["firstRow"][1:] = np.cumsum(stripe_rows)[:-1]
    return stripes.tobytes()


def key_value_texts(given: Any) -> dict[str, str]:
    """The user's metadata as the section KEY_VALUE holds them: text, whatever was passed.

    given: A mapping of text or bytes to text or bytes, or None.
    Raises TypeError: It is no mapping, or a key or a value is neither text nor bytes.
    Raises InvalidArgumentError: Bytes are not UTF-8, text has halves of surrogate pairs, or a key
        comes as both.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        found = type(given).__name__
        raise TypeError(f"key_value_metadata: expected a mapping of text to text, found {found}")
    texts = {_text(key, "a key"): _text(value, f"{key!r}") for key, value in given.items()}
    if len(texts) < len(given):
        raise InvalidArgumentError("key_value_metadata: a key comes as text and as bytes")
    return texts


def _text(value: Any, what: str) -> str:
    if not isinstance(value, (str, bytes)):
        raise TypeError(
            f"key_value_metadata: {what}: expected text or bytes, found {type(value).__name__}"
        )
    try:
        return value.decode() if isinstance(value, bytes) else value.encode().decode()
    except UnicodeError as error:
        raise InvalidArgumentError(
            f"key_value_metadata: {what}: expected UTF-8, found {value[:20]!r}; the metadata of a "
            f"schema may be any bytes"
        ) from error


def encode_key_values(key_values: Mapping[str, str]) -> bytes:
    """The section KEY_VALUE; nothing where there are no metadata."""
    return msgspec.json.encode(key_values) if key_values else b""
