"""Public names only."""

from fermion.encodings.choice.choose import ChoiceMemory

__all__ = ["ChoiceMemory"]
