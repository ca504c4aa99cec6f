"""Selection of the compiled walk or its Python twin; both pass the same hostile corpus.

The choice is made once, at import: the compiled module if it was built, else Python.
"""

from __future__ import annotations

from typing import Literal

IMPLEMENTATION: Literal["compiled", "pure"]
"""Name of the selected twin; `ottla --version` prints it."""

try:
    from ottla.record._batch import (
        INDEX_WIDTH,
        find_timestamp,
        index_records,
        max_timestamp,
        oversized_record,
        parse_headers,
        parse_records,
        refused_records,
        render_rows,
        usual_header,
        walk_records,
    )

    IMPLEMENTATION = "compiled"
except ImportError:
    from ottla.record._batch_py import (
        INDEX_WIDTH,
        find_timestamp,
        index_records,
        max_timestamp,
        oversized_record,
        parse_headers,
        parse_records,
        refused_records,
        render_rows,
        usual_header,
        walk_records,
    )

    IMPLEMENTATION = "pure"

__all__ = [
    "IMPLEMENTATION",
    "INDEX_WIDTH",
    "find_timestamp",
    "index_records",
    "max_timestamp",
    "oversized_record",
    "parse_headers",
    "parse_records",
    "refused_records",
    "render_rows",
    "usual_header",
    "walk_records",
]
