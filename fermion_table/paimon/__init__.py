"""Apache Paimon: import of its tables, and Fermion files in them."""

from fermion_table.paimon.file_format import register
from fermion_table.paimon.importing import from_paimon

__all__ = ["from_paimon", "register"]
