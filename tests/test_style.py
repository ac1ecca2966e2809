"""The rules that a program can check: layers, length, names, docstrings, exports."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).resolve().parent.parent
DOCS = PROJECT / "docs"
PACKAGES = ("fermion", "fermion_table", "spark_ext", "flink_ext")
LINES_MAX = 800  # a file holds one idea, and is not cut only to be short
STEPS_MAX = 15  # of a way through the code that docs/architecture.md tells
BANNED_WORDS = {"util", "utils", "common", "core", "helper", "helpers", "manager"}
GATHERING = {"__init__.py", "__main__.py", "engine.py", "typing.py"}
SOURCE_SUFFIXES = {".py", ".pyi", ".pyx", ".pxd", ".pxi", ".h", ".c"}
ENTRY_POINTS = {"fermion.commands"}  # groups of pyproject.toml, which look like modules
DOTTED = re.compile(rf"(?<![\w./-])(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
# Spelled in two pieces, so that this file does not match itself.
MACHINE_PATHS = re.compile(r"(?<![\w.~-])/(?:" + r"work|home|root|Users|tmp)/" + r"\w")


def tracked_files() -> list[Path]:
    """Return the files that belong to the project: what Git tracks, else what a release holds."""
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    if listing.returncode == 0 and listing.stdout:
        files = [PROJECT / name for name in listing.stdout.split("\0") if name]
    else:
        folders = [*PACKAGES, "tests", "examples", "benchmarks", "docs", "tools"]
        files = [file for folder in folders for file in (PROJECT / folder).rglob("*")]
    return sorted(file for file in files if file.is_file() and "__pycache__" not in file.parts)


FILES = tracked_files()
SOURCES = [file for file in FILES if file.suffix in SOURCE_SUFFIXES]
MODULES = [file for file in SOURCES if file.suffix == ".py"]
PACKAGE_MODULES = [file for file in MODULES if file.relative_to(PROJECT).parts[0] in PACKAGES]


def name_of(file: Path) -> str:
    """Return a file's path within the project, for messages."""
    return file.relative_to(PROJECT).as_posix()


TEST_MODULES = {name_of(file) for file in MODULES if file.name.startswith("test_")}


