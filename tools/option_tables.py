"""The tables in docs/guide/options.md: properties of tables, and options from docstrings.

    python -m tools.option_tables

writes them again between the marks ``<!-- options of CLASS -->`` and ``<!-- end -->``. A test says
when that is due.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

import fermion
import fermion_table
from fermion_table.schema.properties import OF_ALL_TABLES, OF_KEYED_TABLES, Property

PAGE = Path(__file__).resolve().parent.parent / "docs" / "guide" / "options.md"
CLASSES = {
    each.__name__: each
    for each in (
        fermion.WriteOptions,
        fermion.ReadOptions,
        fermion_table.WriteSettings,
        fermion_table.StorageAccess,
    )
}
PROPERTIES = {"all tables": OF_ALL_TABLES, "primary keys": OF_KEYED_TABLES}
PROPERTY_PART = re.compile(
    r"(<!-- properties of (all tables|primary keys) -->\n).*?(<!-- end -->)", re.S
)
PART = re.compile(r"(<!-- options of (\w+) -->\n).*?(<!-- end -->)", re.S)
MIB = 1024 * 1024


def meanings(of: type) -> dict[str, str]:
    """What the docstring of a class says about its attributes, by their names."""
    text = inspect.cleandoc(of.__doc__ or "")
    body = re.split(r"^Attributes\n-+\n", text, flags=re.M)[1]
    found = re.findall(r"^(\w[\w, ]*)\n((?:    .*\n?|\n)+)", body, re.M)
    return {names: " ".join(meaning.split()) for names, meaning in found}


def default(field: dataclasses.Field[object]) -> str:
    """The default of a field, as it is written in code."""
    value = field.default
    if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    if isinstance(value, int) and not isinstance(value, bool) and value >= MIB:
        return f"`{value // MIB} * 1024 * 1024`" if value % MIB == 0 else f"`{value}`"
    return f"`{value!r}`"


def table(of: type) -> str:
    """A row for each attribute, or for several that one text explains."""
    fields = {each.name: each for each in dataclasses.fields(of)}
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for names, meaning in meanings(of).items():
        each = names.split(", ")
        defaults = dict.fromkeys(default(fields.pop(name)) for name in each)
        shown = re.sub(r"``?([^`]+)``?", r"`\1`", meaning).replace("|", "\\|")
        options = ", ".join(f"`{name}`" for name in each)
        lines.append(f"| {options} | {', '.join(defaults)} | {shown} |")
    if fields:
        raise ValueError(f"the docstring of {of.__name__} does not name {', '.join(fields)}")
    return "\n".join(lines) + "\n"


def property_table(properties: tuple[Property, ...]) -> str:
    """A row for each property that is documented by itself."""
    lines = ["| property | meaning | default |", "|---|---|---|"]
    for known in properties:
        if known.meaning:
            default = known.shown_default or ("" if known.default is None else f"`{known.default}`")
            lines.append(f"| `{known.name}` | {known.meaning} | {default} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def with_tables(page: str) -> str:
    """A page with the present tables."""
    page = PROPERTY_PART.sub(
        lambda part: f"{part[1]}\n{property_table(PROPERTIES[part[2]])}\n{part[3]}", page
    )
    return PART.sub(lambda part: f"{part[1]}\n{table(CLASSES[part[2]])}\n{part[3]}", page)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
