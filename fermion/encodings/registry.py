"""Every encoding, by its persisted id.

A new encoding is a file of its own and an entry here. Its class says its id and its name, which
types it holds, how it is written where an option names it, and what it would need where nothing is
named. A released encoding also needs its place in the specification and, in `fermion.layout`, in
`EncodingId` and an edition; until then only the newest edition writes it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, MutableMapping

from fermion.encodings.encoding import Encoding
from fermion.errors import InvalidArgumentError
from fermion.layout import EncodingId


class _Encodings(MutableMapping[int, Encoding]):
    """Encodings by id; each is loaded when it is first asked for.

    Most reads need none or few of them, as the kernels know those of most pages.

    classes: Module and name of each class.
    """

    def __init__(self, classes: dict[int, str]) -> None:
        self._entries: dict[int, str | Encoding] = {**classes}

    def __getitem__(self, number: int) -> Encoding:
        entry = self._entries[number]
        if isinstance(entry, str):
            module, name = entry.split(".")
            entry = getattr(importlib.import_module(f"fermion.encodings.{module}"), name)()
            self._entries[number] = entry
        return entry

    def __setitem__(self, number: int, encoding: Encoding) -> None:
        self._entries[number] = encoding

    def __delitem__(self, number: int) -> None:
        del self._entries[number]

    def __iter__(self) -> Iterator[int]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


ENCODINGS = _Encodings(
    {
        EncodingId.PLAIN: "plain.Plain",
        EncodingId.CONSTANT: "constant.Constant",
        EncodingId.BITMAP: "bitmap.Bitmap",
        EncodingId.DICTIONARY: "dictionary.Dictionary",
        EncodingId.FOR_BITPACK: "for_bitpack.ForBitpack",
        EncodingId.PCODEC: "pcodec.PcodecBlocks",
        EncodingId.SPLIT_LENGTHS: "split_lengths.SplitLengths",
        EncodingId.ZSTD: "compressed.ZstdNode",
        EncodingId.NARROW: "narrow.Narrow",
        EncodingId.DICTIONARY_LOCAL: "dictionary.DictionaryLocal",
        EncodingId.DELTA: "delta.Delta",
        EncodingId.ALP: "alp.DecimalFloats",
        EncodingId.RLE: "rle.RunLength",
        EncodingId.BYTE_STREAM_SPLIT: "byte_stream_split.ByteStreamSplit",
        EncodingId.FSST: "fsst.Fsst",
        EncodingId.LZ4: "compressed.Lz4Node",
        EncodingId.GLOBAL_DICTIONARY: "dictionary.GlobalDictionary",
    }
)
"""In the order in which estimates that are equal win."""


def selectable_names() -> list[str]:
    """Names of the encodings that a writer may be told to use, by id."""
    found = sorted((each.id, each.name) for each in ENCODINGS.values() if each.selectable)
    return [name for _, name in found]


def selectable(name: str) -> Encoding:
    """The encoding that an option names.

    Raises InvalidArgumentError: There is none of that name.
    """
    for encoding in ENCODINGS.values():
        if encoding.name == name and encoding.selectable:
            return encoding
    expected = ", ".join(selectable_names())
    raise InvalidArgumentError(f"encoding {name!r}: expected one of {expected}")


def encoding_label(encoding: int) -> str:
    """The name of an encoding by its id, for people; also where this reader does not know it."""
    return ENCODINGS[encoding].name if encoding in ENCODINGS else f"unknown {encoding}"
