"""Every encoding by its persisted id. A new encoding is added here and in `EncodingId`."""

from __future__ import annotations

from fermion.encodings.alp import DecimalFloats
from fermion.encodings.bitmap import Bitmap
from fermion.encodings.byte_stream_split import ByteStreamSplit
from fermion.encodings.constant import Constant
from fermion.encodings.delta import Delta
from fermion.encodings.dictionary import Dictionary, DictionaryLocal, GlobalDictionary
from fermion.encodings.encoding import Encoding
from fermion.encodings.for_bitpack import ForBitpack
from fermion.encodings.fsst import Fsst
from fermion.encodings.lz4 import Lz4Node
from fermion.encodings.narrow import Narrow
from fermion.encodings.pcodec import PcodecBlocks
from fermion.encodings.plain import Plain
from fermion.encodings.rle import RunLength
from fermion.encodings.split_lengths import SplitLengths
from fermion.encodings.zstd import ZstdNode
from fermion.layout import EncodingId

ENCODINGS: dict[int, Encoding] = {
    EncodingId.PLAIN: Plain(),
    EncodingId.CONSTANT: Constant(),
    EncodingId.BITMAP: Bitmap(),
    EncodingId.DICTIONARY: Dictionary(),
    EncodingId.FOR_BITPACK: ForBitpack(),
    EncodingId.PCODEC: PcodecBlocks(),
    EncodingId.SPLIT_LENGTHS: SplitLengths(),
    EncodingId.ZSTD: ZstdNode(),
    EncodingId.NARROW: Narrow(),
    EncodingId.DICTIONARY_LOCAL: DictionaryLocal(),
    EncodingId.DELTA: Delta(),
    EncodingId.RLE: RunLength(),
    EncodingId.BYTE_STREAM_SPLIT: ByteStreamSplit(),
    EncodingId.ALP: DecimalFloats(),
    EncodingId.FSST: Fsst(),
    EncodingId.LZ4: Lz4Node(),
    EncodingId.GLOBAL_DICTIONARY: GlobalDictionary(),
}
