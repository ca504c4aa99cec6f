"""Selects the compiled `Record` and `Delivery` or their pure Python twins; a test covers both.

The selection is made once, at import: the compiled module if it was built, otherwise Python.
"""

from __future__ import annotations

try:
    from ottla.api._messages import Deliveries, Delivery, Record, records_of
except ImportError:
    from ottla.api._messages_py import Deliveries, Delivery, Record, records_of

__all__ = ["Deliveries", "Delivery", "Record", "records_of"]
