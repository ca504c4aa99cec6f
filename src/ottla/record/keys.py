"""Selection of the compiled functions of keys or their Python twin; tests compare the two.

The choice is made once, at import: the compiled module if it was built, else Python.
"""

from __future__ import annotations

try:
    from ottla.record._keys import (
        ENTRY_BYTES,
        HASH_ID,
        SECRET_BYTES,
        KeyTable,
        filters_with,
        gather,
        hash_key,
        key_filter,
        key_hashes,
    )
except ImportError:
    from ottla.record._keys_py import (  # type: ignore[assignment]
        ENTRY_BYTES,
        HASH_ID,
        SECRET_BYTES,
        KeyTable,
        filters_with,
        gather,
        hash_key,
        key_filter,
        key_hashes,
    )

__all__ = [
    "ENTRY_BYTES",
    "HASH_ID",
    "SECRET_BYTES",
    "KeyTable",
    "filters_with",
    "gather",
    "hash_key",
    "key_filter",
    "key_hashes",
]
