"""The specification of tables says what the code does: keys, verdicts, limits, worked bytes."""

from __future__ import annotations

import inspect
import itertools
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fermion_table import options
from fermion_table.commit import clone as table_clone
from fermion_table.commit.conflict import Fail, Mine, Ok, Redo, Theirs, conflict
from fermion_table.commit.fast_forward import HEAD_PROPERTY
from fermion_table.metadata import consumers, deletion_vector, manifest, references, snapshot
from fermion_table.metadata.snapshot import decode_snapshot, encode_snapshot
from fermion_table.schema import properties, schema, transforms
from fermion_table.schema.schema import SchemaReference
from fermion_table.storage import json_codec, paths
from fermion_table.storage import store as storage
from fermion_table.storage.json_codec import UNKNOWN_KEYS, Plain
from tests.kit.stores import made_up_entry

PROJECT = Path(__file__).resolve().parents[3]
TEXT = (PROJECT / "docs" / "table_format.md").read_text(encoding="utf-8")
ABSTRACT = {"Reference", "Effort", "_Counted", "_CountedDelta", "_CountedChangelog", "CountedEntry"}
STRUCTS = {
    name: value
    for module in (snapshot, manifest, schema, references, consumers, deletion_vector)
    for name, value in vars(module).items()
    if inspect.isclass(value) and issubclass(value, msgspec.Struct) and name not in ABSTRACT
}
Row = dict[str, str]


