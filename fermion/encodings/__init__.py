"""Public names only."""

from fermion.encodings.selection import ChoiceMemory

__all__ = ["ChoiceMemory"]
