"""The one place that chooses between the compiled `Record` and `Delivery` and their pure twins; a test holds both.

The choice is made once, at import: the compiled module where it was built, else Python.
"""

from __future__ import annotations

try:
    from ottla.api._messages import Deliveries, Delivery, Record, records_of
except ImportError:
    from ottla.api._messages_py import Deliveries, Delivery, Record, records_of

__all__ = ["Deliveries", "Delivery", "Record", "records_of"]
