"""Properties kept in a table's schema: one table of their names, kinds, defaults and meanings.

`PROPERTIES` is that table; documentation, messages and parsing follow it. Names of tables with a
primary key are those of Paimon with ``_`` for ``-``; the spelling with ``-`` is taken too.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from datetime import timedelta
from typing import Any, Literal, get_args

import pyarrow as pa

import fermion
from fermion.arguments import mapping
from fermion.engine import is_variant, keys_to_shred
from fermion.errors import InvalidArgumentError
from fermion.exports import dataclass
from fermion.forks import cached_property
from fermion_table.schema.property_kinds import (
    AnyColumns,
    Choice,
    Column,
    Columns,
    Duration,
    Fields,
    Flag,
    Kind,
    MapKeys,
    Number,
    Profile,
    Shredded,
    Size,
    Text,
    Word,
    check_no_repeats,
    nearest,
    spelled_keys,
)
from fermion_table.schema.schema import TableSchema

ChangelogProducer = Literal["none", "input", "lookup", "full_compaction"]

PRODUCERS: tuple[ChangelogProducer, ...] = get_args(ChangelogProducer)
RESERVED = ("file.", "fermion.")
"""Beginnings of names that are kept for properties of ours."""
BLOB_PROPERTY = "fermion.blob"
"""Names the columns of a new table whose values are blobs; their fields say so from then on."""
COLUMN_FILES_DEFAULT = 8
MERGED_FILES = "compaction.min.file_num"
"""Of a table without a primary key: how many files its writers merge after a commit."""
INDEX_ROWS_MIN = 10_000
STATISTICS_COLUMNS_MAX = 32
"""Leaf columns, beside partition, key and sort columns, whose statistics entries keep."""
_LIKENESS = 0.85
"""A name as like one of `PROPERTIES` as this is taken for a slip, and refused."""
TIME_FIELD = "record_level.time_field"
MAINTAIN = "fermion.maintain."
"""Beginning of the names of a policy of maintenance."""
MIRROR = "fermion.mirror."
"""Beginning of the names of mirrors."""
SHRED = "fermion.shred."
"""Beginning of the names that say which keys of a map get columns; the map's name follows."""
STATS_KEYS = "fermion.stats.keys"


@dataclass(frozen=True)
class Property:
    """One property, or a family of properties with a part that varies.

    name: With ``_``. ``<column>``, ``<columns>`` and ``<engine>`` stand for the part that varies.
    kind: The form of its value.
    default: The value, as text, of a table that does not set it; None: there is none.
    meaning: In Markdown, for the documentation.
    shown_default: The default in words, where it is no fixed value.
    """

    name: str
    kind: Kind
    default: str | None
    meaning: str
    shown_default: str = ""

    @cached_property
    def value(self) -> Any:
        """The default, parsed; None where there is none."""
        return None if self.default is None else self.kind.parse(self.name, self.default)


