"""Files of rows for a topic: a malformed row is reported with file, line and remedy; no broker is needed."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pq = pytest.importorskip("pyarrow.parquet")

from ottla.pipeline.sources import text_rows  # noqa: E402
from ottla.pipeline.sources.rows import FileRows, Shape, format_of  # noqa: E402
from ottla.pipeline.sources.text_rows import UnreadableRows  # noqa: E402
from ottla.pipeline.stores.local_store import LocalStore  # noqa: E402
from ottla.pipeline.transform.csv_decoder import CsvDecoder  # noqa: E402


def read(path: Path, key_column: str | None = None) -> list[dict[str, Any]]:
    """The rows as they are sent to a topic."""
    source = FileRows(LocalStore(path.parent), [path.name], str(format_of(path)), Shape(key_column), ("t", 0))
    return [row for batch, _ in source.batches({}) for row in batch.to_pylist()]


def parquet(tmp_path: Path) -> bytes:
    path = tmp_path / "whole"
    pq.write_table(pa.table({"value": [b"v%d" % number for number in range(1_000)]}), path)
    return path.read_bytes()


LATIN_1 = "is not UTF-8: convert the file first, with `iconv -f latin1 -t utf-8` if it is Latin-1"
NO_JSON = "is not valid JSON: correct or remove it; convert documents of several lines with `jq -c .`"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", b'a,b\n1,2\n\n3,"4\n5,6\n', "line 4 of {} starts a row with an unclosed quote: close it"),
        ("a.csv", b'a,b\n1,"2"x\n', "line 2 of {} is not valid CSV: ',' expected after '\"'; correct it"),
        ("a.csv", b'a,b\n1,"\n\n"\n3\n', "line 5 of {} starts a row of 1 cell, but the first line names 2: correct it"),
        ("a.csv", b"a,b\n1,2,3\n", "line 2 of {} starts a row of 3 cells, but the first line names 2: correct it"),
        ("a.csv", "a\n1\ncafé\n".encode("latin-1"), f"line 3 of {{}} {LATIN_1}"),
        ("a.csv", "é\n".encode("latin-1"), f"line 1 of {{}} {LATIN_1}"),
        ("a.csv", b"", "{} is empty, but its first line must name the columns"),
        ("a.jsonl", b'{"a": 1}\n{"a": "tw', f"line 2 of {{}} {NO_JSON}"),
        ("a.json", b'{\n  "a": 1\n}\n', f"line 1 of {{}} {NO_JSON}"),
        ("a.jsonl", '{"a": "é"}\n'.encode("latin-1"), f"line 1 of {{}} {LATIN_1}"),
        ("a.jsonl.gz", gzip.compress(b"1\n" * 9, mtime=0)[:-9], "{} can't be read: Truncated compressed stream"),
    ],
)
def test_malformed_row_is_reported_with_line(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UnreadableRows) as caught:
        read(path)
    assert str(caught.value) == sentence.format(path)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (r'{"a": "\ud800"}', "has an unpaired surrogate in its field 'a': correct it"),
        ('{"b": 1}', "has no field 'a' for the key"),
        ("[1]", "has no field 'a' for the key"),
    ],
)
def test_invalid_keys_are_reported(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"a": 1}}\n{line}\n')
    with pytest.raises(UnreadableRows) as caught:
        read(path, "a")
    assert str(caught.value) == f"line 2 of {path} {what}"


@pytest.mark.parametrize("harm", ["cut", "length", "footer"])
def test_a_broken_parquet_file_is_named(tmp_path: Path, harm: str) -> None:
    whole = parquet(tmp_path)
    path = tmp_path / "a.parquet"
    footer = whole[:-60] + bytes(40) + whole[-20:]
    path.write_bytes({"cut": whole[:-20], "length": whole[:-8] + b"\xff\xff\xff\x7fPAR1", "footer": footer}[harm])
    with pytest.raises(UnreadableRows) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path} can't be read: ")
    assert "\n" not in str(caught.value)


def test_cells_over_several_lines_and_lines_of_any_end(tmp_path: Path) -> None:
    """Also in a large file, in which block boundaries of a reader would cut such cells."""
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeffa,b\r\n1,"x\n""y"""\r2,\n\n'.encode() + b'3,"' + b"z\n" * 1_000_000 + b'"\n')
    assert [json.loads(row["value"]) for row in read(path)] == [
        {"a": "1", "b": 'x\n"y"'},
        {"a": "2", "b": None},
        {"a": "3", "b": "z\n" * 1_000_000},
    ]
    assert csv.field_size_limit() < text_rows.MAX_ROW_CHARS


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
def test_an_empty_cell_is_null_as_in_a_load(tmp_path: Path, end: str) -> None:
    """Both read the same cells; quotes distinguish empty text from null."""
    rows = ['1,"",', ',2,""', '"","a"",\n",', '"x,""",,""', "1,2,3", '"","",""', ",,", '5"5,,']
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["a,b,c", *rows]) + end, newline="")
    loaded = CsvDecoder(pa.schema([(name, pa.string()) for name in "abc"])).decode(pa.array(rows).cast(pa.binary()))
    assert not loaded.bad
    assert [json.loads(row["value"]) for row in read(path)] == loaded.columns.to_pylist()
    source = FileRows(LocalStore(tmp_path), ["a.csv"], "csv", Shape("a", "b"), ("t", 0))
    [(batch, _)] = source.batches({})
    assert batch.column("key").to_pylist()[:3] == ["1", None, ""]
    assert batch.column("value").to_pylist()[:4] == ["", "2", 'a",\n', None]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_row_is_bounded_and_a_batch_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(text_rows, "MAX_ROW_CHARS", 100)
    monkeypatch.setattr(text_rows, "BATCH_CHARS", 150)
    path = tmp_path / name
    header = "a\n" if name == "a.csv" else ""
    path.write_text(header + f'"{"x" * 80}"\n' * 5)
    source = FileRows(LocalStore(tmp_path), [name], str(format_of(path)), Shape(), ("t", 0))
    assert [batch.num_rows for batch, _ in source.batches({})] == [2, 2, 1]
    path.write_text(header + f'"{"x" * 80}"\n"{"x" * 120}"\n')
    with pytest.raises(UnreadableRows, match=rf"line {len(header) // 2 + 2} of .* is part of a row longer than 100"):
        read(path)
