"""Texts of records, numbers and forms."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import NamedTuple

import htpy as h
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.console import formats, html
from ottla.console.context import PageError, Parameters
from ottla.console.producing import choose_partition, encode_field, parse_headers
from ottla.console.record_parts import MAX_CELL_CHARS, MAX_RAW_BYTES, cell, raw_bytes, text_of, whole
from ottla.search.decoder_factory import open_decoder
from ottla.search.decoders import Decoded

ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'><svg/onload=alert(1)>",
    "</pre></table><iframe src=javascript:alert(1)>",
    "<!--",
    "&lt;script&gt;",
    "{{7*7}}",
    "\u202ertl \x1b[31m",
)


class Parts(NamedTuple):
    """A record without key and headers."""

    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def decode(name: str, data: bytes | None) -> Decoded:
    return Decoded(None, "null", None) if data is None else open_decoder(name).decode(data, Parts())


class Elements(HTMLParser):
    """The names of elements and the text of a piece of HTML."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.names: list[str] = []
        self.content = ""

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)

    def handle_comment(self, data):
        self.names.append("comment")

    def handle_data(self, data):
        self.content += str.__str__(data)  # not the Markup of htpy, which escapes


def parsed(node) -> Elements:
    found = Elements()
    found.feed(str(h.div[node]))
    found.close()
    return found


@pytest.mark.parametrize("attack", ATTACKS)
def test_records_are_text_whatever_they_contain(attack):
    data = attack.encode()
    assert set(parsed(raw_bytes(data)).names) == {"div", "details", "summary", "pre"}
    failed = decode("json", data)
    for node in (cell(data, failed, "/x"), cell(data, decode("auto", data)), whole(data, failed), html.name(attack)):
        found = parsed(node)
        assert set(found.names) <= {"div", "pre", "small", "p", "bdi"}
        assert formats.visible(attack) in found.content


@given(st.binary(max_size=200))
def test_any_bytes_are_shown_as_text(data):
    for name in ("auto", "json", "text", "integer", "uuid", "hex"):
        found = parsed([cell(data, decode(name, data)), whole(data, decode(name, data))])
        assert set(found.names) <= {"div", "pre", "small", "p"}


def test_null_differs_from_empty_and_from_the_word():
    assert 'class="null"' in str(h.div[cell(None, decode("auto", None))])
    assert 'class="null"' not in str(h.div[cell(b"null", decode("auto", b"null"))])
    assert text_of(b"", decode("auto", b"")) == ""


def test_long_values_are_cut_with_their_size():
    found = parsed(cell(b"x" * 5_000, decode("auto", b"x" * 5_000)))
    assert found.content == "x" * MAX_CELL_CHARS + "…" + "5.0 kB in all"
    assert (
        "30,000 characters more of 50.0 kB: download it."
        in parsed(whole(b"x" * 50_000, decode("auto", b"x" * 50_000))).content
    )


def test_bytes_are_shown_in_rows_and_cut():
    content = parsed(raw_bytes(b"<b>\x00" + b"a" * 14)).content
    rows = [
        "0000  3c 62 3e 00 61 61 61 61 61 61 61 61 61 61 61 61  <b>.aaaaaaaaaaaa",
        f"0010  {'61 61':<47}  aa",
    ]
    assert content == "Bytes" + "\n".join(rows)
    long = parsed(raw_bytes(b"a" * 2_000_000)).content
    assert "1,998,976 bytes more: download it." in long
    assert len(long) < 6 * MAX_RAW_BYTES
    assert raw_bytes(None) is raw_bytes(b"") is None


def test_beginning_of_large_json_is_indented():
    data = b'{"id": 1, "text": "' + b"x" * 50_000 + b'"}'
    content = parsed(whole(data, decode("auto", data))).content
    assert content.startswith('{\n  "id": 1,\n  "text": \n  "xxx')
    assert "30,021 characters more of 50.0 kB: download it." in content


def test_json_behind_a_schema_id_is_shown_without_it():
    data = b'\0\0\0\0\7{"a": 1}'
    assert text_of(data, decode("auto", data)) == '{"a": 1}'


def test_json_is_indented_and_keeps_its_digits():
    data = b'{"a":123456789012345678901234567890.10,"a":1e400,"s":"x:{,}\\"\\u00e9","e":[],"o":"[ ]","n":[1,null]}'
    content = parsed(whole(data, decode("auto", data))).content
    assert content.split("\n") == [
        "{",
        '  "a": 123456789012345678901234567890.10,',
        '  "a": 1e400,',
        '  "s": "x:{,}\\"\\u00e9",',
        '  "e": [],',
        '  "o": "[ ]",',
        '  "n": [',
        "    1,",
        "    null",
        "  ]",
        "}",
    ]


def test_failure_of_a_decoder_shows_reason_and_raw_bytes():
    content = parsed(cell(b"{no", decode("json", b"{no"))).content
    assert content.startswith("{no")
    assert "not json" in content


@pytest.mark.parametrize(
    ("text", "encoding", "data"),
    [("a\r\nb", "text", b"a\nb"), ("AAH/", "base64", b"\x00\x01\xff"), ("00 ff", "hex", b"\x00\xff")],
)
def test_fields_of_a_produced_record_become_bytes(text, encoding, data):
    assert encode_field(text, encoding) == data


@pytest.mark.parametrize(("text", "encoding"), [("%", "base64"), ("zz", "hex"), ("\ud800", "text")])
def test_malformed_fields_are_refused(text, encoding):
    with pytest.raises(PageError):
        encode_field(text, encoding)


def test_headers_keep_order_repetitions_and_colons():
    assert parse_headers("a: 1\r\nb:2\na: x: y\n") == [("a", b"1"), ("b", b"2"), ("a", b"x: y")]
    with pytest.raises(PageError):
        parse_headers("no colon")


def test_keys_choose_the_partition_of_other_producers():
    assert [choose_partition(key, 10, 3) for key in (b"a", b"user-1", None)] == [4, 8, 3]


@pytest.mark.parametrize("text", ["-1", "x", "1" * 20, "²", "1.0", ""])
def test_numbers_of_fields_are_checked(text):
    with pytest.raises(PageError):
        Parameters({"n": [text]}).number("n")


def test_sizes_times_and_durations_are_readable():
    assert [formats.size(each) for each in (0, 999, 1_500, 2_000_000, None)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "2.0 MB",
        "-",
    ]
    assert formats.moment(1_795_860_000_123) == "2026-11-28 10:00:00.123"
    assert formats.moment(10**17) == str(10**17)
    assert [formats.duration(each) for each in (0, 61, 90_061)] == ["0 s", "1 min 1 s", "1 d 1 h"]
