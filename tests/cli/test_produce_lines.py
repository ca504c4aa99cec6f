"""Splitting of a line into key and value."""

from __future__ import annotations

import pytest

from ottla.cli.produce import _split
from ottla.common.errors import KafkaError


@pytest.mark.parametrize(
    ("line", "separator", "null", "expected"),
    [
        (b"a:b", None, None, (None, b"a:b")),
        (b"", None, None, (None, b"")),
        (b"a:b:c", b":", None, (b"a", b"b:c")),
        (b":b", b":", None, (b"", b"b")),
        (b"a:", b":", None, (b"a", b"")),
        (b"a:NULL", b":", b"NULL", (b"a", None)),
        (b"NULL:v", b":", b"NULL", (None, b"v")),
        (b"NULL", None, b"NULL", (None, None)),
        (b"a--b", b"--", None, (b"a", b"b")),
        (b"\xff\tv\r", b"\t", None, (b"\xff", b"v\r")),
        (b"v", None, b"", (None, b"v")),
    ],
)
def test_split(line, separator, null, expected):
    assert _split(line, separator, null, 1) == expected


def test_a_line_without_a_key_is_named():
    with pytest.raises(KafkaError, match="line 7 has no key: ':' not found"):
        _split(b"nothing", b":", None, 7)
