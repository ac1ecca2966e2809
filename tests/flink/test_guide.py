"""The page guide/flink.md runs: its statements, in their order, with one catalog."""

from __future__ import annotations

import re

import pytest

from fermion_table import Catalog
from tests.flink.environment import python_of_workers, wait_until
from tests.kit.documents import DOCS, blocks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def statements(code: str, warehouse: str) -> list[str]:
    code = code.replace("'warehouse' = 'warehouse'", f"'warehouse' = '{warehouse}'")
    code = code.replace("'python3'", f"'{python_of_workers()}'")
    lines = [line.split("  --")[0] for line in code.splitlines()]
    return [each.strip() for each in "\n".join(lines).split(";") if each.strip()]


def test_the_page_on_flink_runs(flink, warehouse, tmp_path):
    """SET is what the command line of Flink knows: the stream runs until it has copied the rows."""
    page = blocks(DOCS / "guide" / "flink.md")
    sql = [(at, block) for at, block in enumerate(page) if block.language == "sql"]
    catalog: list[str] = []
    shown = []
    for at, block in sql:
        wanted = statements(block.code, warehouse)
        catalog = catalog or wanted[:2]
        sent = [each for each in wanted if not each.startswith("SET") and each not in catalog]
        if settings := dict(re.findall(r"SET '([^']+)' = '([^']+)'", block.code)):
            flink.send(*catalog, *sent, batch=False, settings=settings, savepoints=tmp_path)
            continue
        rows = flink.sql(*catalog, *sent)
        if at + 1 < len(page) and page[at + 1].marks == "output":
            shown.append(at)
            lines = [", ".join(map(str, values)) for _, values in rows]
            assert lines == page[at + 1].code.strip().splitlines()
    assert len(shown) == 2
    lake = Catalog.open(warehouse)
    offers = lake.table("default.offers").scan().to_arrow().sort_by("id")
    wait_until(
        lambda: (
            lake.table_exists("default.copy")
            and lake.table("default.copy").scan().to_arrow().sort_by("id") == offers
        ),
        "the stream has not copied the rows",
        flink,
    )
    (tmp_path / "stop").touch()
    flink.rows()
