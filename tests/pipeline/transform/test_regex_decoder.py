"""Regular expressions and access logs: columns equal the results of Python's `re` and `datetime`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from ottla.common.errors import OperatorError
from ottla.pipeline.model.access_log import LINE_PATTERN
from ottla.pipeline.model.events import page_views

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")

from ottla.pipeline.transform.access_log_decoder import SCHEMA, AccessLogDecoder  # noqa: E402
from ottla.pipeline.transform.decoder import Decoder  # noqa: E402
from ottla.pipeline.transform.regex_decoder import RegexDecoder, group_names  # noqa: E402

SYSLOG = r"<(?P<priority>\d+)>(?P<host>\S*) (?P<text>(?s:.*))"


def decode(decoder: Decoder, *values: bytes | None) -> tuple[list[dict[str, Any]], dict[int, str]]:
    result = decoder.decode(pa.array(values, pa.binary()))
    assert result.columns.schema == decoder.schema
    assert result.columns.num_rows == len(values)
    return result.columns.to_pylist(), dict(zip(result.bad, result.reasons, strict=True))


def test_groups_are_columns() -> None:
    decoder = RegexDecoder(SYSLOG, pa.schema([("priority", pa.int32()), ("text", pa.string())]))
    rows, bad = decode(decoder, b"<34>box su: failed\n", None, b"x<34>box y", b"<99999999999>box y", b"<1> \xff", b"")
    assert rows[0] == {"priority": 34, "text": "su: failed\n"}
    assert list(bad) == [2, 3, 4, 5]
    assert bad[2] == bad[5] == "the value does not match the pattern"
    assert "int32" in bad[3]


def test_an_alternative_is_anchored_as_a_whole() -> None:
    decoder = RegexDecoder("a|(?P<x>b)", pa.schema([("x", pa.string())]))
    rows, bad = decode(decoder, b"a", b"b", b"ab", b"b\n")
    assert ([row["x"] for row in rows[:2]], list(bad)) == (["", "b"], [2, 3])


def test_empty_group_is_null_in_non_text_column() -> None:
    decoder = RegexDecoder(r"(?P<n>\d*),(?P<s>.*)", pa.schema([("n", pa.int64()), ("s", pa.string())]))
    assert decode(decoder, b",")[0] == [{"n": None, "s": ""}]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "not a valid regular expression of RE2"),
        ("x", "0 groups"),
        ("(?P<x>a)(b)", "2 groups, 1 of them named"),
        ("(?=x)", "RE2"),
    ],
)
def test_patterns_without_columns_are_refused(pattern: str, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        group_names(pattern)


def test_schemas_that_do_not_fit_the_pattern() -> None:
    with pytest.raises(OperatorError, match="no group of that name"):
        RegexDecoder(SYSLOG, pa.schema([("other", pa.string())]))
    with pytest.raises(OperatorError, match="not read from text"):
        RegexDecoder(SYSLOG, pa.schema([("text", pa.list_(pa.string()))]))
    assert group_names(SYSLOG) == ["priority", "host", "text"]


def test_access_log_columns_match_python_parser() -> None:
    lines = list(page_views(2_000))
    rows, bad = decode(AccessLogDecoder(), *lines)
    assert not bad
    for line, row in zip(lines, rows, strict=True):
        found = re.fullmatch(LINE_PATTERN, line.decode())
        assert found is not None
        day = f"{found['day']}/{found['month']}/{found['year']}:{found['clock']} {found['zone']}"
        expected: dict[str, Any] = {
            name: None if found[name] == "-" else found[name] for name in SCHEMA.names if name != "time"
        }
        expected |= {
            "time": datetime.strptime(day, "%d/%b/%Y:%H:%M:%S %z"),
            "status": int(expected["status"]),
            "bytes": int(expected["bytes"]),
        }
        assert row == expected


@pytest.mark.parametrize("between", [" ", "  ", "\t"])
@pytest.mark.parametrize("end", ["", "\n", "\r\n", " \n", " 12 more\n"])
def test_access_log_keeps_referer_and_agent(between: str, end: str) -> None:
    line = '192.0.2.7 - - [02/Mar/2026:10:05:03 +0000] "GET / HTTP/1.1" 200 1'
    value = f'{line}{between}"http://r/"{between}"agent 1"{end}'.encode()
    [row], bad = decode(AccessLogDecoder(), value)
    assert not bad
    assert (row["referer"], row["agent"]) == ("http://r/", "agent 1")


@pytest.mark.parametrize("rest", [' "http://r/', ' "http://r/" agent', ' "http://r/""agent"', ' "one text"'])
def test_access_log_with_a_broken_referer_is_a_dead_letter(rest: str) -> None:
    line = '192.0.2.7 - - [02/Mar/2026:10:05:03 +0000] "GET / HTTP/1.1" 200 1'
    _, bad = decode(AccessLogDecoder(), (line + rest).encode())
    assert list(bad) == [0]


def test_odd_lines_of_access_logs() -> None:
    rows, bad = decode(
        AccessLogDecoder(),
        b'::1 - bob [29/Feb/2024:23:59:59 -0130] "GET /a b\\"c HTTP/2.0" 200 - "-" "x \\" y" extra',
        b'192.0.2.7 id - [02/Mar/2026:10:05:03 +0000] "\\x16\\x03" 400 0\r',
        b'192.0.2.7 - - [30/Feb/2026:10:05:03 +0000] "GET / HTTP/1.1" 200 1',
        b'192.0.2.7 - - [02/Mai/2026:10:05:03 +0000] "GET / HTTP/1.1" 200 1',
        b'192.0.2.7 - - [02/Mar/2026:10:05:03 +0000] "GET / HTTP/1.1" 200 99999999999999999999',
        b"no line at all",
        b"",
    )
    assert rows[0] == {
        "client": "::1", "identity": None, "user": "bob",
        "time": datetime(2024, 2, 29, 23, 59, 59, tzinfo=timezone(-timedelta(minutes=90))),
        "method": "GET", "path": '/a b\\"c', "protocol": "HTTP/2.0", "status": 200, "bytes": None,
        "referer": None, "agent": 'x \\" y',
    }  # fmt: skip
    assert rows[1] == {
        **dict.fromkeys(SCHEMA.names),
        "client": "192.0.2.7", "identity": "id", "time": datetime(2026, 3, 2, 10, 5, 3, tzinfo=UTC),
        "status": 400, "bytes": 0,
    }  # fmt: skip
    assert list(bad) == [2, 3, 4, 5, 6]
    assert bad[5] == "the value is not a line of an access log in the common or combined format"
    assert "2026-02-30" in bad[2]
    assert "month" in bad[3]
