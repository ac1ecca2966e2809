"""`fermion table create`, `import`, `export`: rows between files of other formats and a table."""

from __future__ import annotations

import argparse
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal

import pyarrow as pa

import fermion
from fermion.cli import (
    PARQUET_SUFFIXES,
    Console,
    add_storage_options,
    counted,
    rows_json,
    storage_options,
)
from fermion.engine import InputFiles, child_fields, is_variant
from fermion.errors import InvalidArgumentError
from fermion_table.cli.arguments import (
    add_flag,
    add_repeated,
    add_table,
    add_version,
    named_values,
    open_table,
)
from fermion_table.cli.imported_files import ImportedFiles, identifier_of
from fermion_table.commit.replacement import TableDefinition
from fermion_table.commit.request import CommitMetadata
from fermion_table.errors import CommitConflict
from fermion_table.metadata.snapshot import Snapshot
from fermion_table.storage.location import open_store
from fermion_table.storage.paths import MAIN
from fermion_table.table.appending import append_as
from fermion_table.table.staged import create_with_rows, schema_and_rows

_FILES = (
    "files of rows, a pattern in quotes, or a directory, local or a URL: Parquet, CSV, JSON lines, "
    "Arrow, ORC"
)


class Create:
    """`fermion table create`."""

    HELP = "make a table from files of other formats"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        parser.add_argument("path", metavar="PATH", help="directory or URL of the new table")
        parser.add_argument("files", metavar="FILES", help=_FILES)
        help_ = 'a column, or a function of one such as "day(at)"'
        add_repeated(parser, "--partition-by", "COLUMN", help_)
        add_repeated(parser, "--primary-key", "COLUMN", "a column that identifies rows")
        help_ = "a column that the rows of each file are sorted by"
        add_repeated(parser, "--sort-by", "COLUMN", help_)
        add_repeated(parser, "--property", "NAME=VALUE", "a setting")
        add_flag(parser, "--json", "print JSON")
        add_storage_options(parser)

    def run(self, arguments: argparse.Namespace, console: Console) -> bool:
        """Make the table and print what it holds."""
        properties = named_values(arguments.property, "--property")
        given = InputFiles(arguments.files, storage_options(arguments))
        schema, rows = schema_and_rows(given.reader(), None, arguments.path, None)
        definition = TableDefinition(
            schema=schema,
            partition_by=arguments.partition_by,
            primary_key=arguments.primary_key,
            sort_by=arguments.sort_by,
            properties=properties,
        )
        store = open_store(arguments.path, storage_options=storage_options(arguments))
        read = partial(ImportedFiles(0, {}).followed_by, given.versions(), store, MAIN)
        snapshot = create_with_rows(store, definition, rows, CommitMetadata(properties_after=read))
        _print_snapshot(snapshot, arguments, console, files=len(given.files))
        return True


class Import:
    """`fermion table import`."""

    HELP = "append rows of new files of other formats, or upsert them by the primary key"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add_table(parser)
        parser.add_argument("files", metavar="FILES", help=_FILES)
        add_flag(parser, "--add-columns", "add columns that the table lacks")
        add_flag(parser, "--again", "also files that were imported before")
        parser.add_argument("--message", "-m", metavar="TEXT", help="description")

    def run(self, arguments: argparse.Namespace, console: Console) -> bool:
        """Write the rows of files that were not imported before as one snapshot."""
        table = open_table(arguments)
        given = InputFiles(arguments.files, storage_options(arguments))
        versions = given.versions()
        again = arguments.again
        while True:
            known = ImportedFiles.of(table, may_be_lost=again)
            new = {path: each for path, each in versions.items() if again or known.is_new(path)}
            files = [file for file, path in zip(given.files, versions, strict=True) if path in new]
            metadata = CommitMetadata(
                message=arguments.message,
                commit_user=None if again else "fermion table import",
                commit_identifier=None if again else identifier_of(new),
                properties_after=partial(
                    known.followed_by, new, table.store, table.branch, again=again
                ),
            )
            schema_mode: Literal["merge"] | None = "merge" if arguments.add_columns else None
            try:
                if files:
                    append_as(table, given.reader(files), metadata, schema_mode)
                break
            except CommitConflict:
                table.refresh()
                if again or all(map(ImportedFiles.of(table).is_new, new)):
                    raise  # it was no other import
        changed = [
            path
            for path, version in versions.items()
            if path not in new and known.is_changed(path, version)
        ]
        _print_snapshot(table.snapshot, arguments, console, files=len(new), changed=changed)
        return not changed


