"""Selection of the compiled search for bytes or its Python twin; tests compare the two.

The choice is made once, at import: the compiled module if it was built, else Python.
"""

from __future__ import annotations

try:
    from ottla.search._byte_search import find_bytes, find_exponent, has_exponent
except ImportError:
    from ottla.search._byte_search_py import find_bytes, find_exponent, has_exponent

__all__ = ["find_bytes", "find_exponent", "has_exponent"]
