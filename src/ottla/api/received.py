"""The one place that chooses between the compiled `Record` and its pure twin; a test holds them together.

The choice is made once, at import: the compiled module where it was built, else Python.
"""

from __future__ import annotations

try:
    from ottla.api._received import Record, records_of
except ImportError:
    from ottla.api._received_py import Record, records_of

__all__ = ["Record", "records_of"]
