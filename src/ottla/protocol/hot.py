"""Selection of the compiled codecs of small requests or their Python twins; tests compare the two.

The choice is made once, at import: the compiled module if it was built, else Python.
"""

from __future__ import annotations

from ottla.protocol._hot_py import NO_TAGS_OF_ONE, TOPIC_ID_FROM, OneFetched, OneProduced

try:
    from ottla.protocol._hot import (
        pack_one_fetched,
        pack_one_produced,
        parse_one_fetch,
        parse_one_produce,
        read_client_id,
    )
except ImportError:
    from ottla.protocol._hot_py import (
        pack_one_fetched,
        pack_one_produced,
        parse_one_fetch,
        parse_one_produce,
        read_client_id,
    )

__all__ = [
    "NO_TAGS_OF_ONE",
    "TOPIC_ID_FROM",
    "OneFetched",
    "OneProduced",
    "pack_one_fetched",
    "pack_one_produced",
    "parse_one_fetch",
    "parse_one_produce",
    "read_client_id",
]
