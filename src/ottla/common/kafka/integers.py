"""Largest values of the protocol's signed integers.

In a module of their own, since commands need them for option ranges, but not the tables of settings.
"""

from __future__ import annotations

MAX_SHORT = 2**15 - 1
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
