"""Every encoding, by its persisted id.

A new encoding is a file of its own and an entry here. Its class says its id and its name, which
types it holds, how it is written where an option names it, and what it would need where nothing is
named. A released encoding also needs its place in the specification and, in `fermion.layout`, in
`EncodingId` and an edition; until then only the newest edition writes it.
"""

from __future__ import annotations

from fermion.encodings.alp import DecimalFloats
from fermion.encodings.bitmap import Bitmap
from fermion.encodings.byte_stream_split import ByteStreamSplit
from fermion.encodings.compressed import Lz4Node, ZstdNode
from fermion.encodings.constant import Constant
from fermion.encodings.delta import Delta
from fermion.encodings.dictionary import Dictionary, DictionaryLocal, GlobalDictionary
from fermion.encodings.encoding import Encoding
from fermion.encodings.for_bitpack import ForBitpack
from fermion.encodings.fsst import Fsst
from fermion.encodings.narrow import Narrow
from fermion.encodings.pcodec import PcodecBlocks
from fermion.encodings.plain import Plain
from fermion.encodings.rle import RunLength
from fermion.encodings.split_lengths import SplitLengths
from fermion.errors import InvalidArgumentError

ENCODINGS: dict[int, Encoding] = {
    encoding.id: encoding
    for encoding in (
        Plain(),
        Constant(),
        Bitmap(),
        Dictionary(),
        ForBitpack(),
        PcodecBlocks(),
        SplitLengths(),
        ZstdNode(),
        Narrow(),
        DictionaryLocal(),
        Delta(),
        DecimalFloats(),
        RunLength(),
        ByteStreamSplit(),
        Fsst(),
        Lz4Node(),
        GlobalDictionary(),
    )
}
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
