"""Every option of the writer and the reader, with its default."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache, cached_property
from typing import Any, Literal, TypedDict, TypeVar

from fermion.arguments import flag, integer, mapping, text
from fermion.deadline import TIMEOUT_S, check_timeout
from fermion.display import short_repr
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.layout import EDITIONS, EncodingId

Profile = Literal["balanced", "compact", "fast", "random"]
PROFILES: tuple[Profile, ...] = ("balanced", "compact", "fast", "random")

KIB, MIB = 1024, 1024 * 1024
STRIPE_BYTES, WIDE_STRIPE_BYTES_MAX = 128 * MIB, 512 * MIB
STRIPE_BYTES_PER_COLUMN = 32 * KIB
"""Chunks of much less are more metadata, requests and dictionaries for the same values."""

COMPRESSION_LEVELS = {"zstd": (-7, 22), "lz4": (1, 12)}
"""Least and greatest level of each codec; zstd's above 19 count as 19."""

COLUMNS_PER_TASK = 32
"""Of many columns: a task for each would cost more time than the work in it."""

_Options = TypeVar("_Options", "WriteOptions", "ReadOptions")
_Class = TypeVar("_Class")


class _ColumnNames(tuple[Any, ...]):
    """What an option names; whether it names a column does not take a look at all of them."""

    @cached_property
    def _found(self) -> frozenset[Any]:
        return frozenset(self)

    def __contains__(self, name: object) -> bool:
        return name in self._found


TRAINING_LANES = 64
TRAINING_WINDOW_ROWS = 1 << 20
"""Of a `TrainingReader`; here, as files and scans name them without importing it."""


@dataclass(frozen=True, slots=True)
class SortKey:
    """One column of a sort order.

    Attributes
    ----------
    name
        Of a top-level column that is no list, map, struct or interval.
    descending
        Greatest first. NaN is greater than every other number.
    nulls_first
        Whether NULL comes before all values, whatever their direction; else after them.
    """

    name: str
    descending: bool = False
    nulls_first: bool = False

    __repr__ = short_repr

    def __post_init__(self) -> None:
        text(self.name, "name")
        _set(self, "descending", flag(self.descending, "descending"))
        _set(self, "nulls_first", flag(self.nulls_first, "nulls_first"))


BlobForm = Literal["bytes", "handles", "references"]


def blob_form(blobs: Any) -> BlobForm:
    """What a caller wants of blob columns.

    Raises InvalidArgumentError: It is none of the forms.
    """
    forms: tuple[BlobForm, ...] = "bytes", "handles", "references"
    if not isinstance(blobs, str) or blobs not in forms:
        raise InvalidArgumentError(f"blobs={blobs!r}: expected one of {forms}")
    return forms[forms.index(blobs)]


