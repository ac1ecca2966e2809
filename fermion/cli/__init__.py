"""The command line: `fermion inspect`, `schema`, `head`, `verify`, `convert` and others."""

from fermion.cli.console import Console, rows_json, size_text
from fermion.cli.convert import PARQUET_SUFFIXES
from fermion.cli.html_output import add_html, check_html, write_html
from fermion.cli.program import main
from fermion.cli.protocol import add_storage_options, storage_options
from fermion.display import counted

__all__ = [
    "PARQUET_SUFFIXES",
    "Console",
    "add_html",
    "add_storage_options",
    "check_html",
    "counted",
    "main",
    "rows_json",
    "size_text",
    "storage_options",
    "write_html",
]