OF_ALL_TABLES = (
    Property(
        *("target_file_size", Size(), "256MiB"),
        "size of data files, for writers and compaction",
    ),
    Property(
        *("write_buffer_size", Size(), "512MiB"),
        "memory that a writer uses before it writes",
    ),
    Property(
        *(MERGED_FILES, Number(2), None),
        "of a table without a primary key: who commits [merges the newest files]"
        "(operations.md#many-small-commits) of a partition once so many have about as many rows, "
        "such as `10`",
        "writers merge none",
    ),
    Property(
        *("column_files_max", Number(0), str(COLUMN_FILES_DEFAULT)),
        "`compact()` rewrites a data file that has more "
        "[column files](schema.md#add-columns-with-values)",
    ),
    Property(
        *("statistics_columns", AnyColumns(), None),
        "columns whose statistics the metadata keeps in addition to the first 32, with commas "
        "between them",
    ),
    Property(
        *("index.rows_min", Number(0), str(INDEX_ROWS_MIN)),
        "data files with fewer rows get no [index](indexes.md): they are read as quickly without",
    ),
    Property(
        *("file.profile", Profile(), None),
        "profile of the data files: `balanced`, `compact`, `fast` or `random`",
        "`balanced`",
    ),
    Property(
        *(f"{SHRED}<column>", Shredded(), None),
        "keys of a map, or paths of Variant, that get [columns of their own](feature_maps.md): "
        "`all`, the number of most frequent ones, or these with commas between them",
    ),
    Property(
        *(STATS_KEYS, MapKeys(), None),
        "keys of maps, such as `features['age']`, whose statistics the metadata keeps, with commas "
        f"between them; `{SHRED}<column>` gives them columns",
    ),
    Property(
        *("consumer.expiration_time", Duration(), None),
        "time after which a [consumer](../table_format.md#consumers) that has said nothing is "
        "forgotten when snapshots expire",
        "never",
    ),
    Property("comment", Text(), None, "what the table is about; `COMMENT` in SQL of Spark"),
    Property(
        *(f"{MAINTAIN}compact", Flag(), "true"),
        "[`maintain()`](maintenance.md#maintain-by-a-policy) compacts files",
    ),
    Property(*(f"{MAINTAIN}expire", Flag(), "true"), "`maintain()` expires snapshots"),
    Property(*(f"{MAINTAIN}snapshot_age", Duration(), "7 d"), "age from which on snapshots expire"),
    Property(
        *(f"{MAINTAIN}snapshots_min", Number(), "10"),
        "number of newest snapshots that stay however old they are",
    ),
    Property(*(f"{MAINTAIN}remove_orphans", Flag(), "true"), "`maintain()` removes orphan files"),
    Property(
        *(f"{MAINTAIN}orphan_age", Duration(), "3 d"),
        "age from which on orphan files are removed: longer than any writer takes",
    ),
    Property(
        *(f"{MIRROR}<name>", Text(), None),
        "a [mirror](mirrors.md) of the table: set by `mirrors.create` and `mirrors.drop`",
    ),
)
OF_KEYED_TABLES = (
    Property(
        *("bucket", Number(), "1"),
        "number of buckets of each partition that gets its first rows",
    ),
    Property(
        *("bucket_key", Columns(), None),
        "columns of the key that decide the bucket, with commas between them",
        "the key without the partition columns",
    ),
    Property(
        *("merge_engine", Word(), "deduplicate"),
        "`deduplicate`, `partial_update`, `aggregation` or `first_row`",
    ),
    Property(
        *("ignore_delete", Flag(), "false"),
        "skip rows of kind `-D` and `-U`; `<merge engine>.ignore_delete` does the same",
    ),
    Property("<engine>.ignore_delete", Flag(), "false", ""),
    Property("sequence.field", Columns(), None, "columns that order the rows of a key"),
    Property(
        *("sequence.field.sort_order", Choice(("ascending", "descending")), "ascending"),
        "`ascending` or `descending`",
    ),
    Property(
        *("sequence.deletion_expire_time", Duration(), None),
        "time after which compaction forgets [deletions](../primary_key.md#rows-that-arrive-late), "
        "counted from their first sequence field",
        "never",
    ),
    Property(
        "sequence.deletion_time_type",
        Choice(("seconds_int", "seconds_long", "millis_long", "timestamp", "date")),
        None,
        "what that field holds, where it is an integer",
    ),
    Property("fields.<column>.aggregate_function", Text(), None, "function of a column"),
    Property(
        *("fields.default_aggregate_function", Text(), None),
        "function of the other columns",
        "`last_non_null_value`",
    ),
    Property(
        *("fields.<column>.ignore_retract", Flag(), "false"),
        "the function skips values that are taken back",
    ),
    Property("fields.<column>.list_agg_delimiter", Text(), ",", "of `listagg`"),
    Property(
        *("fields.<column>.distinct", Flag(), "false"),
        "of `listagg` and `collect`: keep equal items once",
    ),
    Property(
        *("fields.<column>.nested_key", Fields(), None),
        "of `nested_update`: fields that identify an item",
    ),
    Property(
        *("fields.<column>.count_limit", Number(), None),
        "of `nested_update` without `nested_key`: items that a list may have for more to be "
        "appended; the first list of a key stays as it is",
    ),
    Property(
        *("fields.<columns>.sequence_group", Columns(), None),
        "of `partial_update`: the columns that follow this sequence",
    ),
    Property(
        *("<engine>.remove_record_on_delete", Flag(), "false"),
        "a deletion removes the row, of `partial_update` and `aggregation`, with the name of the "
        "merge engine before it",
    ),
    Property(
        *("partial_update.remove_record_on_sequence_group", Columns(), None),
        "sequences of groups: a deletion that is not older by one of them removes the row",
    ),
    Property(
        *("changelog_producer", Choice(PRODUCERS), "none"),
        "what [records changes](../primary_key.md#record-changes): `none`, `input`, `lookup` or "
        "`full_compaction`; `first_row` takes `none` and `lookup`",
    ),
    Property(
        *("changelog.num_retained", Number(), None),
        "number of newest snapshots whose changelogs are kept",
        "as many as snapshots",
    ),
    Property(
        *("changelog.time_retained", Duration(), None),
        "how long changelogs are kept, for example `7 d`",
        "as long as snapshots",
    ),
    Property(
        *("changelog_producer.row_deduplicate", Flag(), "false"),
        "leave out rows that did not change, of `lookup` and `full_compaction`",
    ),
    Property(
        *("deletion_vectors.enabled", Flag(), "false"),
        "compaction marks replaced rows as deleted",
    ),
    Property(
        *("deletion_vectors.merge_on_read", Flag(), "true"),
        "of such a table: scans merge rows that were not compacted yet; otherwise they leave them "
        "out",
    ),
    Property(
        *("compaction", Choice(("none", "inline")), "none"),
        "`inline`: writers compact the buckets that they changed; `none`",
    ),
    Property(
        *("write_only", Flag(), "false"), "writers do not compact, whatever `compaction` says"
    ),
    Property(
        *("num_sorted_run.stop_trigger", Number(), None),
        "with `compaction=inline`: number of runs of a bucket from which on a writer waits",
        "the trigger + 3",
    ),
    Property(
        *("num_sorted_run.compaction_trigger", Number(), "5"),
        "number of runs from which on `compact()` merges",
    ),
    Property(
        *("compaction.max_size_amplification_percent", Number(0), "200"),
        "merge all runs if the newer ones together are larger than this share of the oldest",
    ),
    Property(
        *("compaction.size_ratio", Number(0), "1"),
        "percent by which an older run may be larger and still be merged with newer ones",
    ),
    Property(
        *("compaction.pick_rule", Choice(("current", "seed")), "current"),
        "`current`, or `seed`: an older rule, which rewrites less at higher levels",
    ),
    Property(
        *("compaction.total_size_threshold", Size(), None),
        "merge all runs while a bucket is smaller",
    ),
    Property(
        *("compaction.incremental_size_threshold", Size(), None),
        "merge all runs if those above the oldest are larger",
    ),
    Property(
        *("record_level.expire_time", Duration(), None),
        "time after which compaction removes rows, such as `30 d`",
    ),
    Property(
        *("record_level.time_field", Column(), None), "the column that holds the time of a row"
    ),
    Property(
        "record_level.time_field_type",
        Choice(("seconds_int", "seconds_long", "millis_long", "timestamp", "date")),
        None,
        "`timestamp`, `date`, `seconds_int`, `seconds_long` or `millis_long`",
        "by the column's type",
    ),
    Property(
        *("compaction.optimization_interval", Duration(), None),
        "merge all runs of a bucket if this time has passed since it was last done, such as `1 h`",
    ),
    Property(
        *("full_compaction.delta_commits", Number(), None),
        "merge all runs of a bucket after so many commits of rows; `1` is copy on write",
    ),
    Property(
        *("force_lookup", Flag(), "false"),
        "merge new runs although there are few (so it is with deletion vectors, too)",
    ),
    Property(
        *("lookup_compact", Choice(("radical", "gentle")), "radical"),
        "when these are merged: `radical`, by each `compact()`, or `gentle`, after some commits",
    ),
    Property(
        *("lookup_compact.max_interval", Number(), None),
        "of `gentle`: the number of commits",
        "twice the trigger",
    ),
)
_BY_NAME = {known.name: known for known in (*OF_ALL_TABLES, *OF_KEYED_TABLES)}
PROPERTY_NAMES = frozenset(_BY_NAME)
"""Those that have no part that varies."""
_NAMES_OF_ALL = frozenset(known.name for known in OF_ALL_TABLES)
_FAMILIES = tuple({f"{name.split('.')[0]}." for name in _BY_NAME if "." in name} - {*RESERVED})
_FAMILIES = tuple(family for family in _FAMILIES if "<" not in family)
"""Beginnings of names that tables with a primary key refuse where they are not known."""


