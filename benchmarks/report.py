"""A question as text: medians, spread, CPU, memory, ratio to the best rival, and the verdicts."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.question import Question, Size, Target

if TYPE_CHECKING:
    from benchmarks.harness import Result


@dataclass(frozen=True)
class Verdict:
    """A target beside what was measured."""

    target: Target
    measured: float | None
    bound: float | None

    @property
    def met(self) -> bool:
        """Whether the figure is there, and within the bound."""
        return None not in (self.measured, self.bound) and self.measured <= self.bound  # type: ignore[operator]

    def as_json(self) -> dict[str, Any]:
        """For the results."""
        return {
            "case": self.target.case,
            "metric": self.target.metric,
            "library": self.target.measured,
            "of": self.target.of,
            "per": self.target.per,
            "at_most": self.bound,
            "measured": self.measured,
            "met": self.met,
        }

    def text(self) -> str:
        """One line."""
        target = self.target
        what = f"{target.measured}: {target.case}: {target.metric.replace('_', ' ')}"
        if target.of:
            what += f" (at most {target.at_most:g}x that of {target.of})"
        if target.per:
            unit = ""
            found, bound = _plain(self.measured, unit), _plain(self.bound, unit)
            what += f" per {target.per.replace('_', ' ')}"
        else:
            found, bound = figure(target.metric, self.measured), figure(target.metric, self.bound)
        if self.measured is None or self.bound is None:
            return f"?       {what}: not measured (target {bound})"
        word = "met   " if self.met else "MISSED"
        factor = self.measured / self.bound if self.bound else float("inf")
        return f"{word}  {what}: {found}, target {bound} ({factor:.2f} of it)"


def _plain(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.2f}{unit}"


def verdicts(question: Question, results: list[Result]) -> list[Verdict]:
    """Every target of a question, judged."""
    by_key = {(result.measured, result.case): result for result in results}
    found = []
    for target in question.targets:
        own = by_key.get((target.measured, target.case))
        measured = _value(own, target)
        bound: float | None = target.at_most
        if target.of == "best rival":
            best = best_rival(results, target.case, target.metric)
            bound = None if best is None else target.at_most * best
        elif target.of is not None:
            key = (target.measured, target.of)
            if target.of not in question.cases:
                key = (target.of, target.case)
            other = _value(by_key.get(key), target)
            bound = None if other is None else target.at_most * other
        found.append(Verdict(target, measured, bound))
    return found


def _value(result: Result | None, target: Target) -> float | None:
    value = result.median(target.metric) if result else None
    if target.per is None or value is None or result is None:
        return value
    divisor = result.median(target.per)
    return value / divisor if divisor else None


def best_rival(results: list[Result], case: str, metric: str) -> float | None:
    """The smallest median among the rivals."""
    rivals = [one for one in results if one.case == case and not one.own and not one.reference]
    known = [value for one in rivals if (value := one.median(metric)) is not None]
    return min(known, default=None)


def figure(metric: str, value: float | None) -> str:
    """A figure with its unit."""
    if value is None:
        return "-"
    if metric.endswith("seconds"):
        return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"
    if metric.endswith("bytes"):
        return f"{value / 1e6:.1f} MB" if value >= 1e6 else f"{value / 1e3:.1f} kB"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.2f}"


def table(
    question: Question,
    size: Size,
    results: list[Result],
    missing: dict[str, str],
    judged: list[Verdict],
) -> str:
    """The whole text of one question."""
    rows = [_head(question)]
    rows += [_row(question, result, results) for result in results if result.rounds]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [f"{question.title} [{size}]"]
    for row in rows:
        cells = [
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  " + "  ".join(cells).rstrip())
    for result in results:
        if not result.rounds:
            lines.append(f"  {result.case}: {result.measured}: {result.remark}")
    lines += [f"  missing: {name}: needs {part}" for name, part in missing.items()]
    lines += [f"  {verdict.text()}" for verdict in judged]
    if question.notes:
        lines += textwrap.wrap(
            question.notes, 96, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False
        )
    return "\n".join(lines) + "\n"


def _head(question: Question) -> list[str]:
    timed = ["median", "range", "CPU", "memory"] if question.headline == "seconds" else []
    further = [metric.replace("_", " ") for metric in question.metrics]
    return ["case", "library", "/ best rival", *timed, *further]


def _row(question: Question, result: Result, results: list[Result]) -> list[str]:
    own = result.median(question.headline)
    best = best_rival(results, result.case, question.headline)
    name = result.measured + (" (reference)" if result.reference else "")
    cells = [result.case, name, f"{own / best:.2f}" if own is not None and best else "-"]
    if question.headline == "seconds":
        seconds = [figures["seconds"] for figures in result.rounds]
        cells += [
            figure("seconds", own),
            f"{figure('seconds', min(seconds))}..{figure('seconds', max(seconds))}",
            figure("seconds", result.median("cpu_seconds")),
            figure("bytes", result.median("extra_bytes")),
        ]
    return cells + [figure(metric, result.median(metric)) for metric in question.metrics]