class Export:
    """`fermion table export`."""

    HELP = "write rows to a file: Parquet, CSV or JSON lines"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments."""
        add_table(parser)
        add_version(parser)
        parser.add_argument("target", metavar="FILE", help="such as rows.parquet, rows.csv.gz")
        add_repeated(parser, "--column", "NAME", "only this one")
        parser.add_argument("--filter", metavar="SQL", help="such as \"price > 10 AND s.b = 'x'\"")

    def run(self, arguments: argparse.Namespace, console: Console) -> bool:
        """Write the rows; the file has its name when it is complete."""
        target = Path(os.path.expanduser(arguments.target))
        write = _writer_for(target)
        scan = open_table(arguments).scan(columns=arguments.column, filter=arguments.filter)
        with _complete(target) as unfinished:
            rows = write(scan.to_reader(), unfinished)
        if arguments.json:
            console.print_json({"path": str(target), "rows": rows})
        else:
            console.print(f"{target}: {counted(rows, 'row')}")
        return True


def _print_snapshot(
    snapshot: Snapshot,
    arguments: argparse.Namespace,
    console: Console,
    *,
    files: int,
    changed: Sequence[str] = (),
) -> None:
    """Print what there is after so many files were read; others have changed since they were."""
    rows = snapshot.totals.rows
    if arguments.json:
        console.print_json(
            {"snapshot_id": snapshot.id, "rows": rows, "files": files, "changed": list(changed)}
        )
        return
    said = f"the table stores {counted(rows, 'row')}, {counted(files, 'new file')}"
    console.print(f"snapshot {snapshot.id}: {said}")
    for path in changed:
        console.print(f"{path}: has changed since it was imported, and was left out (--again)")


def _writer_for(target: Path) -> Callable[[pa.RecordBatchReader, Path], int]:
    """What writes files of a suffix; it returns the number of rows."""
    name = target.name.lower()
    plain = name.removesuffix(".gz").removesuffix(".zst")
    if name.endswith(PARQUET_SUFFIXES):
        return _write_parquet
    if plain.endswith((".csv", ".tsv")):
        return _write_csv
    if plain.endswith((".json", ".jsonl", ".ndjson")):
        return _write_json_lines
    raise InvalidArgumentError(
        f"{target}: expected a suffix of {', '.join(PARQUET_SUFFIXES)}, .csv, .tsv, .json, .jsonl, "
        f".ndjson (of text also with .gz or .zst), found {target.suffix or 'none'}"
    )


@contextmanager
def _complete(target: Path) -> Iterator[Path]:
    """A path beside the target, which gets its name when all went well."""
    if target.exists():
        raise InvalidArgumentError(f"{target}: expected a new file, found one that exists")
    unfinished = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        yield unfinished
        os.replace(unfinished, target)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()


def _write_parquet(rows: pa.RecordBatchReader, path: Path) -> int:
    import pyarrow.parquet as parquet

    if any(map(_has_variant, rows.schema)):  # pyarrow's writer ends the process where it meets one
        whole = path.with_name(f"{path.name}.fermion")
        try:
            fermion.write_table(rows, whole)
            return fermion.to_parquet(whole, path, compression="zstd").num_rows
        finally:
            whole.unlink(missing_ok=True)
    count = 0
    with parquet.ParquetWriter(path, rows.schema, compression="zstd") as writer:
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _has_variant(field: pa.Field) -> bool:
    return is_variant(field) or any(map(_has_variant, child_fields(field.type)))


def _write_csv(rows: pa.RecordBatchReader, path: Path) -> int:
    import pyarrow.csv as csv

    for field in rows.schema:
        try:
            csv.write_csv(pa.schema([field]).empty_table(), io.BytesIO())
        except pa.ArrowException as error:
            raise InvalidArgumentError(
                f"column {field.name!r} of type {field.type}: CSV has no such values; choose "
                "others with --column, or export JSON lines or Parquet"
            ) from error
    delimiter = "\t" if ".tsv" in path.name.lower() else ","
    count = 0
    with (
        pa.output_stream(path, compression="detect") as out,
        csv.CSVWriter(
            out, rows.schema, write_options=csv.WriteOptions(delimiter=delimiter)
        ) as writer,
    ):
        for batch in rows:
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def _write_json_lines(rows: pa.RecordBatchReader, path: Path) -> int:
    count = 0
    with pa.output_stream(path, compression="detect") as out:
        for batch in rows:
            for row in rows_json(pa.Table.from_batches([batch])):
                out.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            count += batch.num_rows
    return count
