"""`fermion stats`: bounds and counts of columns."""

from __future__ import annotations

from tests.kit.command_line import output, printed_json


def test_stats_shows_bounds_and_counts_without_reading_values(capsys, sample):
    lines = output(capsys, "stats", sample).splitlines()
    cells = {line.split()[0]: line.split() for line in lines[2:]}
    assert cells["id"] == ["id", "int64", "0", "0", "2999"]
    assert cells["price"] == ["price", "double", "1,000", "0.25", "749.75"]
    assert cells["name"][-2:] == ["bloom", "filter"]
    assert cells["s.tags.item"][:3] == ["s.tags.item", "string", "0"]
    assert cells["nothing"] == ["nothing", "int32", "3,000", "-", "-"]
    leaves = printed_json(capsys, "stats", sample, "--column", "price")["columns"]
    assert [(leaf["path"], leaf["min"], leaf["min_exact"]) for leaf in leaves] == [
        (["price"], 0.25, True)
    ]
