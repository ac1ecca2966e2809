"""Measures how the code of this project is built: its size, and how much of it one task needs.

    python -m tools.house [--json] [--root CHECKOUT] [--longest N]

prints a table: lines of the packages, modules that a small append and a filtered scan of four
columns visit, comparisons with names of merge engines outside of their folder, functions with many
parameters, exceptions to the import rules, tests whose name leads to their module, exported names,
short modules and the longest files. ``--json`` also lists what each count consists of. ``--root``
measures another checkout (its kernels must be built), so that two commits can be compared.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent
PACKAGES = ("fermion", "fermion_table", "spark_ext", "flink_ext")
SUFFIXES = (".py", ".pyx", ".pxi", ".pxd", ".pyi", ".h", ".c", ".js", ".java")
KERNEL_SUFFIXES = (".pyx", ".pxi", ".pxd")
ENGINES = frozenset({"deduplicate", "partial_update", "aggregation", "first_row"})
ENGINES_FOLDER = "merge_engines"  # wherever it lies, so that older commits can be measured
PARAMETERS_MAX = 8
SHORT_LINES = 50  # a module with fewer lines is short
LONGEST_FILES = 10


@dataclass
class Measure:
    """One row of the table.

    Attributes
    ----------
    name
        What is counted, in words.
    count
        The result.
    parts
        What it consists of, in words; empty where the count says all.
    """

    name: str
    count: int
    parts: list[str] = field(default_factory=list)


class Checkout:
    """The files of one checkout, as Git lists them; each is read once.

    Parameters
    ----------
    root
        The directory of the checkout.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        listing = subprocess.run(
            ["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True
        )
        self.names = [
            name for name in sorted(listing.stdout.split("\0")) if name and (root / name).is_file()
        ]
        self._texts: dict[str, str] = {}

    def text(self, name: str) -> str:
        """The text of a file, by its path in the checkout."""
        if name not in self._texts:
            self._texts[name] = (self.root / name).read_text(encoding="utf-8")
        return self._texts[name]

    def sources(self, *suffixes: str) -> list[str]:
        """The sources of the packages, by their paths; all kinds, or those with some suffixes."""
        return [
            name
            for name in self.names
            if name.split("/")[0] in PACKAGES and name.endswith(suffixes or SUFFIXES)
        ]

    def lines(self, name: str) -> int:
        """Lines of a file."""
        return len(self.text(name).splitlines())

    def tree(self, name: str) -> ast.Module:
        """The syntax tree of a Python file."""
        return ast.parse(self.text(name), filename=name)


def of_files(root: Path, *, longest: int = LONGEST_FILES) -> list[Measure]:
    """What the files of a checkout say, without running its packages.

    Parameters
    ----------
    root
        The directory of the checkout.
    longest
        How many of the longest files are listed.
    """
    checkout = Checkout(root)
    return [
        *_sizes(checkout, longest),
        _engine_comparisons(checkout),
        *_many_parameters(checkout),
        _exceptions(checkout),
        *_tests(checkout),
        _exported_names(checkout),
    ]


def _sizes(checkout: Checkout, longest: int) -> Iterator[Measure]:
    lengths = {name: checkout.lines(name) for name in checkout.sources()}
    by_package = {
        package: sum(lines for name, lines in lengths.items() if name.startswith(f"{package}/"))
        for package in PACKAGES
    }
    parts = [f"{package}: {lines:,}" for package, lines in by_package.items() if lines]
    yield Measure("lines of the packages", sum(lengths.values()), parts)
    gathers = ("__init__.py", "__main__.py")
    short = [
        f"{name}: {lines}"
        for name, lines in lengths.items()
        if lines < SHORT_LINES and not name.endswith(gathers)
    ]
    yield Measure(f"modules with fewer than {SHORT_LINES} lines", len(short), short)
    ordered = sorted(lengths.items(), key=lambda entry: (-entry[1], entry[0]))
    parts = [f"{name}: {lines:,}" for name, lines in ordered[:longest]]
    yield Measure("lines of the longest file", ordered[0][1], parts)


def of_visits(root: Path) -> Iterator[Measure]:
    """What small tasks visit, in processes of their own that import the packages of a checkout."""
    program = Path(__file__).with_name("visits.py")
    environment = {**os.environ, "PYTHONPATH": str(root)}
    words = {"append": "a small append visits", "scan": "a filtered scan of 4 columns visits"}
    for state in ("warm", "cold"):
        for task, word in words.items():
            done = subprocess.run(
                [sys.executable, "-P", str(program), task, state],
                env=environment,
                cwd=root,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"{program.name} {task} {state} in {root}:\n{done.stderr}")
            seen = json.loads(done.stdout)
            yield Measure(
                f"modules that {word}, {state} process", len(seen["modules"]), seen["modules"]
            )
            yield Measure(f"calls from module to module in it, {state}", seen["switches"])


def _engine_comparisons(checkout: Checkout) -> Measure:
    parts = []
    for name in checkout.sources(".py"):
        if ENGINES_FOLDER in name.split("/"):
            continue
        tree = checkout.tree(name)
        constants = _engine_constants(tree)
        lines = {
            node.lineno
            for node in ast.walk(tree)
            if _compares_engine(node, constants) and isinstance(node, ast.expr | ast.pattern)
        }
        parts += [f"{name}:{line}" for line in sorted(lines)]
    return Measure(
        "comparisons with names of merge engines outside of their folder", len(parts), parts
    )


def _engine_constants(tree: ast.Module) -> set[str]:
    """Names of a module's constants that hold the names of engines, and of engines it imports."""
    names = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and _names_engine(node.value, set()):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.ImportFrom) and node.module:
            folder, module = ["", *node.module.split(".")][-2:]
            if folder == ENGINES_FOLDER and module in ENGINES:
                names |= {alias.asname or alias.name for alias in node.names}
    return names


