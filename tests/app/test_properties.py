"""`server.properties` as Java reads it."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.config.properties import format_properties, load_properties, parse_properties
from ottla.common.errors import OperatorError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb = 2\nc:3\nd 4\ne\t: 5", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
        ("# comment\n! comment\n  # indented\n\n  a=1  ", {"a": "1  "}),
        ("a=1,\\\n   2,\\\n   3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        ("a=x\\\\\\\n  y", {"a": "x\\y"}),
        ("a\\=b=c\nd\\ e=f\ng\\:h i", {"a=b": "c", "d e": "f", "g:h": "i"}),
        ("listeners=PLAINTEXT://:9092,OTHER://[::1]:9093", {"listeners": "PLAINTEXT://:9092,OTHER://[::1]:9093"}),
        ("a==b\nc=:d", {"a": "=b", "c": ":d"}),
        ("a=\\t\\n\\r\\f\\u00e9\\z", {"a": "\t\n\r\f\u00e9z"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=\\\n# no comment", {"a": "# no comment"}),
        ("a=1\\", {"a": "1"}),
        ("", {}),
    ],
)
def test_forms(text, expected):
    assert parse_properties(text, "x") == expected


@given(st.dictionaries(st.text(min_size=1, max_size=10), st.text(max_size=20), max_size=5))
def test_everything_written_in_escapes_comes_back(settings):
    def escape(text: str) -> str:
        units = text.encode("utf-16-be", "surrogatepass")
        return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))

    settings = {key: value for key, value in settings.items() if (key + value).isprintable()}
    text = "\n".join(f"{escape(key)}={escape(value)}" for key, value in settings.items())
    assert parse_properties(text, "x") == settings


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        max_size=5,
    )
)
def test_formatted_properties_parse_to_the_same(settings):
    assert parse_properties(format_properties(settings), "file") == settings


@given(st.text(max_size=200))
def test_any_text_is_parsed_or_refused(text):
    with contextlib.suppress(OperatorError):
        parse_properties(text, "x")


def test_malformed_escape_names_file_and_line():
    with pytest.raises(OperatorError, match=r"line 3 of the config file s\.properties .*\\u12"):
        parse_properties("# x\na=1\nb=\\u12", "s.properties")


def test_files(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("\ufefflog.dirs=/tmp/caf\u00e9\n", encoding="utf-8")
    assert load_properties(str(path)) == {"log.dirs": "/tmp/caf\u00e9"}
    path.write_bytes(b"a=1\nb=\xe9\n")
    with pytest.raises(OperatorError, match=r"line 2 .* not UTF-8"):
        load_properties(str(path))
    path.write_bytes(b"#" * (2 << 20))
    with pytest.raises(OperatorError, match="larger than"):
        load_properties(str(path))
    with pytest.raises(OperatorError, match=r"can't be read: No such file .*--config"):
        load_properties(str(tmp_path / "missing"))
    with pytest.raises(OperatorError, match=r"can't be read: Is a directory"):
        load_properties(str(tmp_path))