@dataclass(frozen=True, slots=True)
class Shred:
    """Which keys of a map, or paths of a Variant column, get columns of their own.

    Attributes
    ----------
    keys
        ``"all"``: every key that is in at least one of 128 rows of a stripe. A number: no more than
        so many keys, the most frequent ones. A list: these keys. A key that was stored without a
        column in a stripe gets none in later ones.
        Of a Variant column they are paths (``user.id``; a name with a dot in quotes: ``'a.b'.id``).
        ``"all"`` takes those that one of 16 rows of a sample has, nine tenths of them with one type
        (whole numbers, doubles, booleans, texts, dates, timestamps of microseconds).
    """

    keys: Literal["all"] | int | Sequence[str] | Sequence[int] = "all"

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if isinstance(self.keys, str):
            if self.keys != "all":
                raise InvalidArgumentError(
                    f"keys={self.keys!r}: expected 'all', a number, or a list of keys"
                )
        elif isinstance(self.keys, Iterable) and not isinstance(self.keys, Mapping):
            _set(self, "keys", _names(self.keys, "keys", (str, int)))
        else:
            _set(self, "keys", integer(self.keys, "keys", minimum=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How a file is written.

    Attributes
    ----------
    profile
        ``balanced`` (size and speed), ``compact`` (smallest), ``fast`` (no entropy coding),
        ``random`` (small blocks for reads of single rows).
    stripe_bytes, stripe_rows
        A stripe closes when it reaches this number of raw Arrow bytes (2 GiB at most) or rows.
        ``stripe_bytes=None``: 128 MiB; for wide files 32 KiB per column, up to 512 MiB
        (`stripe_bytes_for`).
    block_bytes
        Block size of the storage, such as HDFS: a stripe that would cross the end of a block
        starts in the next block, if the padding is at most 5 % of a block. None: storage without
        blocks.
    page_bytes, page_rows_max
        A page closes when its stream reaches this number of raw bytes or slots.
    column_page_bytes
        ``page_bytes`` of single columns, by name. With smaller pages filters skip more of a column,
        and reads of single rows read less.
    codec
        ``zstd``; or ``lz4``, which makes larger files and decodes faster. With ``lz4`` the profile
        ``fast`` also compresses data that become much smaller.
    compression_level
        Level of the codec: -7 to 22 for zstd, 1 to 12 for LZ4; None: the profile's.
    edition
        A named list of encodings; the file uses no others. ``2026`` has all of them.
        ``core-2026`` excludes pcodec, ALP, FSST, LZ4 and dictionaries that stripes share, for
        simple readers. Editions never change; later encodings belong to later editions.
    encodings
        Forced encoding by column name: ``"s.a"`` for a field of a struct; the name of a list or map
        stands for all values in it.
    bloom_filters
        Columns with a Bloom filter per chunk.
    page_bloom_filters
        Columns with a Bloom filter per page: they need more bytes if values repeat from page to
        page, and equality filters read single pages. Both kinds can be combined.
    summaries
        Columns whose chunks also record the number of distinct values and, for integers and
        decimals, their sum; this reads every value.
    global_dictionaries
        Columns whose stripes share one dictionary; the name of a list or map stands for all
        values in it. A stripe that would make the dictionary larger than 1 Mi entries or 16 MiB,
        and all later stripes, do not use it.
    statistics
        False writes no bounds; a sequence of names limits them to these columns.
    shred
        Maps whose keys get columns of their own, by column, each with a `Shred`. One key then costs
        what a column costs; the entries of a map come back sorted by key. Maps with text or
        integers as keys, at the top level; values without dictionaries and run ends.
    sorted_by
        Columns by which the rows are sorted already, most significant first: names (ascending,
        nulls last), or `SortKey`. The file records it; a row out of this order is an error.
    checksum
        Checksum of pages: ``crc32c``, ``xxh3``, ``crc32`` or ``none``. Metadata always has CRC32C.
        XXH3 is several times faster for large pages.
    column_index
        False omits the column index table. This saves 8 bytes per column, but finding a column
        then reads the metadata of all columns. Only for files of few columns.
    compress_schema
        Whether schema metadata, such as those of pandas for each column, are compressed; types are
        always compressed.
    column_order
        Columns whose data come first in every stripe, in this order, so that columns that are read
        together are stored together; the others follow in the order of the schema, which does not
        change.
    blob_inline_bytes
        Values of blob columns (field metadata ``fermion:blob=true``) of at most so many bytes are
        stored among the other columns; longer ones lie by themselves in the file.
    align
        64 aligns the values of plain pages to multiples of 64 in the file, so that a memory-mapped
        file returns them without copying; costs up to 63 bytes per page. 8: no such alignment.
    threads
        Threads that encode columns; None: the number of processors.
    durable
        Whether fsync is called for a local file before it gets its name.
    read_back
        Whether the finished file is read back and verified, as `FermionFile.verify` does, before it
        gets its name: every checksum, every invariant, every value against its bounds. A file that
        fails raises an error and is removed. On remote storage it is written under a temporary
        name, read, and then moved. The bytes may come from the cache of the operating system.
        Costs about as much as reading the file.
    """

    profile: Profile = "balanced"
    stripe_bytes: int | None = None
    stripe_rows: int = 1024 * 1024
    block_bytes: int | None = None
    page_bytes: int = 512 * 1024
    page_rows_max: int = 131_072
    column_page_bytes: Mapping[str, int] = field(default_factory=dict)
    codec: Literal["zstd", "lz4"] = "zstd"
    compression_level: int | None = None
    edition: str = "2026"
    encodings: Mapping[str, str] = field(default_factory=dict)
    bloom_filters: Sequence[str] = ()
    page_bloom_filters: Sequence[str] = ()
    summaries: Sequence[str] = ()
    global_dictionaries: Sequence[str] = ()
    statistics: bool | Sequence[str] = True
    shred: Mapping[str, Shred] = field(default_factory=dict)
    sorted_by: Sequence[str | SortKey] = ()
    checksum: Literal["crc32c", "xxh3", "crc32", "none"] = "crc32c"
    column_index: bool = True
    compress_schema: bool = False
    column_order: Sequence[str] = ()
    blob_inline_bytes: int = 4096
    align: Literal[8, 64] = 8
    threads: int | None = None
    durable: bool = True
    read_back: bool = False

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise InvalidArgumentError(f"profile={self.profile!r}: expected one of {PROFILES}")
        if self.checksum not in ("crc32c", "xxh3", "crc32", "none"):
            raise InvalidArgumentError(
                f"checksum={self.checksum!r}: expected 'crc32c', 'xxh3', 'crc32' or 'none'"
            )
        if self.codec not in ("zstd", "lz4"):
            raise InvalidArgumentError(f"codec={self.codec!r}: expected 'zstd' or 'lz4'")
        if not isinstance(self.edition, str) or self.edition not in EDITIONS:
            raise InvalidArgumentError(
                f"edition={self.edition!r}: expected one of {', '.join(map(repr, EDITIONS))}"
            )
        if self.codec == "lz4":
            self.check_edition(EncodingId.LZ4, "codec='lz4'")
        if self.global_dictionaries:
            self.check_edition(EncodingId.GLOBAL_DICTIONARY, "global_dictionaries")
        if self.align not in (8, 64):
            raise InvalidArgumentError(f"align={self.align!r}: expected 8 or 64")
        self._check_numbers()
        self._check_columns()
        for name in ("column_index", "compress_schema", "durable", "read_back"):
            _set(self, name, flag(getattr(self, name), name))

    def _check_numbers(self) -> None:
        for name in ("stripe_rows", "page_bytes", "page_rows_max"):
            _set(self, name, integer(getattr(self, name), name, minimum=1))
        inline = integer(self.blob_inline_bytes, "blob_inline_bytes", minimum=0, maximum=2**20)
        _set(self, "blob_inline_bytes", inline)
        for name in ("stripe_bytes", "block_bytes", "threads"):
            if getattr(self, name) is not None:
                _set(self, name, integer(getattr(self, name), name, minimum=1))
        if self.compression_level is not None:
            level, (low, high) = self.compression_level, COMPRESSION_LEVELS[self.codec]
            level = integer(level, "compression_level", minimum=low, maximum=high)
            _set(self, "compression_level", level)

    def _check_columns(self) -> None:
        for name in (
            "bloom_filters",
            "page_bloom_filters",
            "summaries",
            "global_dictionaries",
            "column_order",
        ):
            _set(self, name, _names(getattr(self, name), name))
        if not isinstance(self.statistics, bool):
            _set(self, "statistics", _names(self.statistics, "statistics"))
        _set(self, "sorted_by", _names(self.sorted_by, "sorted_by", (str, SortKey)))
        for name in ("column_page_bytes", "encodings", "shred"):
            given = getattr(self, name)
            if not isinstance(given, Mapping):
                raise TypeError(
                    f"{name}={given!r}: expected a mapping by column, found {type(given).__name__}"
                )
            _names(given, name)
        for name, value in self.column_page_bytes.items():
            integer(value, f"column_page_bytes[{name!r}]", minimum=1)
        for name, keys in self.shred.items():
            _of_class(keys, Shred, f"shred[{name!r}]")

    def check_edition(self, encoding: EncodingId, wanted: str) -> None:
        """Raise an error if an option needs an encoding that is not in the edition.

        Parameters
        ----------
        wanted
            The option that needs it, for the message.

        Raises
        ------
        InvalidArgumentError
        TypeError
            ``encoding`` is none, or ``wanted`` no text.
        """
        if not isinstance(encoding, EncodingId):
            found = type(encoding).__name__
            raise TypeError(f"encoding={encoding!r}: expected an EncodingId, found {found}")
        text(wanted, "wanted")
        if encoding not in EDITIONS[self.edition]:
            known = [name for name, encodings in EDITIONS.items() if encoding in encodings]
            raise InvalidArgumentError(
                f"{wanted}: edition {self.edition!r} lacks the encoding {encoding.name.lower()}; "
                f"expected an edition that has it: {', '.join(map(repr, known))}"
            )

    def stripe_bytes_for(self, num_columns: int) -> int:
        """Raw bytes at which a stripe closes, for a number of top-level columns."""
        num_columns = integer(num_columns, "num_columns", minimum=0)
        if self.stripe_bytes is not None:
            return self.stripe_bytes
        wanted = max(STRIPE_BYTES, STRIPE_BYTES_PER_COLUMN * num_columns)
        return min(wanted, WIDE_STRIPE_BYTES_MAX)

    @property
    def sort_keys(self) -> tuple[SortKey, ...]:
        """``sorted_by``, with its defaults."""
        return tuple(SortKey(key) if isinstance(key, str) else key for key in self.sorted_by)

    def with_overrides(self, overrides: Mapping[str, Any]) -> WriteOptions:
        """Copy the options with some of them replaced."""
        return _replaced(self, overrides)


class WriteOverrides(TypedDict, total=False):
    """Single options of `WriteOptions` as keyword arguments, for type checkers."""

    profile: Profile
    stripe_bytes: int | None
    stripe_rows: int
    block_bytes: int | None
    page_bytes: int
    page_rows_max: int
    column_page_bytes: Mapping[str, int]
    codec: Literal["zstd", "lz4"]
    compression_level: int | None
    edition: str
    encodings: Mapping[str, str]
    bloom_filters: Sequence[str]
    page_bloom_filters: Sequence[str]
    summaries: Sequence[str]
    global_dictionaries: Sequence[str]
    statistics: bool | Sequence[str]
    shred: Mapping[str, Shred]
    sorted_by: Sequence[str | SortKey]
    checksum: Literal["crc32c", "xxh3", "crc32", "none"]
    column_index: bool
    compress_schema: bool
    column_order: Sequence[str]
    blob_inline_bytes: int
    align: Literal[8, 64]
    threads: int | None
    durable: bool
    read_back: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How a file is read.

    Attributes
    ----------
    threads
        Threads that decode columns; None: the number of processors.
    prefetch_bytes
        Bytes that `open` reads from the end of the file; None: 64 KiB for local files, 2 MiB on
        HDFS, otherwise 512 KiB.
    eager_load_threshold
        Column metadata up to this many bytes are read at once if that saves requests.
    coalesce_gap_bytes, coalesce_span_bytes
        Ranges with a gap up to this size become one request, of at most the span. None: 32 KiB and
        4 MiB for local files, otherwise 1 MiB and 16 MiB.
    keep_dictionaries
        Return dictionary-encoded columns as Arrow dictionaries. If the stripes of a column share a
        dictionary, all batches have it; if each stripe has its own, it changes per stripe; if a
        stripe has none, the column is decoded.
    memory_map
        Map local files into memory instead of reading them, which saves a copy. Results may be
        views of the mapping. A file must not change while it is open: if it is truncated, or its
        disk fails, the process ends with SIGBUS. Other files are read as without this option.
    verify_checksums
        Verify page checksums before decoding.
    use_statistics
        Prune by statistics; False reads everything (for tests).
    timeout_s
        Time limit of requests to a storage, in seconds, including retries: one limit for all
        requests of opening the file, and one for each range that is read later. The total time of
        a read is not limited. Local files have no limit. Storages whose client is not asynchronous,
        except those of HDFS, have only the limit of the client.
    """

    threads: int | None = None
    prefetch_bytes: int | None = None
    eager_load_threshold: int = 8 * MIB
    coalesce_gap_bytes: int | None = None
    coalesce_span_bytes: int | None = None
    keep_dictionaries: bool = False
    memory_map: bool = False
    verify_checksums: bool = True
    use_statistics: bool = True
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        check_timeout(self.timeout_s)
        for name, minimum in (
            ("threads", 1),
            ("prefetch_bytes", 0),
            ("coalesce_gap_bytes", 0),
            ("coalesce_span_bytes", 0),
        ):
            if getattr(self, name) is not None:
                _set(self, name, integer(getattr(self, name), name, minimum=minimum))
        threshold = integer(self.eager_load_threshold, "eager_load_threshold", minimum=0)
        _set(self, "eager_load_threshold", threshold)
        for name in ("keep_dictionaries", "memory_map", "verify_checksums", "use_statistics"):
            _set(self, name, flag(getattr(self, name), name))

    def with_overrides(self, overrides: Mapping[str, Any]) -> ReadOptions:
        """Copy the options with some of them replaced."""
        return _replaced(self, overrides)


def write_options(given: WriteOptions | None) -> WriteOptions:
    """The options that a caller passed, the default ones for None.

    Raises TypeError: They are none for writing.
    """
    return WriteOptions() if given is None else _of_class(given, WriteOptions)


def read_options(given: ReadOptions | None) -> ReadOptions:
    """The options that a caller passed, the default ones for None.

    Raises TypeError: They are none for reading.
    """
    return ReadOptions() if given is None else _of_class(given, ReadOptions)


def _of_class(given: Any, wanted: type[_Class], name: str = "options") -> _Class:
    if not isinstance(given, wanted):
        raise TypeError(f"{name}: expected {wanted.__name__}, found {type(given).__name__}")
    return given


def _set(options: object, name: str, value: Any) -> None:
    object.__setattr__(options, name, value)  # the class is frozen for everybody else


def _names(value: Any, name: str, kinds: tuple[type, ...] = (str,)) -> tuple[Any, ...]:
    """Names of columns; one name alone is no list of its letters."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise TypeError(f"{name}={value!r}: expected a list of names, found {type(value).__name__}")
    found = _ColumnNames(value)
    for each in found:
        if not isinstance(each, kinds):
            raise TypeError(f"{name}: expected names, found {each!r} of {type(each).__name__}")
    return found


def _replaced(options: _Options, overrides: Mapping[str, Any]) -> _Options:
    mapping(overrides if overrides is not None else (), "overrides")
    known = type(options).__dataclass_fields__
    unknown = [name for name in overrides if name not in known]
    if unknown:
        raise InvalidArgumentError(
            f"unknown option {unknown[0]!r}; expected one of {', '.join(known)}"
        )
    return replace(options, **overrides)


def thread_count(requested: int | None) -> int:
    """The threads to use: what was asked for, or one a processor."""
    return requested if requested is not None else _processors()


@cache
def _processors() -> int:
    """How many there are; the question takes a twentieth of opening a small file."""
    return os.cpu_count() or 1


def columns_per_task(columns: int) -> int:
    """Columns that a thread takes at once: one where there are few, so that all threads work."""
    return COLUMNS_PER_TASK if columns > 4 * COLUMNS_PER_TASK else 1
