"""MessagePack, by the package msgpack. Sizes in the data are bounded by its length."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ottla.common.extras import require_packages
from ottla.search.decoders import Undecodable, exact_double

EXTRA = "ottla[search]"
require_packages("the decoder msgpack needs", {"msgpack": "msgpack"}, EXTRA)

import msgpack  # noqa: E402


def read_msgpack(data: bytes) -> object:
    """One value. Raises Undecodable."""
    try:
        return _plain(msgpack.unpackb(data, strict_map_key=False, timestamp=3))
    except RecursionError:
        raise Undecodable("the value is nested too deeply") from None
    except (ValueError, OverflowError, TypeError) as error:  # an unhashable key is a TypeError
        raise Undecodable(str(error) or type(error).__name__) from None


def _plain(value: Any) -> object:
    if isinstance(value, dict):
        return {_name(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return exact_double(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, msgpack.ExtType):
        return {"type": value.code, "data": value.data.hex()}
    return value.hex() if isinstance(value, bytes) else value


def _name(key: Any) -> str:
    plain = _plain(key)
    return plain if isinstance(plain, str) else str(plain)
