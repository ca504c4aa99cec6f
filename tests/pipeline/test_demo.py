"""The demo, run as a person runs it; its counts are compared with what the shell counts in the same file."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.pipeline.events import page_views  # noqa: E402

LINES = 5_000


def shell(command: str) -> str:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout


def test_the_generated_stream_is_the_same_every_time() -> None:
    lines = list(page_views(LINES))
    assert lines == list(page_views(LINES))
    assert len(lines) == LINES
    assert lines != list(page_views(LINES, seed=1))
    combined = re.compile(
        rb'\S+ - - \[\d\d/\w{3}/\d{4}(:\d\d){3} \+0000\] "GET \S+ HTTP/1.1" \d{3} \d+ "[^"]+" "[^"]+"'
    )
    assert all(combined.fullmatch(line) for line in lines)
    counts = sorted(sum(1 for line in lines if line.split(b" ")[6] == page) for page in {b"/", b"/style.css"})
    assert counts[1] > 2 * counts[0] > 0


@pytest.mark.pipeline
def test_counts_equal_those_of_the_shell(tmp_path: Path) -> None:
    log, home = tmp_path / "access [1].log", tmp_path / "demo"
    log.write_bytes(b"".join(line + b"\n" for line in page_views(LINES, seed=7)))
    command = [sys.executable, "-m", "ottla", "pipeline", "demo", "--input", str(log), "--dir", str(home)]
    run = subprocess.run([*command, "--master", "local[2]"], capture_output=True, text=True, timeout=170, check=False)
    assert run.returncode == 0, run.stderr + run.stdout
    assert run.stderr == ""
    pages = shell(f"cut -d' ' -f7 '{log}' | sort | uniq -c | LC_ALL=C sort -k1,1rn -k2 | head -10")
    printed = re.findall(r"^ +(\d+) +(/\S*) *$", run.stdout, re.MULTILINE)
    assert printed == [tuple(line.split()) for line in pages.splitlines()]
    hours = shell(f"cut -d' ' -f4 '{log}' | cut -c2-15 | sort | uniq -c")
    printed = re.findall(r"^ +(\d\d) +(\d+) *$", run.stdout, re.MULTILINE)
    assert printed == [(line.split()[1][-2:], line.split()[0]) for line in hours.splitlines()]
    assert f"the table holds {LINES:,} rows, {LINES:,} were produced" in run.stdout
    table = deltalake.DeltaTable(str(home / "page_views")).to_pyarrow_table()
    found = sorted(table.column("value").to_pylist())
    assert found == sorted(log.read_bytes().splitlines())
    keys, loaded = (table.column(name).to_pylist() for name in ("key", "value"))
    assert keys == [value.split(b" ")[0] for value in loaded]
    assert table.num_rows == LINES
    assert "Everything is stopped" in run.stdout
