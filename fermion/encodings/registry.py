"""Every encoding by its persisted id. A new encoding is added here and in `EncodingId`."""

from __future__ import annotations

from fermion.encodings.bitmap import Bitmap
from fermion.encodings.constant import Constant
from fermion.encodings.plain import Plain
from fermion.encodings.protocol import Encoding
from fermion.layout import EncodingId

ENCODINGS: dict[int, Encoding] = {
    EncodingId.PLAIN: Plain(),
    EncodingId.CONSTANT: Constant(),
    EncodingId.BITMAP: Bitmap(),
}