def module_of(file: Path) -> str:
    """Return a module's dotted name."""
    parts = file.relative_to(PROJECT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULE_NAMES = {module_of(file) for file in SOURCES if file.suffix in {".py", ".pyx", ".pyi"}}


def parse(file: Path) -> ast.Module:
    """Return a module's syntax tree."""
    return ast.parse(file.read_text(encoding="utf-8"), filename=name_of(file))


def words_of(name: str) -> set[str]:
    """Split a snake_case or CamelCase name into lower-case words."""
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


@dataclass(frozen=True)
class Facts:
    """What the tests here ask of a module; trees of all modules would take much memory.

    Imports are (module, imported name or None, line), those within functions too. Docstrings are
    all strings that are statements; names are the identifiers of the code, and words of its texts.
    """

    docstring: str | None
    classes: list[tuple[str, int]]
    imports: list[tuple[str, str | None, int]]
    docstrings: list[tuple[str, int]]
    names: set[str]


@cache
def facts_of(file: Path) -> Facts:
    """Return what a module says and has; each is parsed once."""
    tree = parse(file)
    facts = Facts(ast.get_docstring(tree, clean=False), [], [], [], set())
    statements = set()  # strings that are statements
    for node in ast.walk(tree):
        facts.names.update(identifiers(node))
        if isinstance(node, ast.ClassDef):
            facts.classes.append((node.name, node.lineno))
        elif isinstance(node, ast.Expr) and is_text(node.value):
            statements.add(node.value)
            facts.docstrings.append((node.value.value, node.lineno))
        elif is_text(node) and node not in statements:
            facts.names.update(re.findall(r"\w+", node.value))
        elif isinstance(node, ast.Import):
            facts.imports.extend((alias.name, None, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = file.relative_to(PROJECT).parts[: -node.level] if node.level else ()
            source = ".".join([*folder, *([node.module] if node.module else [])])
            facts.imports.extend((source, alias.name, node.lineno) for alias in node.names)
    return facts


def is_text(node: ast.AST) -> bool:
    """Whether a node is a string."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def identifiers(node: ast.AST) -> list[str]:
    """Return the names that a node itself has: of what it defines, reads, imports or is given."""
    named = [getattr(node, field, None) for field in ("id", "attr", "arg", "name", "asname")]
    return [part for name in named if isinstance(name, str) for part in name.split(".")]


def prose_of(file: Path) -> list[tuple[str, int]]:
    """Return the docstrings and comments of a source, and the lines where they begin."""
    text = file.read_text(encoding="utf-8")
    is_python = file.suffix in {".py", ".pyi"}
    begins = r"#.*" if is_python else r'#.*|"""[\s\S]*?"""|/\*[\s\S]*?\*/|//.*'
    comments = [
        (comment[0], text.count("\n", 0, comment.start()) + 1)
        for comment in re.finditer(begins, text)
    ]
    return comments + (facts_of(file).docstrings if is_python else [])


def resolves(name: str) -> bool:
    """Whether a dotted name of ours is a module, or leads from a module to what it has."""
    parts = name.split(".")
    depth = 0
    while depth < len(parts) and ".".join(parts[: depth + 1]) in MODULE_NAMES:
        depth += 1
    if depth == len(parts):
        return True
    value: Any = importlib.import_module(".".join(parts[:depth]))
    for part in parts[depth:]:
        if part in getattr(value, "__annotations__", {}):  # a field without a default
            return True
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


def for_type_checkers(node: ast.stmt) -> list[ast.stmt]:
    """Return what an `if TYPE_CHECKING:` holds; any other statement as it is."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse:
        return node.body
    return [node]


def contracts() -> list[dict]:
    """Return the import contracts of pyproject.toml."""
    with (PROJECT / "pyproject.toml").open("rb") as stream:
        return tomllib.load(stream)["tool"]["importlinter"]["contracts"]


def test_the_project_has_files_to_check():
    """A listing gone wrong would make every other test here pass."""
    assert len(PACKAGE_MODULES) > 10
    assert {file.relative_to(PROJECT).parts[0] for file in PACKAGE_MODULES} == set(PACKAGES)


def test_no_source_file_is_longer_than_eight_hundred_lines():
    lengths = {name_of(file): len(file.read_text().splitlines()) for file in SOURCES}
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


def test_no_module_or_class_has_a_name_that_says_nothing():
    """Folders, modules and classes, split into words."""
    found = []
    for file in MODULES:
        for part in file.relative_to(PROJECT).with_suffix("").parts:
            found += [f"{name_of(file)}: {part}"] if words_of(part) & BANNED_WORDS else []
        for name, line in facts_of(file).classes:
            if words_of(name) & BANNED_WORDS:
                found.append(f"{name_of(file)}:{line}: class {name}")
    assert found == []


def test_every_module_says_on_its_first_line_what_it_holds():
    """The first statement is a docstring that begins on the line of its quotes."""
    silent = []
    for file in MODULES:
        if not file.read_text().strip():
            continue  # an empty __init__.py
        docstring = facts_of(file).docstring
        if not (docstring and docstring.splitlines()[0].strip()):
            silent.append(name_of(file))
    assert silent == []


def test_package_inits_export_and_do_nothing_else():
    """Imports, the docstring, and assignments to dunder names such as `__all__`.

    Imports for type checkers alone count: the names come from `__getattr__` then.
    """
    busy = []
    for file in PACKAGE_MODULES:
        if file.name != "__init__.py":
            continue
        for node in parse(file).body:
            exports = all(
                isinstance(part, ast.Import | ast.ImportFrom) for part in for_type_checkers(node)
            )
            says = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            names = isinstance(node, ast.Assign | ast.AnnAssign) and re.match(
                r"__\w+__\b", ast.unparse(node)
            )
            if not (exports or says or names):
                busy.append(f"{name_of(file)}:{node.lineno}: {ast.unparse(node)[:60]}")
    assert busy == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_exported_name_exists_and_has_a_docstring(package):
    module = importlib.import_module(package)
    exported = module.__all__
    assert len(set(exported)) == len(exported)
    undocumented = [
        name
        for name in exported
        if not name.startswith("__") and not (getattr(module, name).__doc__ or "").strip()
    ]
    assert undocumented == []


@pytest.mark.parametrize("package", PACKAGES)
def test_everything_that_a_package_imports_is_exported(package):
    """`__all__` is the whole list: an import that is not in it was forgotten, or is not public."""
    module = importlib.import_module(package)
    imported = [
        alias.asname or alias.name
        for statement in parse(PROJECT / package / "__init__.py").body
        for node in for_type_checkers(statement)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and node.module not in {"typing", "fermion.exports"}
        for alias in node.names
    ]
    assert sorted(set(imported) - set(module.__all__)) == []


def test_imports_go_down_the_layers():
    """The import contracts of pyproject.toml, as `make lint` checks them.

    In a process of its own, as the linter turns off the loggers that other tests listen to.
    """
    lint = (
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    )
    done = subprocess.run(
        [sys.executable, "-c", lint], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_of_a_package_has_a_layer(package: str):
    """In the package's contract, so that a new folder has to choose."""
    (contract,) = [found for found in contracts() if found.get("containers") == [package]]
    listed = {name.strip() for layer in contract["layers"] for name in layer.split("|")}
    assert listed == {file.parent.name for file in (PROJECT / package).glob("*/__init__.py")}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_modules_directly_in_a_package_are_its_lowest_layer(package: str):
    """They import each other and no folder, except those that gather names for users."""
    above = []
    for file in sorted((PROJECT / package).glob("*.py")):
        if file.name in GATHERING:
            continue
        for source, name, line in facts_of(file).imports:
            parts = [*source.split("."), *([name] if source == package and name else [])]
            if parts[0] == package and (PROJECT / package / parts[1]).is_dir():
                above.append(f"{name_of(file)}:{line}: {'.'.join(parts)}")
    assert above == []


@pytest.mark.parametrize(("package", "most"), [("fermion", 14), ("fermion_table", 12)])
def test_few_modules_lie_directly_in_a_package(package: str, most: int):
    """What is not for all of it has a folder."""
    modules = {file.name for file in (PROJECT / package).glob("*.py")}
    assert len(modules - GATHERING) <= most


def test_the_documented_places_exist():
    """The files that docs/architecture.md names."""
    text = (PROJECT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| .+\? \| `(\w+(?:/\w+)*)` \| (.+) \|$", text, re.MULTILINE)
    assert len(rows) >= 10
    named = [
        f"{folder}/{file}" for folder, files in rows for file in re.findall(r"`(\w+\.py)`", files)
    ]
    assert [name for name in named if not (PROJECT / name).is_file()] == []


def test_the_places_that_contributing_names_exist():
    """Files to copy from, and folders of tests."""
    text = (PROJECT / "CONTRIBUTING.md").read_text()
    pattern = r"`((?:fermion|fermion_table|spark_ext|tests|tools|docs)/[\w/.]+)`"
    named = set(re.findall(pattern, text))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (PROJECT / name).exists()] == []


def is_public(source: str, name: str | None) -> bool:
    """Tell whether packages above may import this: modules directly in a package, and `__all__`.

    The ``__all__`` is the package's, that of a folder of it, or that of its module ``engine``.
    """
    package, *inner = source.split(".")
    if source == package and name is None:
        return True
    if len(inner) == 1 and (PROJECT / package / f"{inner[0]}.py").is_file():
        return inner[0] != "engine" or name in importlib.import_module(source).__all__
    if not inner and name and (PROJECT / package / f"{name}.py").is_file():
        return True
    return len(inner) < 2 and name in getattr(importlib.import_module(source), "__all__", ())


def test_packages_use_only_the_public_names_of_the_packages_below():
    """What is imported from another package is public there."""
    private = []
    for file in PACKAGE_MODULES:
        own = file.relative_to(PROJECT).parts[0]
        for source, name, line in facts_of(file).imports:
            package = source.partition(".")[0]
            if package in PACKAGES and package != own and not is_public(source, name):
                private.append(f"{name_of(file)}:{line}: {source}{f'.{name}' if name else ''}")
    assert private == []


def test_every_declared_dependency_is_imported():
    """A dependency of `pyproject.toml` that nothing imports is a request for nothing."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[^\w-]", each)[0] for each in project["dependencies"]}
    imported = {
        source.partition(".")[0]
        for file in PACKAGE_MODULES
        for source, _, _ in facts_of(file).imports
    }
    assert {name for name in declared if name.replace("-", "_") not in imported} == set()


def test_packages_import_nothing_that_is_not_in_the_wheel():
    """Neither tests nor tools, which lie beside them in a checkout only."""
    beside = {"tests", "tools", "benchmarks", "examples"}
    assert [
        f"{name_of(file)}:{line}: {source}"
        for file in PACKAGE_MODULES
        for source, _, line in facts_of(file).imports
        if source.partition(".")[0] in beside
    ] == []


def test_every_module_of_ours_that_is_imported_exists():
    """Also in tests and benchmarks, which are not part of a contract or of a check of types."""
    ours = {*PACKAGES, "tests", "tools", "benchmarks"}
    missing = []
    for file in MODULES:
        for source, _, line in facts_of(file).imports:
            place = PROJECT.joinpath(*source.split("."))
            places = [place, *(place.with_suffix(suffix) for suffix in SOURCE_SUFFIXES)]
            if source.partition(".")[0] in ours and not any(each.exists() for each in places):
                missing.append(f"{name_of(file)}:{line}: {source}")
    assert missing == []


def test_no_test_module_is_imported():
    """What tests share is in `tests/kit`, or in a module beside them that holds no tests."""
    shared = []
    for file in MODULES:
        for source, name, line in facts_of(file).imports:
            imported = [source, f"{source}.{name}"]
            if {f"{module.replace('.', '/')}.py" for module in imported} & TEST_MODULES:
                shared.append(f"{name_of(file)}:{line}: {source}")
    assert shared == []


def test_every_dotted_name_in_comments_and_docstrings_resolves():
    """`fermion_table.commit.conflict`, `fermion.FermionFile.take`: what it names must exist."""
    gone = [
        f"{name_of(file)}:{line}: {name}"
        for file in SOURCES
        for text, line in prose_of(file)
        for name in DOTTED.findall(text)
        if name not in ENTRY_POINTS and not resolves(name)
    ]
    assert gone == []


def test_every_dotted_name_in_documents_for_developers_resolves():
    """Other pages have names of properties, which look like modules."""
    pages = [*DOCS.glob("design/*.md"), DOCS / "architecture.md", PROJECT / "CONTRIBUTING.md"]
    assert len(pages) > 10
    gone = [
        f"{name_of(page)}: {name}"
        for page in pages
        for name in DOTTED.findall(page.read_text())
        if name not in ENTRY_POINTS and not resolves(name)
    ]
    assert gone == []


@pytest.mark.parametrize("title", ["A batch in", "A filter out"])
def test_each_step_of_the_two_ways_names_what_decides(title: str):
    """At most fifteen steps, each with a module and an object in it."""
    text = (DOCS / "architecture.md").read_text()
    (section,) = re.findall(rf"^## {title}$(.+?)^## ", text, re.M | re.S)
    steps = re.findall(r"^\d+\. .+\n(?: .+\n)*", section, re.M)
    assert [int(step.partition(".")[0]) for step in steps] == [*range(1, len(steps) + 1)]
    assert 10 <= len(steps) <= STEPS_MAX
    silent = [step for step in steps if not {*DOTTED.findall(step)} - MODULE_NAMES]
    assert silent == []


def test_every_file_that_comments_and_docstrings_name_exists():
    """`reading/stripe.py`, `conflict.py`: the end of the path of a file."""
    path = re.compile(r"(?<![\w./*<>{}-])(?:\.\./)*(\w[\w/]*\.(?:py|pyx|pxi|pyi|js|md))\b(?![\w(])")
    ends = {
        "/".join(parts[start:])
        for parts in (file.relative_to(PROJECT).parts for file in FILES)
        for start in range(len(parts))
    }
    gone = [
        f"{name_of(file)}:{line}: {name}"
        for file in SOURCES
        for text, line in prose_of(file)
        for name in path.findall(text)
        if name not in ends
    ]
    assert gone == []


def test_every_name_in_backticks_is_one_of_the_code():
    """In docstrings and comments of the packages; values are in double backticks."""
    known = {
        part for file in MODULES for part in (*facts_of(file).names, *module_of(file).split("."))
    }
    for file in SOURCES:
        if file.suffix not in {".py", ".pyi"}:
            known |= {file.stem, *re.findall(r"\w+", re.sub(r"#.*", "", file.read_text()))}
    gone = [
        f"{name_of(file)}:{line}: {name}"
        for file in SOURCES
        if file.relative_to(PROJECT).parts[0] in PACKAGES
        for text, line in prose_of(file)
        for name in re.findall(r"(?<!`)`([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)`(?!`)", text)
        if not known.issuperset(name.split("."))
    ]
    assert gone == []


def test_every_public_method_has_a_docstring_of_its_own_or_of_a_base_class():
    """A method that a base class documents need not repeat it: `help` finds it there."""
    classes: dict[str, list[ast.ClassDef]] = {}
    public = []
    for file in PACKAGE_MODULES:
        for node in parse(file).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
                public += [] if node.name.startswith("_") else [(file, node)]

    def is_documented(node: ast.ClassDef, name: str) -> bool:
        methods = [part for part in node.body if isinstance(part, ast.FunctionDef)]
        if any(method.name == name and ast.get_docstring(method) for method in methods):
            return True
        bases = [re.sub(r"\[.*", "", ast.unparse(base)).split(".")[-1] for base in node.bases]
        return any(is_documented(base, name) for key in bases for base in classes.get(key, []))

    silent = [
        f"{name_of(file)}:{method.lineno}: {node.name}.{method.name}"
        for file, node in public
        for method in node.body
        if isinstance(method, ast.FunctionDef)
        and not method.name.startswith("_")
        and not any(ast.unparse(each).endswith(".setter") for each in method.decorator_list)
        and not is_documented(node, method.name)
    ]
    assert silent == []


def test_no_module_imports_its_own_package_from_above():
    """`from fermion import X` within `fermion` is fine for a module X, and a cycle for a name."""
    cycles = []
    for file in PACKAGE_MODULES:
        own = file.relative_to(PROJECT).parts[0]
        if file.name in {"cli.py", "__main__.py"} or "jobs" in file.parts:
            continue  # programs, which nothing imports: they may use what users use
        for source, name, line in facts_of(file).imports:
            if source != own:
                continue
            submodule = PROJECT / own / (name or "")
            if not (submodule.with_suffix(".py").exists() or (submodule / "__init__.py").exists()):
                cycles.append(f"{name_of(file)}:{line}: {source} import {name}")
    assert cycles == []


def test_make_looks_for_tests_with_spark_where_they_are():
    """Only there: to find all tests takes a while."""
    makefile = (PROJECT / "Makefile").read_text()
    found = re.search(r"^WITH_SPARK := (.+)$", makefile, re.MULTILINE)
    assert found is not None
    places = tuple(found[1].split())
    tests = [file for file in MODULES if name_of(file).startswith("tests/")]
    marked = [name_of(file) for file in tests if re.search(r"mark\.spark\b", file.read_text())]
    assert len(marked) > 10
    assert [name for name in marked if not name.startswith(places)] == []


def test_no_file_names_a_path_of_one_machine():
    found = []
    for file in FILES:
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # data
        for number, line in enumerate(text.splitlines(), start=1):
            if MACHINE_PATHS.search(line):
                found.append(f"{name_of(file)}:{number}: {line.strip()[:80]}")
    assert found == []
