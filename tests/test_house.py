"""`tools.house` counts what it says, on a small checkout whose counts are known."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tools import house

PROJECT = Path(__file__).resolve().parent.parent
FILES = {
    "fermion/kernels/loops.pxi": """
cdef struct Place:
    int x
cdef inline int nine(int a, (int, int) b, c, d, e, f, g,
                     h,  # a comment, with a comma
                     const uint8_t[:, ::1] i) except -1 nogil:
    cdef int result = nine(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    return result
def eight(a, b, c, d, e, f, g, h,):
    pass
""",
    "fermion/page.py": """
class Page:
    def make(self, a, b, c, d, e, *, f, g, h):
        def inner(a, b, c, d, e, f, g, h, i, *more): ...
""",
    "fermion/page.pyi": """
@overload
def read(a, b, c, d, e, f, g, h, i: int): ...
@overload
def read(a, b, c, d, e, f, g, h, i: str): ...
""",
    "fermion/history.js": "let a = 1;\n",
    "fermion/picture.svg": "<svg/>\n",
    "fermion_table/__init__.py": '__all__ = ["Table", "Catalog"]\n',
    "fermion_table/merge_engines/first_row.py": 'IS = engine == "first_row"\n',
    "fermion_table/changes/rows.py": """
from fermion_table.merge_engines.first_row import FirstRow
REMOVING = ("aggregation", "partial_update")
HANDLERS = {"deduplicate": 1}
def ways(engine, name):
    yield engine == "deduplicate"
    yield engine in REMOVING
    yield HANDLERS[engine]
    yield isinstance(engine, FirstRow)
    match engine:
        case "first_row" | "aggregation":
            yield name == "first"
    return "first_row"
""",
    "spark_ext/long.py": "x = 1\n" * 60,
    "tests/claims/fermion/test_page.py": "",
    "tests/fermion/test_page.py": "",
    "tests/fermion/test_pages_that_are_short.py": "",
    "tests/spark_ext/test_page.py": "",
    "tests/test_style.py": 'PUBLIC_MODULES = {"fermion.page"}\n',
    "tests/__init__.py": "",
    "pyproject.toml": """
[[tool.importlinter.contracts]]
id = "fermion"
[[tool.importlinter.contracts]]
id = "table"
ignore_imports = ["a -> b"]
""",
}


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, house.Measure]:
    """What is measured without running anything, of the small checkout."""
    root = tmp_path_factory.mktemp("checkout")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=root, check=True)
    (root / "fermion" / "not_added.py").write_text("x = 1\n" * 1_000)
    return {measure.name: measure for measure in house.of_files(root, longest=2)}


def test_lines_are_those_of_sources_that_git_lists(counted: dict[str, house.Measure]):
    sources = [
        text.count("\n")
        for name, text in FILES.items()
        if name.startswith(("fermion", "spark_ext")) and not name.endswith(".svg")
    ]
    assert counted["lines of the packages"].count == sum(sources)
    assert counted["lines of the longest file"].parts == [
        "spark_ext/long.py: 60",
        "fermion_table/changes/rows.py: 13",
    ]
    assert counted["modules with fewer than 50 lines"].count == 6


def test_a_comparison_with_an_engine_counts_where_its_folder_is_not(
    counted: dict[str, house.Measure],
):
    """A constant, a collection, a table of functions, a class and a pattern compare."""
    comparisons = counted["comparisons with names of merge engines outside of their folder"]
    assert [part.partition(":")[2] for part in comparisons.parts] == ["6", "7", "8", "9", "11"]
    assert all(part.startswith("fermion_table/changes/rows.py:") for part in comparisons.parts)


def test_parameters_are_counted_without_self_and_overloads_once(counted: dict[str, house.Measure]):
    assert counted["functions with more than 8 parameters"].parts == [
        "fermion/page.py: Page.make.inner: 9",
        "fermion/page.pyi: read: 9",
    ]
    assert counted["the same in kernels (.pyx, .pxi, .pxd)"].parts == [
        "fermion/kernels/loops.pxi: nine: 9"
    ]
    assert list(house.kernel_functions(FILES["fermion/kernels/loops.pxi"])) == [
        ("nine", 9),
        ("eight", 8),
    ]


def test_exceptions_exports_and_tests_named_after_modules(counted: dict[str, house.Measure]):
    exceptions = counted["exceptions in the import contracts and the style test"]
    assert exceptions.parts == ["fermion.page", "a -> b"]
    assert counted["names that fermion_table exports"].parts == ["Table", "Catalog"]
    assert counted["test modules"].count == 5
    found = counted["test modules that a reader finds from the name of the module"]
    assert found.parts == ["tests/fermion/test_page.py"]
    claims = counted["test modules of claims that cross modules"]
    assert claims.parts == ["tests/claims/fermion/test_page.py"]


def test_visits_are_those_of_the_operation_alone():
    """A cold process imports more on the way; an append reads no rows and a scan writes none."""
    visited = {measure.name: set(measure.parts) for measure in house.of_visits(PROJECT)}
    warm = visited["modules that a small append visits, warm process"]
    cold = visited["modules that a small append visits, cold process"]
    scanned = visited["modules that a filtered scan of 4 columns visits, warm process"]
    assert warm < cold
    assert {"fermion_table/commit", "fermion/writing"} <= folders(warm) - folders(scanned)
    assert {"fermion_table/table", "fermion/reading"} <= folders(scanned)
    assert all((PROJECT / name).is_file() for name in warm | scanned)


def folders(names: set[str]) -> set[str]:
    """The folders of files."""
    return {Path(name).parent.as_posix() for name in names}
