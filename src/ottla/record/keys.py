"""Selection of the compiled table of keys or its Python twin; tests compare the two.

The choice is made once, at import: the compiled module if it was built, else Python.
"""

from __future__ import annotations

try:
    from ottla.record._keys import ENTRY_BYTES, SECRET_BYTES, KeyTable, gather
except ImportError:
    from ottla.record._keys_py import (  # type: ignore[assignment]
        ENTRY_BYTES,
        SECRET_BYTES,
        KeyTable,
        gather,
    )

__all__ = ["ENTRY_BYTES", "SECRET_BYTES", "KeyTable", "gather"]