def property_of(name: str) -> Property | None:
    """The property of a name with ``_``; None where there is none."""
    first, _, rest = name.partition(".")
    if first == "fields" and "." in rest:
        last = rest.rpartition(".")[2]
        pattern = "<columns>" if last == "sequence_group" else "<column>"
        return _BY_NAME.get(f"fields.{pattern}.{last}")
    if is_mirror(name):
        return _BY_NAME[f"{MIRROR}<name>"]
    if name.startswith(SHRED):
        return _BY_NAME[f"{SHRED}<column>"]
    return _BY_NAME.get(name) or (_BY_NAME.get(f"<engine>.{rest}") if rest else None)


def is_mirror(name: str) -> bool:
    """Whether a property is a mirror of the table."""
    return name.startswith(MIRROR)


def plain_name(name: str) -> str:
    """A name with ``_``; the part that names a column of ``fields.<column>.`` stays as it is, and
    so does that of `SHRED`."""
    if name.startswith(SHRED):
        return name
    if name.startswith("fields.") and name.count(".") >= 2:
        first, rest = name.split(".", 1)
        column, last = rest.rsplit(".", 1)
        return f"{first}.{column}.{last.replace('-', '_')}"
    return name.replace("-", "_")


def time_field(properties: Mapping[str, str]) -> str | None:
    """The column by which rows expire, of settings that were checked before."""
    for name, value in properties.items():
        if plain_name(name) == TIME_FIELD:
            return value
    return None


