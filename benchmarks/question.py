"""What a benchmark asks: cases, libraries and targets. Values only; `harness` runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Size = Literal["full", "quick", "tiny"]

# What a case hands to the clock, and what that gives back: an Arrow table, a dict of further
# metrics, or nothing.
Action = Callable[[], Any]


class NotOffered(Exception):
    """A library has no way to do what a case asks; the message says what is missing."""


@dataclass(frozen=True)
class Library:
    """One format (or table layer) in one setting.

    Attributes
    ----------
    name
        As the tables print it.
    modules
        What its process imports; the first that is missing makes the whole library missing.
    package
        What to install for it.
    own
        Ours: not a rival when the best rival is looked for.
    python
        Folder of the virtual environment it lives in; None: the one that runs the benchmarks.
    reference
        Printed, but neither ours nor a rival: it does less work than the question asks for.
    set_up
        The command that makes the environment `python`.
    one_in
        It gets one in so many of the rows that cases ask for, so that it ends in time; its name
        says so, and its results are not compared with those of others.
    seconds_max
        How long a process that measures it may take; None: as long as the harness allows.
    """

    name: str
    modules: tuple[str, ...] = ()
    package: str = ""
    own: bool = False
    python: str | None = None
    reference: bool = False
    set_up: str = "make bench"
    one_in: int = 1
    seconds_max: float | None = None

    def warm_up(self) -> None:
        """Use the library once on something tiny, so that late loading is not on the clock."""


@dataclass(frozen=True)
class Case:
    """One thing to time.

    Attributes
    ----------
    prepare
        Takes the library and the size; sets everything up and returns the action to time.
    calls
        Timed calls within one process; the process counts with their median.
    sizes
        At which sizes the case is run.
    rounds
        Processes at most; None: as the question says.
    """

    prepare: Callable[[Any, Size], Action]
    calls: int = 1
    sizes: tuple[Size, ...] = ("full", "quick", "tiny")
    rounds: int | None = None


@dataclass(frozen=True)
class Target:
    """A bound on one figure; judged at full size only.

    Attributes
    ----------
    case
        Name of the case.
    at_most
        The bound, in the metric's unit; a factor where ``of`` is given.
    metric
        Key of the figure: ``seconds``, ``cpu_seconds``, ``extra_bytes``, ``file_bytes``, ...
    measured
        Whose figure.
    of
        ``"best rival"``: a factor of the best rival's figure in this case; the name of another
        case: of the same library's figure there; of a library: of its figure in this case;
        None: ``at_most`` stands for itself.
    per
        Another metric that the figure is divided by first, such as ``arrow_bytes``.
    """

    case: str
    at_most: float
    metric: str = "seconds"
    measured: str = "fermion"
    of: str | None = None
    per: str | None = None


@dataclass(frozen=True)
class Question:
    """One benchmark.

    Attributes
    ----------
    module
        Its module (``__name__``, or the file's where that is ``__main__``); names the results.
    title
        One line, printed above the table.
    cases, libraries, targets
        What is run, by whom, and how good is good enough.
    rounds
        Fresh processes per case and library, by size.
    headline
        The figure that libraries are compared by.
    metrics
        Further figures to print besides time, CPU and memory.
    warm_up
        Whether a process uses its library on something tiny before the clock starts.
    isolated
        Whether cases need processes of their own even in quick runs; full runs always give them.
    notes
        What a reader of the table has to know.
    """

    module: str
    title: str
    cases: Mapping[str, Case]
    libraries: tuple[Library, ...]
    targets: tuple[Target, ...] = ()
    rounds: Mapping[Size, int] | None = None
    headline: str = "seconds"
    metrics: tuple[str, ...] = ()
    warm_up: bool = True
    isolated: bool = False
    notes: str = ""

    def rounds_at(self, size: Size) -> int:
        """How many processes each case gets."""
        return (self.rounds or {"full": 5}).get(size, 1)
