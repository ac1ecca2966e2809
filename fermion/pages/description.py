"""What a page is made of, for people."""

from __future__ import annotations

from dataclasses import dataclass

from fermion.encodings.decoding import NodeDescription, TreeSlice, describe_tree
from fermion.encodings.removed_nulls import open_root
from fermion.errors import FermionError
from fermion.io.checksum import UNCHECKED
from fermion.pages.pages import PageSlice, expansion_limit, located, open_frame, root_of


@dataclass(frozen=True, slots=True)
class PageDescription:
    """What a page is made of, for people.

    Attributes
    ----------
    slots
        Slots; for a dictionary page, its entries.
    codec
        ``none`` or ``zstd``, over the whole tree.
    size, raw_length
        Bytes of the page, and of its tree without the codec.
    tree
        The encodings.
    """

    slots: int
    codec: str
    size: int
    raw_length: int
    tree: NodeDescription

    @property
    def label(self) -> str:
        """The tree and the codec on one line."""
        return tree_label(self.tree) + ("" if self.codec == "none" else f" in {self.codec}")


def tree_label(tree: NodeDescription) -> str:
    """A tree of encodings on one line: ``dictionary(codes: for_bitpack, values: plain)``."""
    if not tree.children:
        return tree.encoding
    children = ", ".join(f"{child.role}: {tree_label(child)}" for child in tree.children)
    return f"{tree.encoding}({children})"


def describe_page(page: PageSlice, *, where: str = "") -> PageDescription:
    """Names and sizes of a page's encodings; its checksum is not verified.

    Parameters
    ----------
    page
        The page; its slots and slice are ignored.

    Raises
    ------
    InvalidFileError, UnsupportedEncodingError, UnsupportedVersionError
        The page is not well-formed, or needs a newer reader.
    """
    try:
        frame = open_frame(page, UNCHECKED)
        root, values = root_of(frame), frame.slots
        if root.flags:
            root, values = open_root(root)
        tree = TreeSlice(root, values, 0, values, expansion_limit(len(page.buffer)))
        return PageDescription(
            frame.slots,
            frame.codec.name.lower(),
            len(page.buffer),
            frame.raw_length,
            describe_tree(tree),
        )
    except (FermionError, ValueError) as error:
        raise located(error, where, page) from error