def _names_engine(node: ast.AST | None, constants: set[str]) -> bool:
    """Whether an expression is the name of an engine, or a collection with one."""
    match node:
        case ast.Constant(value=str(value)):
            return value in ENGINES
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            return any(_names_engine(item, constants) for item in items)
        case ast.Dict(keys=keys):
            return any(_names_engine(key, constants) for key in keys)
        case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[argument]):
            return _names_engine(argument, constants)
        case ast.Name(id=name):
            return name in constants
    return False


def _compares_engine(node: ast.AST, constants: set[str]) -> bool:
    match node:
        case ast.Compare(left=left, comparators=others):
            return any(_names_engine(side, constants) for side in (left, *others))
        case ast.MatchValue(value=value):
            return _names_engine(value, constants)
        case ast.Subscript(value=ast.Dict() | ast.Name() as table):
            return _names_engine(table, constants)
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
            return _names_engine(kinds, constants)
    return False


def _many_parameters(checkout: Checkout) -> Iterator[Measure]:
    parts = []
    for name in checkout.sources(".py", ".pyi"):
        many = {}  # overloads are one function
        for scope, node in _functions(checkout.tree(name)):
            given = node.args
            count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
            first = next(iter((*given.posonlyargs, *given.args)), None)
            count -= first is not None and first.arg in {"self", "cls"}
            if count > PARAMETERS_MAX:
                many[f"{name}: {scope}{node.name}"] = count
        parts += [f"{function}: {count}" for function, count in many.items()]
    yield Measure(f"functions with more than {PARAMETERS_MAX} parameters", len(parts), parts)
    parts = []
    for name in checkout.sources(*KERNEL_SUFFIXES):
        parts += [
            f"{name}: {function}: {count}"
            for function, count in kernel_functions(checkout.text(name))
            if count > PARAMETERS_MAX
        ]
    yield Measure(f"the same in kernels ({', '.join(KERNEL_SUFFIXES)})", len(parts), parts)


