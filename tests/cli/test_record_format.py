"""Output of records: templates, JSON, binary data."""

from __future__ import annotations

import base64
import json

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.record_format import format_json, make_batch_format, make_formatter, unescape
from ottla.cli.times import Seconds, parse_duration, parse_timestamp
from ottla.client.librdkafka.consumer import ConsumedRecord
from ottla.client.librdkafka.group_consumer import record_of
from ottla.client.librdkafka.message_text import make_renderer
from ottla.common.durations import duration_text
from ottla.common.errors import OperatorError

DATA = st.none() | st.binary()


def record(**fields) -> ConsumedRecord:
    values = {
        "topic": "t",
        "partition": 3,
        "offset": 42,
        "timestamp_ms": 1_700_000_000_123,
        "timestamp_type": "CreateTime",
        "key": b"k",
        "value": b"v",
        "headers": (("a", b"1"), ("a", None), ("b", b"")),
        **fields,
    }
    return ConsumedRecord(**values)


def test_text_is_the_value_as_it_is():
    assert make_formatter("text", "null")(record(value=b"\xff\x00")) == b"\xff\x00\n"
    assert make_formatter("text", "NULL")(record(value=None)) == b"NULL\n"


def test_every_field_of_a_template():
    template = r"{topic}-{partition}:{offset}\t{timestamp} {time} {key}={value} [{headers}] {key_size}/{value_size} {{"
    assert make_formatter(template, "null")(record()) == (
        b"t-3:42\t1700000000123 2023-11-14T22:13:20.123Z k=v [a=1,a,b=] 1/1 {\n"
    )


def test_nulls_of_a_template():
    assert make_formatter("{key},{value},{timestamp},{time}", "-")(record(key=None, value=None, timestamp_ms=None)) == (
        b"-,-,-,-\n"
    )


def test_a_time_beyond_the_calendar_is_a_number():
    assert make_formatter("{time}", "")(record(timestamp_ms=2**62)) == b"%d\n" % 2**62


@pytest.mark.parametrize("template", ["{nonsense}", "{", "{value", "}", "{}", "{0}"])
def test_a_wrong_template_is_an_error_of_the_user(template):
    with pytest.raises(OperatorError):
        make_formatter(template, "")


@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.none() | st.binary())),
)
def test_json_loses_nothing(key, value, headers):
    line = format_json(record(key=key, value=value, headers=tuple(headers)))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    document = json.loads(line)

    def data(entry, name):
        if f"{name}_base64" in entry:
            return base64.b64decode(entry[f"{name}_base64"])
        return None if entry[name] is None else entry[name].encode()

    assert (data(document, "key"), data(document, "value")) == (key, value)
    assert [(entry["name"], data(entry, "value")) for entry in document["headers"]] == headers
    assert (document["topic"], document["partition"], document["offset"]) == ("t", 3, 42)
    assert (document["timestamp"], document["timestamp_type"]) == (1_700_000_000_123, "CreateTime")


def test_escapes():
    assert unescape(r"\t\n\x01\\é€") == "\t\n\x01\\é€"
    assert unescape("plain é") == "plain é"
    with pytest.raises(OperatorError, match="invalid backslash escape"):
        unescape("\\x1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123Z", 1_700_000_000_123),
        ("2023-11-14T22:13:20.123", 1_700_000_000_123),
        ("2023-11-15T00:13:20.123+02:00", 1_700_000_000_123),
        ("2023-11-14", 1_699_920_000_000),
        ("1970-01-01", 0),
        ("2026-03-02T10:05:03.001", 1_772_445_903_001),
        ("9999-12-31T23:59:59.999-14:00", 253_402_351_199_999),
        ("0", 0),
        ("1700000000s", 1_700_000_000_000),
        ("2024ms", 2024),
        ("9" * 18 + "ms", 10**18 - 1),
    ],
)
def test_timestamps(text, expected):
    assert parse_timestamp(text) == expected


