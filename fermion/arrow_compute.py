"""``pyarrow.compute``, loaded when the first of its functions is called.

It builds some three hundred functions at import, which takes about as long as loading the whole
reader. Only filters need it.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    import pyarrow.compute

    found = globals()[name] = getattr(pyarrow.compute, name)
    return found