def spelled_columns(properties: Mapping[str, str], spelled: Callable[[str], str]) -> dict[str, str]:
    """Properties with other spellings of the columns that they name, in values and in names.

    Parameters
    ----------
    spelled
        Gives the name of a column as a schema has it.
    """

    def each(names: str) -> str:
        parts = [(part, part.strip()) for part in names.split(",")]
        return ",".join(part.replace(name, spelled(name), 1) for part, name in parts)

    made = {}
    for name, text in properties.items():
        known = property_of(plain_name(name))
        if name.startswith(SHRED):
            name = SHRED + spelled(name.removeprefix(SHRED))
        elif known is not None and "<column" in known.name:
            first, rest = name.split(".", 1)
            columns, last = rest.rsplit(".", 1)
            columns = each(columns) if "<columns>" in known.name else spelled(columns)
            name = f"{first}.{columns}.{last}"
        if name == STATS_KEYS:
            text = spelled_keys(text, spelled)
        made[name] = each(text) if known is not None and known.kind.names_columns else text
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProperties:
    """What the properties of all tables say.

    target_file_bytes: Size that data files should have.
    statistics_columns: Columns whose statistics entries keep beyond the usual ones.
    statistics_keys: The same of keys of maps: the column and the key of each, as text.
    profile, shred: Of `fermion.WriteOptions`; None for the default profile.
    write_buffer_bytes: Arrow bytes that a writer keeps in memory before rows go to storage, all its
        files together.
    column_files_max: Compaction rewrites a data file that has more column files.
    merged_files_min: So many of the newest files are merged by the writer; None: none are.
    index_rows_min: Data files with fewer rows get no index.
    consumer_age_ms: Consumers that have said nothing for longer are forgotten; None: none are.
    """

    target_file_bytes: int
    statistics_columns: tuple[str, ...] = ()
    statistics_keys: tuple[tuple[str, str], ...] = ()
    profile: str | None = None
    shred: Mapping[str, fermion.Shred] = field(default_factory=dict)
    write_buffer_bytes: int
    column_files_max: int = COLUMN_FILES_DEFAULT
    merged_files_min: int | None = None
    index_rows_min: int = INDEX_ROWS_MIN
    consumer_age_ms: int | None = None


