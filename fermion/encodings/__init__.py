"""Public names only."""

from typing import TYPE_CHECKING

from fermion.exports import load_when_asked_for

if TYPE_CHECKING:  # readers choose no encodings
    from fermion.encodings.choice.choose import ChoiceMemory as ChoiceMemory

__all__, __getattr__, __dir__ = load_when_asked_for(
    "fermion.encodings", {"choice.choose": ("ChoiceMemory",)}
)
