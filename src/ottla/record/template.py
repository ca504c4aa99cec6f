"""Templates of rendered records (`walk.render_rows`): text, and the numbers of fields."""

from __future__ import annotations

OFFSET, TIMESTAMP, KEY, VALUE, KEY_SIZE, VALUE_SIZE = range(6)
"""Fields of a record, in the order of `_batch_py.render_rows`; `_batch.pyx` has the same numbers."""

Template = tuple[bytes | int, ...]
"""The text of one record: literal parts, and fields."""