def _functions(
    tree: ast.AST, scope: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function below a node, with the dotted names around it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield scope, node
        name = f"{node.name}." if hasattr(node, "name") and hasattr(node, "body") else ""
        yield from _functions(node, scope + name)


def kernel_functions(text: str) -> Iterator[tuple[str, int]]:
    """Names of the functions of a Cython source and how many parameters they have.

    A function begins with ``def``, ``cdef`` or ``cpdef`` and a name before a parenthesis, and its
    head ends with a colon; declarations of fields and variables do not.
    """
    text = re.sub(r"#.*", "", text)
    for start in re.finditer(r"^[ \t]*(?:def|cdef|cpdef)\b[^\n(=:]*?(\w+)\(", text, re.M):
        depth, end, parameters = 1, start.end(), [""]
        while depth and end < len(text):
            mark = text[end]
            depth += (mark in "([") - (mark in ")]")
            if mark == "," and depth == 1:
                parameters.append("")
            elif depth:
                parameters[-1] += mark
            end += 1
        if re.match(r"[^\n=]*:", text[end:]):
            yield start[1], sum(bool(parameter.strip()) for parameter in parameters)


def _exceptions(checkout: Checkout) -> Measure:
    """Modules that the style test lists as public, and imports that contracts ignore."""
    parts = []
    program = "from tests import test_style as t; print(*sorted(getattr(t, 'PUBLIC_MODULES', ())))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=checkout.root,
        env={**os.environ, "PYTHONPATH": str(checkout.root)},
        capture_output=True,
        text=True,
        check=True,
    )
    parts += done.stdout.split()
    settings = tomllib.loads(checkout.text("pyproject.toml"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        parts += contract.get("ignore_imports", [])
    return Measure("exceptions in the import contracts and the style test", len(parts), parts)


def _tests(checkout: Checkout) -> Iterator[Measure]:
    """A module's tests are found in its folder below ``tests``, after ``test_`` and its name.

    Claims that cross modules are counted by themselves (see CONTRIBUTING.md).
    """
    tests = [name for name in checkout.names if re.fullmatch(r"tests/(?:.+/)?test_\w+\.py", name)]
    modules = {Path(name).with_suffix("") for name in checkout.sources(".py", ".pyx", ".pxi")}
    led = [
        name
        for name in tests
        if Path(name.removeprefix("tests/").replace("/test_", "/")).with_suffix("") in modules
    ]
    yield Measure("test modules", len(tests))
    yield Measure("test modules that a reader finds from the name of the module", len(led), led)
    claims = [name for name in tests if name.startswith("tests/claims/")]
    yield Measure("test modules of claims that cross modules", len(claims), claims)


def _exported_names(checkout: Checkout) -> Measure:
    for node in checkout.tree("fermion_table/__init__.py").body:
        if isinstance(node, ast.Assign) and "__all__" in ast.unparse(node.targets[0]):
            called = isinstance(node.value, ast.Call)
            names = ast.literal_eval(node.value.args[1] if called else node.value)
            if called:  # of each module, loaded when asked for
                names = list(itertools.chain.from_iterable(names.values()))
            return Measure("names that fermion_table exports", len(names), names)
    raise ValueError("fermion_table/__init__.py: expected __all__, found none")


def table(rows: list[Measure]) -> str:
    """The measures as aligned text, and what the sizes consist of."""
    width = max(len(row.name) for row in rows)
    lines = [f"{row.name:<{width}}  {row.count:>8,}" for row in rows]
    for row in rows:
        if row.name.startswith("lines"):
            lines += ["", f"{row.name}:", *(f"  {part}" for part in row.parts)]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.house", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--json", action="store_true", help="print counts and what they consist of")
    parser.add_argument("--root", type=Path, default=PROJECT, help="the checkout to measure")
    parser.add_argument("--longest", type=int, default=LONGEST_FILES, help="long files to list")
    given = parser.parse_args(arguments)
    root = given.root.resolve()
    rows = [*of_files(root, longest=given.longest), *of_visits(root)]
    if given.json:
        shown: list[dict[str, Any]] = [asdict(row) for row in rows]
        print(json.dumps(shown, indent=1))
    else:
        print(table(rows))


if __name__ == "__main__":
    main()
