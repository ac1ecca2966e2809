"""Large values that lie outside of pages, and the references to them that columns hold.

The values of a blob column (field metadata ``fermion:blob=true``) lie by themselves, in the file or
in blob files beside it. A reader gives bytes, handles (``blobs="handles"``) or references.
"""

from typing import TYPE_CHECKING

from fermion.exports import load_when_asked_for

if TYPE_CHECKING:  # for type checkers and editors; a running program follows the table below
    from fermion.blobs.handle import Handle as Handle
    from fermion.blobs.handle import HandleType as HandleType
    from fermion.blobs.handle import as_handles as as_handles
    from fermion.blobs.handle import handle_type as handle_type
    from fermion.blobs.handle import values_of as values_of
    from fermion.blobs.references import REFERENCE as REFERENCE
    from fermion.blobs.references import as_references as as_references
    from fermion.blobs.references import given_field as given_field
    from fermion.blobs.references import is_blob as is_blob
    from fermion.blobs.references import is_reference as is_reference
    from fermion.blobs.references import stored_field as stored_field
    from fermion.blobs.values import BlobFiles as BlobFiles
    from fermion.blobs.values import BlobValues as BlobValues
    from fermion.blobs.writing import BlobSink as BlobSink
    from fermion.blobs.writing import BlobWriter as BlobWriter

__all__, __getattr__, __dir__ = load_when_asked_for(
    __name__,
    {
        "handle": ("Handle", "HandleType", "as_handles", "handle_type", "values_of"),
        "references": (
            "REFERENCE",
            "as_references",
            "given_field",
            "is_blob",
            "is_reference",
            "stored_field",
        ),
        "values": ("BlobFiles", "BlobValues"),
        "writing": ("BlobSink", "BlobWriter"),
    },
)
