"""A new encoding is a class and an entry of the registry: a toy one goes all the way."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.columns.types import PhysicalKind, PhysicalType, Values, number
from fermion.encodings.choice import policy
from fermion.encodings.encoding import (
    Buffer,
    Chooser,
    DecodeContext,
    EncodeSettings,
    Encoding,
    Estimate,
    Node,
    Recipe,
    Slots,
    node_parts,
)
from fermion.encodings.registry import ENCODINGS, selectable_names
from fermion.errors import InvalidArgumentError, UnsupportedEncodingError
from fermion.layout import EncodingId
from tests.kit.files.physical_values import TYPES

_PARAMETERS = struct.Struct("<qq")


class Progression(Encoding):
    """Integers that all differ by the same step: the first one and the step."""

    id = 200
    name = "progression"

    def holds(self, physical: PhysicalType) -> bool:
        """Integers of 8 bytes."""
        return physical.kind is PhysicalKind.INT64

    def estimate(self, values: Values, physical: PhysicalType, search: Chooser) -> Estimate | None:
        """A node for each page, where all of the chunk is one progression."""
        assert isinstance(values, np.ndarray)
        if len(np.unique(np.diff(values))) > 1:
            return None
        pages = search.overhead // 8
        return Estimate(search.overhead + pages * _PARAMETERS.size, Recipe(self.id))

    def encode(
        self, values: Values, physical: PhysicalType, recipe: Recipe, settings: EncodeSettings
    ) -> list[Buffer]:
        """Fails for other values."""
        assert isinstance(values, np.ndarray)
        steps = np.unique(np.diff(values)).tolist()
        if len(steps) > 1:
            raise InvalidArgumentError("encoding progression cannot hold values of several steps")
        parameters = _PARAMETERS.pack(int(values[0]), steps[0] if steps else 0)
        return node_parts(self.id, [parameters])

    def read_fixed(
        self, node: Node, count: int, slots: Slots, out: np.ndarray, context: DecodeContext
    ) -> None:
        """See `Encoding.read_fixed`."""
        first, step = node.unpack(_PARAMETERS)
        out[:] = first + step * np.asarray(slots)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One line; and the policies, which are made of the registry once, are made again."""
    monkeypatch.setitem(ENCODINGS, Progression.id, Progression())
    policy._policy.cache_clear()
    yield
    policy._policy.cache_clear()


def values(rows: int = 100_000) -> pa.Table:
    """Return steps of 7, which delta would encode well too, and values without any order."""
    rng = np.random.default_rng(1)
    return pa.table({"steps": np.arange(rows) * 7 + 3, "other": rng.integers(0, 99, rows)})


def encodings_of(path: Path, column: str) -> tuple[str, ...]:
    with fermion.open(path) as file:
        return file.column(column).encodings


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("profile", ["balanced", "compact", "fast", "random"])
def test_a_new_encoding_is_chosen_where_it_is_smallest_and_read_back(tmp_path, profile):
    path = tmp_path / "a.fmn"
    fermion.write_table(values(), path, profile=profile)
    assert encodings_of(path, "steps") == ("progression",)
    assert "progression" not in encodings_of(path, "other")
    with fermion.open(path) as file:
        assert file.read().equals(values())
        assert file.read(filter="steps = 703").num_rows == 1
        taken = file.take([0, 99_999, 5])
        assert taken.equals(values().take([0, 99_999, 5]))
        assert file.verify().ok


@pytest.mark.usefixtures("registered")
def test_a_new_encoding_is_used_where_an_option_names_it(tmp_path):
    """Also for a chunk so small that nothing is searched."""
    path = tmp_path / "a.fmn"
    fermion.write_table(values(100), path, encodings={"steps": "progression"})
    assert encodings_of(path, "steps") == ("progression",)
    assert fermion.read_table(path).equals(values(100))


@pytest.mark.usefixtures("registered")
def test_a_new_encoding_is_refused_for_what_it_cannot_hold(tmp_path):
    path = tmp_path / "a.fmn"
    for table, words in (
        (values(100), "cannot hold values of several steps"),
        (pa.table({"other": ["a"]}), "progression cannot hold values of type binary"),
    ):
        with pytest.raises(InvalidArgumentError, match=words):
            fermion.write_table(table, path, encodings={"other": "progression"})
    with pytest.raises(InvalidArgumentError, match=r"expected one of plain, .*, lz4, progression$"):
        fermion.write_table(values(100), path, encodings={"other": "progresion"})


@pytest.mark.usefixtures("registered")
def test_only_the_newest_edition_has_an_encoding_that_none_lists(tmp_path):
    path = tmp_path / "a.fmn"
    fermion.write_table(values(), path, edition="core-2026")
    assert "progression" not in encodings_of(path, "steps")
    with pytest.raises(InvalidArgumentError, match="'core-2026' lacks the encoding progression"):
        fermion.write_table(values(), path, edition="core-2026", encodings={"steps": "progression"})


@pytest.mark.usefixtures("registered")
def test_a_tree_of_a_page_names_a_new_encoding(tmp_path, capsys):
    from fermion.cli.program import main

    path = tmp_path / "a.fmn"
    fermion.write_table(values(), path)
    assert main(["inspect", str(path), "--pages", "--column", "steps"]) == 0
    assert "progression" in capsys.readouterr().out


def test_a_reader_without_it_refuses_the_pages(tmp_path, monkeypatch, registered):
    path = tmp_path / "a.fmn"
    fermion.write_table(values(), path)
    monkeypatch.delitem(ENCODINGS, Progression.id)
    assert encodings_of(path, "steps") == ("unknown 200",)
    with pytest.raises(UnsupportedEncodingError, match="200 is not known to this reader"):
        fermion.read_table(path)


def test_ids_and_names_of_encodings_are_those_of_the_format():
    for encoding in ENCODINGS.values():
        assert encoding.name == EncodingId(encoding.id).name.lower()
    assert set(selectable_names()) == {each.name for each in ENCODINGS.values()} - {
        "dictionary_local",
        "global_dictionary",
    }


def test_what_an_option_writes_holds_only_encodings_that_are_registered():
    """The recipe of each encoding for each type that it says it holds."""
    codec = policy.policy_for(fermion.WriteOptions()).settings.codec
    asked = 0
    for encoding in ENCODINGS.values():
        for physical in [*TYPES, number(PhysicalKind.FLOAT16)]:
            if encoding.holds(physical):
                pending = [encoding.recipe(physical, codec)]
                while pending:
                    recipe = pending.pop()
                    assert recipe.encoding in ENCODINGS
                    pending += recipe.children
                    asked += 1
    assert asked > 100