def tables() -> Iterator[tuple[str, str, list[Row]]]:
    """Heading, first line of the paragraph before, and rows of every table of the page."""
    heading = paragraph = before = ""
    lines: list[str] = []
    fenced = False
    for line in [*TEXT.splitlines(), ""]:
        fenced ^= line.startswith("```")
        if fenced:
            continue
        if line.startswith("|"):
            lines.append(line)
            continue
        if lines:
            cells = [[cell.strip() for cell in each.strip("|").split("|")] for each in lines]
            yield heading, paragraph, [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
            lines, paragraph = [], ""
        if line.startswith("#"):
            heading, paragraph = line.lstrip("# "), ""
        elif line and not before:
            paragraph = line
        before = line
    assert not fenced


TABLES = list(tables())


def rows_under(heading: str, title: str) -> list[Row]:
    (found,) = [
        rows for where, _, rows in TABLES if where == heading and next(iter(rows[0])) == title
    ]
    return found


def struct_tables() -> dict[str, list[Row]]:
    found = {}
    for _, paragraph, rows in TABLES:
        named = re.match(r"`(\w+)`:", paragraph)
        if list(rows[0]) == ["key", "type", "default", "meaning"]:
            assert named is not None, paragraph
            found[named[1]] = rows
    return found


def type_text(hint: Any) -> str:
    """A type hint as the page spells it."""
    if hint == Plain:
        return "value"
    arguments = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return "text" if len(arguments) > 1 else f'`"{arguments[0]}"`'
    if origin in (typing.Union, types.UnionType):
        some = [type_text(each) for each in arguments if each is not type(None)]
        wide = [each for each in some if not (each.startswith("`") and "text" in some)]
        text = " or ".join(dict.fromkeys(wide))
        return text if len(some) == len(arguments) else f"{text}?"
    if origin is tuple:
        inner = [type_text(each) for each in arguments if each is not Ellipsis]
        return f"[{', '.join(inner)}]"
    if origin is dict:
        return f"{{{type_text(arguments[0])}: {type_text(arguments[1])}}}"
    names = {int: "int", str: "text", bool: "bool", Any: "value", msgspec.Raw: "object"}
    return names.get(hint) or hint.__name__


def default_text(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if isinstance(default, msgspec.Struct):  # one all of whose keys have their defaults
        return "`{}`"
    return f"`{msgspec.json.encode(default).decode().replace(',', ', ')}`"


def test_every_object_is_documented_as_it_is() -> None:
    """Key, type and default of every key of every struct, no more and no less."""
    documented = struct_tables()
    assert documented.keys() == STRUCTS.keys()
    for name, struct in STRUCTS.items():
        hints = typing.get_type_hints(struct)
        fields = {
            field.encode_name: (type_text(hints[field.name]), default_text(field))
            for field in msgspec.structs.fields(struct)
            if field.encode_name not in (UNKNOWN_KEYS, "#hash", "#effort")
        }
        said = {row["key"]: (row["type"], row["default"]) for row in documented[name]}
        assert said == fields, name


@pytest.mark.parametrize(
    ("struct", "key", "hint"),
    [
        ("Snapshot", "kind", snapshot.Kind),
        ("Entry", "source", manifest.Source),
        ("ManifestReference", "kind", manifest.ManifestKind),
        ("PartitionField", "transform", transforms.TransformKind),
    ],
)
def test_every_value_of_a_key_with_few_is_documented(struct: str, key: str, hint: Any) -> None:
    (row,) = [row for row in struct_tables()[struct] if row["key"] == key]
    assert re.findall(r"`([a-z]+)`", row["meaning"]) == list(typing.get_args(hint))


def test_nested_kinds_are_documented() -> None:
    (row,) = [row for row in struct_tables()["StoredType"] if row["key"] == "kind"]
    expected = [*typing.get_args(schema.NestedKind), "arrow"]
    assert re.findall(r"`(\w+)`", row["meaning"]) == expected


def test_formats_and_their_versions_are_documented() -> None:
    formats = {
        "Snapshot": (snapshot.SNAPSHOT_FORMAT, snapshot.SNAPSHOT_FORMAT_VERSION),
        "TableSchema": (schema.SCHEMA_FORMAT, schema.SCHEMA_FORMAT_VERSION),
        "Consumer": (consumers.CONSUMER_FORMAT, consumers.FORMAT_VERSION),
        "Tag": (references.TAG_FORMAT, references.FORMAT_VERSION),
        "Branch": (references.BRANCH_FORMAT, references.FORMAT_VERSION),
    }
    for name, (text, version) in formats.items():
        rows = {row["key"]: row["meaning"] for row in struct_tables()[name]}
        assert rows["format"] == f"`{text}`"
        assert rows["format_version"] == f"{version}"
    newest = rows_under("Versions and compatibility", "version")[-1]["version"]
    assert newest == str(snapshot.SNAPSHOT_FORMAT_VERSION)
    for feature in snapshot.KNOWN_READER_FEATURES | snapshot.KNOWN_WRITER_FEATURES:
        assert f"feature `{feature}`" in TEXT


def test_the_worked_snapshot_is_read_and_written_as_it_stands() -> None:
    (block,) = re.findall(r"^```json worked=snapshot\n(.*?)^```$", TEXT, re.M | re.S)
    data = block.replace("\n", "").encode()
    decoded = decode_snapshot(data, "docs")
    assert (decoded.id, decoded.kind, decoded.author) == (0, "create", "ada")
    assert encode_snapshot(decoded) == data
    assert len(decoded.hash) == 64


def test_the_tree_names_every_object() -> None:
    tree = TEXT.partition("## Directory")[2].split("```")[1]
    unique = "u" * 32
    for path in (
        paths.snapshot_path(0),
        paths.snapshot_path(1),
        paths.latest_hint_path(),
        paths.earliest_hint_path(),
        paths.expired_mark_path(5),
        paths.branch_path("NAME"),
        paths.tag_path("NAME"),
        paths.pending_path(unique),
        paths.schema_path(7, unique),
        paths.manifest_path(unique),
        paths.deletion_path(unique),
    ):
        shown = path.replace("NAME", "<name>").replace(unique, "<unique>").replace("7-", "<id>-")
        assert re.search(rf"^  {re.escape(shown)}", tree, re.M), shown
    assert paths.data_path(unique, [("k", "v")]) == f"data/k=v/{unique}.fermion"
    assert paths.NULL_PARTITION in TEXT


def test_limits_are_documented() -> None:
    said = {row["limit"]: int(row["value"]) for row in rows_under("Limits", "limit")}
    assert said == {
        "snapshot id": paths.SNAPSHOT_ID_MAX,
        "path, characters": paths.PATH_CHARACTERS_MAX,
        "tag and branch name, characters": 128,
        "field id": schema.FIELD_ID_MAX,
        "depth of nested types": schema.DEPTH_MAX,
        "JSON of a metadata object, bytes": json_codec.DECODED_BYTES_MAX,
        "JSON for each byte of a compressed object, bytes": json_codec.EXPANSION_MAX,
        "entries in a snapshot's `tail`, in `removed` of its `delta`, and in its `changelog`": (
            snapshot.SNAPSHOT_ENTRIES_MAX
        ),
        "deletion vector, bytes": deletion_vector.VECTOR_BYTES_MAX,
        "column files of an entry": manifest.COLUMN_FILES_LIMIT,
    }
    assert storage.METADATA_BYTES_MAX == json_codec.DECODED_BYTES_MAX
    paths.check_name("n" * 128, "tag")


@pytest.mark.parametrize(
    "phrase",
    [
        f"{json_codec.COMPRESS_ABOVE_BYTES:,} bytes of JSON are one zstd frame",
        f"manifests of more than {json_codec.COMPRESS_MANIFESTS_ABOVE_BYTES:,} bytes",
        f"at most {options.INLINE_ENTRIES_MAX} entries and {options.INLINE_BYTES_MAX:,} bytes",
        f"at most {options.CARRIED_ENTRIES_MAX} entries and {options.CARRIED_BYTES_MAX:,} bytes",
        f"when there are {options.MERGE_FANOUT} of\n  them",
        f"more than {options.MERGE_INPUT_ENTRIES_MAX:,} live entries stay",
        f"more than {options.REWRITE_DEAD_FRACTION * 100:.0f} % are",
        f"the first {properties.STATISTICS_COLUMNS_MAX} other leaf columns",
        "the property `statistics_columns`",
        f"many: over {options.TOUCHED_PARTITIONS_MAX} |",
        f"`{HEAD_PROPERTY}`",
        f"`{table_clone.CLONE_OF}`",
        f"`{table_clone.CLONE_TAG}`",
        f"`{deletion_vector.MAGIC.decode()}`",
        f"(live entries up to {options.CARRIED_ENTRIES_MAX * options.MERGE_FANOUT // 2}, 48,",
    ],
)
def test_numbers_and_names_in_the_text_are_those_of_the_code(phrase: str) -> None:
    assert phrase in TEXT


# Conflicts

PART, OTHER_PART = frozenset({("p",)}), frozenset({("q",)})
REMOVES = {"overwrite", "restore", "delete", "upsert", "compact"}
CONDITIONS = ("overlap", "shared", "matters", "readable")


def verdict_in_words(row: str, column: str, holds: dict[str, bool]) -> str:
    """What the code says of two commits that stand to each other as `holds` says."""
    entry = made_up_entry("new")
    removed = frozenset({"shared" if holds["shared"] else "theirs"})
    theirs = Theirs(
        snapshot_id=2,
        kind=column,  # type: ignore[arg-type]
        partitions=PART if holds["overlap"] else OTHER_PART,
        added=(entry,),
        removed=removed if column in REMOVES else frozenset(),
        schema=SchemaReference(id=1, path="", hash="", size=0) if column == "schema" else None,
    )
    decided = row in ("delete", "upsert", "schema")
    mine = Mine(
        kind=row,  # type: ignore[arg-type]
        scope=PART,
        removed=frozenset({"shared"}) if row in REMOVES else frozenset(),
        groups=[frozenset({"shared"})] if row == "compact" else (),
        changes_schema=row == "schema",
        depends_on=(lambda _: holds["matters"]) if decided else None,
        accepts_schema=lambda _: None if holds["readable"] else "unreadable",
    )
    found = conflict(mine, theirs)
    if isinstance(found, Ok):
        return "drop" if found.dropped else "ok"
    return "redo" if isinstance(found, Redo) else "fail" if isinstance(found, Fail) else "?"


def documented_verdict(cell: str, holds: dict[str, bool]) -> str:
    word, _, rest = cell.partition(" ")
    if not rest:
        return word
    how, _, conditions = rest.partition(" ")
    met = any(holds[each] for each in conditions.split(" or "))
    return word if met == (how == "if") else "ok"


def test_the_conflict_matrix_is_that_of_the_code() -> None:
    """Every pair of kinds, under every combination of conditions."""
    rows = rows_under("Conflicts", "mine")
    checked = set()
    for row in rows:
        for columns, cell in list(row.items())[1:]:
            for mine, theirs in itertools.product(row["mine"].split(", "), columns.split(", ")):
                for values in itertools.product((False, True), repeat=len(CONDITIONS)):
                    holds = dict(zip(CONDITIONS, values, strict=True))
                    said = documented_verdict(cell, holds)
                    assert said == verdict_in_words(mine, theirs, holds), (mine, theirs, holds)
                checked.add((mine, theirs))
    kinds = set(typing.get_args(snapshot.Kind)) - {"create"}
    assert checked == set(itertools.product(kinds, kinds))


def test_every_section_is_in_the_list_of_contents() -> None:
    listed = re.findall(r"^- \[(.+)\]\(#(.+)\)$", TEXT, re.M)
    headings = re.findall(r"^## (.+)$", TEXT, re.M)
    assert [title for title, _ in listed] == headings
    for title, anchor in listed:
        assert anchor == re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-")
