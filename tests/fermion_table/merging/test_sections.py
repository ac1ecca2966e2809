"""Sections of a tree: no keys across cuts, overlaps connected, runs in order of time; packing."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion_table.errors import CorruptMetadata
from fermion_table.merging.sections import (
    SortedRun,
    TreeFile,
    cut_sections,
    sorted_runs,
)

MB = 1024 * 1024


def file(low, high, level=0, order=0, size=1) -> TreeFile:
    return TreeFile(low, high, level, order, size)


@st.composite
def trees(draw: st.DrawFn) -> list[TreeFile]:
    """Draw the files of a tree, mixed: runs of several files at level 0 too."""
    as_bytes = draw(st.booleans())
    files = []
    for level, order in [(0, 1), (0, 2), (0, 7), (2, 0), (5, 9)]:
        bounds = sorted(draw(st.lists(st.integers(0, 40), max_size=8, unique=True)))
        for low, other in zip(bounds[::2], bounds[1::2], strict=False):
            high = draw(st.sampled_from([low, other]))
            pair = (f"{low:03}".encode(), f"{high:03}".encode()) if as_bytes else (low, high)
            files.append(TreeFile(*pair, level, order, draw(st.integers(0, 9 * MB))))
    return draw(st.permutations(files))


def overlap(one: TreeFile, other: TreeFile) -> bool:
    return one.min_key <= other.max_key and other.min_key <= one.max_key


@given(trees())
def test_a_section_holds_what_overlaps_directly_or_through_others(files):
    """Connected components of the graph of overlaps, found by joining pairs."""
    components = {each: {each} for each in files}
    for one, other in itertools.combinations(files, 2):
        if overlap(one, other) and components[one] is not components[other]:
            joined = components[one] | components[other]
            for each in joined:
                components[each] = joined
    expected = {frozenset(each) for each in components.values()}
    sections = cut_sections(files)
    assert {frozenset(section.files) for section in sections} == expected
    assert sum(len(section.files) for section in sections) == len(files)
    for before, after in itertools.pairwise(sections):
        assert before.max_key < after.min_key


@given(trees())
def test_runs_of_a_section_go_from_the_newest_to_the_oldest(files):
    for section in cut_sections(files):
        firsts = [run[0] for run in section.runs]
        ages = [(each.level, 0 if each.level else -each.order) for each in firsts]
        assert ages == sorted(set(ages))
        for run in section.runs:
            assert len({each.run for each in run}) == 1
            for before, after in itertools.pairwise(run):
                assert before.max_key < after.min_key
        assert section.is_single_run == (len(section.runs) == 1)
        assert section.min_key == min(each.min_key for each in section.files)
        assert section.max_key == max(each.max_key for each in section.files)


def test_equal_bounds_share_a_section():
    sections = cut_sections([file(1, 5, 0, 2), file(5, 9, 0, 1), file(10, 11, 3)])
    assert [len(section.files) for section in sections] == [2, 1]
    assert [each.order for each in sections[0].files] == [2, 1]


def test_files_of_one_flush_are_one_run():
    (section, other) = cut_sections([file(1, 5, 0, 3), file(6, 9, 0, 3)])
    assert section.is_single_run
    assert other.is_single_run
    assert [len(run) for run in sorted_runs([file(6, 9, 0, 3), file(1, 5, 0, 3)])] == [2]


@pytest.mark.parametrize(
    "files",
    [
        [file(1, 5, 2), file(5, 9, 2)],
        [file(1, 9, 2), file(3, 4, 2)],
        [file(3, 4, 2), file(1, 9, 2)],
        [file(1, 1, 0, 4), file(1, 1, 0, 4)],
        [file(5, 4)],
    ],
)
def test_runs_whose_files_overlap_are_refused(files):
    with pytest.raises(CorruptMetadata):
        cut_sections(files)


def test_there_may_be_no_files():
    assert cut_sections([]) == []
    assert list(SortedRun()) == []