@pytest.mark.parametrize("text", ["", "-1", "-2", "soon", "9" * 19 + "ms", "2023-02-30", "12:00", "1e3", "1.5s"])
def test_text_that_is_not_a_time_is_refused(text):
    with pytest.raises(click.BadParameter, match=r"is not a time: give an ISO 8601 time \(2026-11-28, "):
        parse_timestamp(text)


@pytest.mark.parametrize(
    "text",
    [
        "20261128",
        "2024",
        "1795860000",
        "00",
        "202611281000",
        "20261128100000",
        "1795860000000000",
        "9" * 5_000,
        "\u0663",
    ],
)
def test_ambiguous_time_is_refused_with_the_accepted_forms(text):
    """As milliseconds they would be in 1970, and a reset would go to the earliest record."""
    with pytest.raises(
        click.BadParameter, match=r"is ambiguous: .*2026-11-28T10:00:00Z.*13 digits.*1795860000s"
    ) as refused:
        parse_timestamp(text, "--to-datetime")
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90_000),
        ("1d12h", 129_600_000),
        ("2w", 1_209_600_000),
        ("PT30M", 1_800_000),
        ("P1DT2H", 93_600_000),
        ("pt0.0015s", 1),
        ("PT1,5S", 1_500),
        ("P30D", 2_592_000_000),
        ("0s", 0),
    ],
)
def test_durations(text, expected):
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("P1M", "has years or months, which have no fixed length"),
        ("P1Y2M3DT4H", "has years or months, which have no fixed length"),
        ("1M", "has years or months, which have no fixed length"),
        *(
            (text, "is not a duration")
            for text in ("", "P", "PT", "P1DT", "1dT", "1H", "PT1D", "P1H", "-PT1H", "5", "1s1h")
        ),
    ],
)
def test_duration_that_java_refuses_is_refused(text, reason):
    with pytest.raises(click.BadParameter, match=f"{reason}: give one such as 90s, 1d12h or PT30M"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59.999", "0001-01-01", "1970-01-01T00:00+00:01"])
def test_times_before_1970_are_rejected(text):
    """-1 is the end of a log, -2 its start."""
    with pytest.raises(click.BadParameter, match="is before 1970"):
        parse_timestamp(text, "--from")


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(-5, "0s"), (999, "0s"), (1000, "1s"), (60_000, "1m"), (903_000, "15m3s"), (93_784_000, "1d2h")],
)
def test_duration_text_has_two_largest_units_and_parses(milliseconds, text):
    assert duration_text(milliseconds) == text
    assert parse_duration(text) <= max(0, milliseconds)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "0", "soon"])
def test_nan_and_infinite_seconds_are_rejected(text):
    with pytest.raises(click.BadParameter):
        Seconds().convert(text, None, None)
    assert Seconds().convert("1.5", None, None) == 1.5


class Message:
    """As of confluent-kafka."""

    def __init__(self, key: bytes | None, value: bytes | None, offset: int, kind: int) -> None:
        self._fields = key, value, offset, kind

    def topic(self) -> str:
        return "topic"

    def partition(self) -> int:
        return 3

    def key(self) -> bytes | None:
        return self._fields[0]

    def value(self) -> bytes | None:
        return self._fields[1]

    def offset(self) -> int:
        return self._fields[2]

    def timestamp(self) -> tuple[int, int]:
        return self._fields[3], self._fields[2] * 7

    def headers(self) -> None:
        return None


@given(
    st.lists(st.builds(Message, DATA, DATA, st.integers(0, 1 << 62), st.sampled_from([0, 1, 2]))),
    st.sampled_from(["text", "{key}", "a{topic}{partition}b{key_size}{value_size}", "{{{value}\t{offset}:{timestamp}"]),
)
def test_rendered_messages_equal_formatted_records(messages, template):
    formatter, batch_format = make_formatter(template, "null"), make_batch_format(template, "null")
    assert batch_format is not None
    assert make_renderer(*batch_format)(messages) == b"".join(formatter(record_of(each)) for each in messages)
