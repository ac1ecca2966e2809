"""`fermion convert`: Parquet to Fermion and back, by the suffixes of the files."""

from __future__ import annotations

import argparse
from typing import Any, get_args, get_type_hints

from fermion.cli.console import Console, size_text
from fermion.cli.protocol import add_storage_options, storage_options
from fermion.display import counted
from fermion.errors import InvalidArgumentError
from fermion.layout import EDITIONS
from fermion.metadata.file_info import FileInfo
from fermion.options import PROFILES, WriteOptions
from fermion.parquet.convert import from_parquet, to_parquet
from fermion.redaction import redacted

HELP = "convert a Parquet file to a Fermion file, or back"
PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_FERMION_OPTIONS = (
    "profile",
    "codec",
    "checksum",
    "edition",
    "read_back",
    "stripe_rows",
    "stripe_bytes",
    "page_bytes",
    "threads",
)
_PARQUET_OPTIONS = ("compression", "row_group_size", "shred_variants")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    suffixes = ", ".join(PARQUET_SUFFIXES)
    parser.add_argument("source", metavar="A", help="path or URL of the file to read")
    parser.add_argument("target", metavar="B", help="path or URL of the file to write")
    parser.epilog = f"One of the two is Parquet, by its suffix ({suffixes}); the other is Fermion."
    parser.add_argument(
        "--compression-level", type=int, metavar="N", help="compression level, for both formats"
    )
    fermion = parser.add_argument_group("when B is a Fermion file")
    fermion.add_argument("--profile", choices=PROFILES, help="balance of size and speed")
    types = get_type_hints(WriteOptions)
    fermion.add_argument("--codec", choices=get_args(types["codec"]), help="compression")
    fermion.add_argument(
        "--checksum", choices=get_args(types["checksum"]), help="checksum of pages"
    )
    fermion.add_argument("--edition", choices=tuple(EDITIONS), help="allowed encodings")
    fermion.add_argument("--stripe-rows", type=int, metavar="N", help="rows of a stripe")
    fermion.add_argument("--stripe-bytes", type=byte_count, metavar="SIZE", help="of a stripe: 64M")
    fermion.add_argument("--page-bytes", type=byte_count, metavar="SIZE", help="of a page: 512k")
    fermion.add_argument("--threads", type=int, metavar="N", help="threads that encode columns")
    fermion.add_argument(
        "--read-back",
        action="store_const",
        const=True,
        help="read the file back and verify it before it gets its name",
    )
    parquet = parser.add_argument_group("when B is a Parquet file")
    parquet.add_argument("--compression", metavar="CODEC", help="such as zstd (default: snappy)")
    parquet.add_argument("--row-group-size", type=int, metavar="ROWS", help="rows of a group")
    parquet.add_argument(
        "--shred-variants",
        action="store_const",
        const=True,
        help="give paths of Variant columns that have columns in A columns in B, too",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_storage_options(parser)


def byte_count(text: str) -> int:
    """A number of bytes: ``65536``, ``64k``, ``64KiB``, ``128M``."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    unit = text[len(digits) :].lower().removesuffix("b").removesuffix("i")
    if unit not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; expected something like 64M")
    try:
        return int(float(digits) * _UNITS[unit])
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a size; expected something like 64M"
        ) from None


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Convert a file and print what was written."""
    to_fermion = arguments.source.lower().endswith(PARQUET_SUFFIXES)
    if to_fermion == arguments.target.lower().endswith(PARQUET_SUFFIXES):
        raise InvalidArgumentError(
            f"convert: expected one Parquet file, with a suffix of {', '.join(PARQUET_SUFFIXES)}, "
            f"found {'two' if to_fermion else 'none'}: {arguments.source} and {arguments.target}"
        )
    wrong = _PARQUET_OPTIONS if to_fermion else _FERMION_OPTIONS
    for name in wrong:
        if getattr(arguments, name) is not None:
            option, kind = name.replace("_", "-"), "Parquet" if to_fermion else "Fermion"
            raise InvalidArgumentError(f"convert: --{option} is for writing {kind} files")
    given, storage = _given(arguments, to_fermion), storage_options(arguments)
    with console.progress("converting") as report:
        if to_fermion:
            options = WriteOptions().with_overrides(given)
            info = from_parquet(
                arguments.source,
                arguments.target,
                options=options,
                progress=report,
                storage_options=storage,
            )
        else:
            info = to_parquet(
                arguments.source,
                arguments.target,
                progress=report,
                storage_options=storage,
                **given,
            )
    _print(info, arguments, console, "stripe" if to_fermion else "row group")
    return 0


def _given(arguments: argparse.Namespace, to_fermion: bool) -> dict[str, Any]:
    names = _FERMION_OPTIONS if to_fermion else _PARQUET_OPTIONS
    values = {name: getattr(arguments, name) for name in (*names, "compression_level")}
    return {name: value for name, value in values.items() if value is not None}


def _print(info: FileInfo, arguments: argparse.Namespace, console: Console, part: str) -> None:
    if arguments.json:
        console.print_json(
            {
                "path": redacted(info.path),
                "size": info.size,
                "num_rows": info.num_rows,
                "num_columns": info.num_columns,
                f"num_{part.replace(' ', '_')}s": info.num_stripes,
            }
        )
        return
    console.print(
        f"{redacted(info.path)}: {counted(info.num_rows, 'row')}, "
        f"{counted(info.num_columns, 'column')}, "
        f"{counted(info.num_stripes, part)}, {size_text(info.size)}"
    )