def parse_properties(properties: Mapping[str, str]) -> TableProperties:
    """Read the properties that all tables have; other names are left alone.

    Raises InvalidArgumentError: A value that is not of its property's form.
    """

    plain = {plain_name(name): text for name, text in properties.items()}

    def value(name: str) -> Any:
        known = _BY_NAME[name]
        text = plain.get(name)
        return known.value if text is None else known.kind.parse(name, text)

    return TableProperties(
        target_file_bytes=value("target_file_size"),
        statistics_columns=value("statistics_columns") or (),
        statistics_keys=value(STATS_KEYS) or (),
        profile=value("file.profile"),
        shred={
            name.removeprefix(SHRED): Shredded().parse(name, text)
            for name, text in properties.items()
            if name.startswith(SHRED)
        },
        write_buffer_bytes=value("write_buffer_size"),
        column_files_max=value("column_files_max"),
        merged_files_min=value(MERGED_FILES),
        index_rows_min=value("index.rows_min"),
        consumer_age_ms=value("consumer.expiration_time"),
    )


def maintenance_policy(
    properties: Mapping[str, str], policy: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What the settings of maintenance say, by their names without `MAINTAIN`.

    properties: Of the table.
    policy: Other values of some, by name with or without that beginning: as text, or as bool, int
        or timedelta.
    Raises InvalidArgumentError: Names the setting.
    Raises TypeError: The policy is no mapping.
    """
    given = {plain_name(name): text for name, text in properties.items()}
    mapping(policy, "policy")
    for name, value in (policy or {}).items():
        full = MAINTAIN + plain_name(str(name)).removeprefix(MAINTAIN)
        if full not in _BY_NAME:
            known = [each.removeprefix(MAINTAIN) for each in _BY_NAME if each.startswith(MAINTAIN)]
            raise InvalidArgumentError(
                f"policy: {name!r} is no setting of maintenance: expected {', '.join(known)}"
                f"{nearest(str(name), known)}"
            )
        if isinstance(value, timedelta):
            value = f"{value // timedelta(milliseconds=1)} ms"
        given[full] = str(value)
    return {
        name.removeprefix(MAINTAIN): known.kind.parse(name, given.get(name, known.default or ""))
        for name, known in _BY_NAME.items()
        if name.startswith(MAINTAIN)
    }


def check_properties(properties: Mapping[str, str], schema: TableSchema) -> dict[str, str]:
    """Properties that are to be stored in a schema, as texts by name; a copy.

    Names of a user's own have a dot (``team.owner``), and none of our beginnings. Other names that
    are not known are refused, and so are those that are nearly a known one.

    Raises InvalidArgumentError: A value that is not of its property's form, a name that is
        refused, or keys of a column that is no map.
    Raises ColumnNotFoundError: Keys of a column that is not there.
    """
    spelled: dict[str, str] = {}
    for name, value in properties.items():
        plain = plain_name(name)
        known = property_of(plain)
        if plain in _NAMES_OF_ALL and (other := spelled.setdefault(plain, name)) != name:
            raise InvalidArgumentError(f"property {name!r}: {other!r} is the same property")
        if known is None:
            _check_own_name(name, plain)
        elif known.name in _NAMES_OF_ALL:
            try:
                parsed = known.kind.parse(name, value)
                if isinstance(parsed, fermion.Shred):
                    column = name.removeprefix(SHRED)
                    found = schema.find((column,), where=f"property {name!r}")
                    if is_variant(pa.field("", found.type)):
                        from fermion.engine import paths_to_shred  # few tables have such columns

                        paths_to_shred(parsed, f"shred: column {column!r}")
                    else:
                        keys_to_shred(column, found.type, parsed, "shred")
            except ValueError as error:
                raise InvalidArgumentError(f"property {name!r}: {error}") from None
    return dict(properties)


def _check_own_name(name: str, plain: str) -> None:
    """Refuse a name that is not known and can't be a user's own."""
    if plain.startswith(_FAMILIES):
        return  # what the schema's key says decides; a table without a key keeps it
    likes = difflib.get_close_matches(plain, _BY_NAME, 1, _LIKENESS)
    likes = likes or [known for known in _BY_NAME if known.endswith(f".{plain}")]
    hint = f"; did you mean {likes[0]!r}?" if likes else nearest(plain, _BY_NAME)
    if name == BLOB_PROPERTY:
        raise InvalidArgumentError(
            f"property {name!r} is for new tables; give a column that is added the field metadata "
            "'fermion:blob': 'true'"
        )
    if name.startswith(RESERVED):
        raise InvalidArgumentError(
            f"property {name!r} is not known: names that begin with "
            f"{' or '.join(map(repr, RESERVED))} are reserved{hint}"
        )
    if likes or "." not in name:
        raise InvalidArgumentError(
            f"property {name!r} is not known{hint}; names of your own "
            f"have a dot, as in 'team.{name}'"
        )


class KeySettings:
    """Properties of a table with a primary key, by their names with ``_``; remembers which were
    asked for.

    engines: Names of merge engines; names that begin with one and a dot are of this family.
    All methods raise `InvalidArgumentError`, which names the property, for a value of another form.
    """

    def __init__(self, properties: Mapping[str, str], engines: Iterable[str] = ()) -> None:
        self._engines = tuple(engines)
        self._values: dict[str, str] = {}
        self._asked: set[str] = set()
        for name, value in properties.items():
            plain = plain_name(name)
            if plain in _NAMES_OF_ALL:
                continue
            if not (_is_of_family(plain) or plain.split(".")[0] in self._engines):
                continue
            if self._values.get(plain, value) != value:
                raise InvalidArgumentError(f"property {name!r}: {plain!r} has another value")
            self._values[plain] = value

    def has(self, name: str) -> bool:
        """Whether a property is there; does not count as asking for it."""
        return name in self._values

    def value(self, name: str, default: Any = None) -> Any:
        """The value of a property, as its kind says.

        default: Of a property that is not there, instead of the one in `OF_KEYED_TABLES`.
        """
        self._asked.add(name)
        known = property_of(name)
        if known is None:
            raise KeyError(name)
        text = self._values.get(name)
        if text is not None:
            return known.kind.parse(name, text)
        return known.value if default is None else default

    def sequence_groups(self) -> list[tuple[str, tuple[str, ...]]]:
        """Names of the settings of sequence groups, and the sequence that each name holds."""
        groups = []
        for name in sorted(self._values):
            if name.startswith("fields.") and name.endswith(".sequence_group"):
                middle = name.removeprefix("fields.").removesuffix(".sequence_group")
                sequence = tuple(column.strip() for column in middle.split(","))
                check_no_repeats(name, sequence)
                groups.append((name, sequence))
        return groups

    def refuse_functions(self, column: str, engine: str, *, is_key: bool) -> None:
        """Refuse the function of a column that takes none."""
        name = f"fields.{column}.aggregate_function"
        if not self.has(name):
            return
        if is_key:
            raise InvalidArgumentError(f"{name}: a column of the primary key takes no function")
        raise InvalidArgumentError(
            f"{name} with merge_engine={engine}: functions are for merge_engine=aggregation, and "
            "for columns of a sequence group (fields.<sequence>.sequence_group)"
        )

    def refuse_the_rest(self, engine: str) -> None:
        """Refuse names that nothing has asked for."""
        for name in sorted(self._values.keys() - self._asked):
            if name == "fields.default_aggregate_function":
                hint = ": is for merge_engine=aggregation, and for sequence groups"
            elif name.startswith("fields."):
                hint = ": no such column, or no such setting of a column"
            elif name.split(".")[0] in self._engines:
                hint = f": is not for merge_engine={engine}"
            else:
                hint = nearest(name, sorted(self._asked))
            raise InvalidArgumentError(f"property {name!r} is not known here{hint}")


def _is_of_family(name: str) -> bool:
    if name.startswith(_FAMILIES):
        return True
    names = [known.name for known in OF_KEYED_TABLES if "." not in known.name]
    return bool(difflib.get_close_matches(name, names, 1, _LIKENESS))
