"""The stored results as Markdown: ``python -m benchmarks.summary``.

What stands between the markers of ``docs/performance.md``, ``docs/comparison.md`` and the README is
made here and nowhere else, and so are the pictures of results.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import charts, side_by_side
from benchmarks.__main__ import QUESTIONS
from benchmarks.files import PROJECT
from benchmarks.report import figure

PAGE = PROJECT / "docs" / "performance.md"
RESULTS = PROJECT / "benchmarks" / "results"
SIDE_BY_SIDE = {
    PROJECT / "README.md": side_by_side.IN_README,
    PROJECT / "docs" / "comparison.md": (*side_by_side.FILES, *side_by_side.TABLES),
}
PICTURES = {
    PROJECT / "docs" / "images" / "benchmarks_files.svg": (
        "Files: seconds and bytes of Fermion, Parquet, Vortex and Lance; shorter is better",
        side_by_side.FILES,
    ),
    PROJECT / "docs" / "images" / "benchmarks_tables.svg": (
        "Tables: seconds of Fermion, Lance, Iceberg, Delta and Paimon; shorter is better",
        side_by_side.TABLES,
    ),
}
SPARK = "spark"
"""Its question is run by itself: it takes a quarter of an hour, and memory for a JVM."""
BEGIN, END = "<!-- results -->\n", "<!-- end of results -->\n"


def load(folder: Path = RESULTS) -> list[dict[str, Any]]:
    """The stored results, in the order of the questions."""
    files = [folder / f"{name}.json" for name in (*QUESTIONS, SPARK)]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def target_rows(result: dict[str, Any]) -> list[str]:
    """One line of the table for each target of a question."""
    lines = []
    for target in result["targets"]:
        metric, found, bound = target["metric"], target["measured"], target["at_most"]
        factor = found / bound if found is not None and bound else None
        best = best_rival(result, target["case"], metric)
        if target["per"]:
            shown = [("-" if value is None else f"{value:.2f}x") for value in (bound, found)]
        else:
            shown = [figure(metric, bound), figure(metric, found)]
        what = target["case"]
        if metric != "seconds":
            what += f", {metric.replace('_', ' ')}"
        if target["per"]:
            what += f" per {target['per'].replace('_', ' ')}"
        if target["library"] != "fermion":
            what += f" ({target['library']})"
        bound_text = shown[0] + (f" ({target['of']})" if target["of"] else "")
        verdict = "met" if target["met"] else "not measured" if factor is None else f"{factor:.2f}x"
        lines.append(f"| {what} | {bound_text} | {shown[1]} | {verdict} | {best} |")
    return lines


def best_rival(result: dict[str, Any], case: str, metric: str) -> str:
    """The best rival's figure and name."""
    rivals = [
        (one["median"][metric], one["library"])
        for one in result["results"]
        if one["case"] == case and one["kind"] == "rival" and one["median"].get(metric) is not None
    ]
    if not rivals:
        return "-"
    value, name = min(rivals)
    return f"{figure(metric, value)} ({name})"


def text(folder: Path = RESULTS) -> str:
    """What belongs between the markers."""
    results = load(folder)
    if not results:
        return "Nothing measured yet.\n"
    lines = []
    for result in results:
        if not result["targets"]:
            continue
        busy = result["machine"].get("load_average", "not noted")
        lines += [f"**{result['title']}** ({result['date']}, load average {busy})", ""]
        lines += ["| what | target | measured | | best rival |", "|---|---|---|---|---|"]
        lines += [*target_rows(result), ""]
    machines = {
        f"{m['processor']}, {m['cores']} cores, {m['memory_gib']} GiB, {m['system']}, "
        f"Python {m['python']}"
        for m in (result["machine"] for result in results)
    }
    versions: dict[str, set[str]] = {}
    for result in results:
        for name, version in result["machine"]["packages"].items():
            versions.setdefault(name, set()).add(version)
    packages = ", ".join(f"{name} {'/'.join(sorted(v))}" for name, v in versions.items())
    lines += [f"Measured on {machine}." for machine in sorted(machines)]
    lines += [f"Versions: {packages}."]
    return "\n".join(lines) + "\n"


def updated(page: str, content: str) -> str:
    """A page with other content between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{content}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(), text()))
    for page, rows in SIDE_BY_SIDE.items():
        page.write_text(side_by_side.updated(page.read_text(), rows, RESULTS))
    for picture, (title, rows) in PICTURES.items():
        picture.write_text(charts.drawn(title, rows, RESULTS))
