"""An open file as HTML, for notebooks: its facts, and its first columns."""

from __future__ import annotations

from fermion.display import html_facts, html_table, location_text, type_text
from fermion.reading.index import FileIndex


def file_html(index: FileIndex, *, is_closed: bool) -> str:
    """What the end of the file says, which has been read; of a closed file without its columns."""
    footer = index.footer
    facts = {
        "rows": footer.num_rows,
        "columns": footer.num_columns,
        "stripes": footer.num_stripes,
        "bytes": footer.file_length,
        "format version": f"{footer.major}.{footer.minor}",
        "closed": True if is_closed else None,
    }
    html = html_facts(f"FermionFile {location_text(index.where)}", facts)
    if is_closed:
        return html
    rows = ((field.name, type_text(field.type), field.nullable) for field in index.schema)
    return html + html_table("", ("name", "type", "nullable"), rows, footer.num_columns)
