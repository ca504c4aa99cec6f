"""The demo, run as a user runs it; its counts are compared with those of shell tools on the same file."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("pyspark", reason="needs the extra `pipeline`")

from ottla.common.errors import OperatorError  # noqa: E402
from ottla.pipeline.model.access_log import EXAMPLE  # noqa: E402
from ottla.pipeline.model.events import page_views  # noqa: E402
from ottla.pipeline.operations.demo import _print_pages, run_demo  # noqa: E402

from .limits import RUN_S  # noqa: E402

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


@pytest.mark.parametrize("content", [b"", b"id,name\n1,a\n"])
def test_non_access_log_is_refused_before_start(tmp_path: Path, content: bytes) -> None:
    log, home = tmp_path / "no.log", tmp_path / "demo"
    log.write_bytes(content)
    command = [sys.executable, "-m", "ottla", "pipeline", "demo", "--input", str(log), "--dir", str(home)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    (sentence,) = run.stderr.splitlines()
    assert sentence.startswith(f"ottla: {log} is empty; " if not content else f"ottla: {log} is not an access log ")
    assert sentence.endswith((f"like {EXAMPLE}", f"such as {EXAMPLE}"))
    assert not home.exists()


def test_page_table_escapes_control_characters() -> None:
    shown = io.StringIO()
    page = "/\x1b]0;owned\x07\x1b[2J"
    _print_pages(Console(file=shown, force_terminal=True, width=120), [{"page": page, "views": 1}])
    assert not [control for control in ("\x1b]", "\x07", "\x1b[2J") if control in shown.getvalue()]
    assert r"/\x1b]0;owned\x07\x1b[2J" in shown.getvalue()


def test_make_demo_prints_each_install_step() -> None:
    plan = subprocess.run(
        ["make", "-n", "demo", "VENV=no-such-environment"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    ).stdout
    assert "--quiet" not in plan
    steps = re.findall(r"^(echo \"(?:Creating|Installing) .*|.* -m (?:venv|pip) .*)$", plan, re.MULTILINE)
    assert len(steps) == 6
    assert all(said.startswith("echo ") and " -m " in done for said, done in zip(steps[::2], steps[1::2], strict=True))


@pytest.mark.pipeline
def test_counts_equal_those_of_the_shell(tmp_path: Path) -> None:
    log, home = tmp_path / "access [1].log", tmp_path / "the {demo} of today"
    cut_off = b'192.0.2.7 - - [02/Mar/2026:10:05:03 +0000] "GET /cut-off'  # as a crash of the server leaves it
    log.write_bytes(b"".join(line + b"\n" for line in page_views(LINES - 1, seed=7)) + cut_off)
    command = [sys.executable, "-m", "ottla", "pipeline", "demo", "--input", str(log), "--dir", str(home)]
    run = subprocess.run([*command, "--master", "local[2]"], capture_output=True, text=True, timeout=RUN_S, check=False)
    assert run.returncode == 0, run.stderr + run.stdout
    assert run.stderr == ""
    assert f"\n1 of {LINES:,} lines are in neither format of an access log, the first is line {LINES:,}" in run.stdout
    pages = shell(f"cut -d' ' -f7 '{log}' | sort | uniq -c | LC_ALL=C sort -k1,1rn -k2 | head -10")
    printed = re.findall(r"^ +(\d+) +(/\S*) *$", run.stdout, re.MULTILINE)
    assert printed == [tuple(line.split()) for line in pages.splitlines()]
    hours = shell(f"cut -d' ' -f4 '{log}' | cut -c2-15 | sort | uniq -c")
    printed = re.findall(r"^ +(\d\d) +(\d+) *$", run.stdout, re.MULTILINE)
    assert printed == [(line.split()[1][-2:], line.split()[0]) for line in hours.splitlines()]
    assert f"the table has {LINES:,} rows, {LINES:,} were produced" in run.stdout
    table = deltalake.DeltaTable(str(home / "page_views")).to_pyarrow_table()
    found = sorted(table.column("value").to_pylist())
    assert found == sorted(log.read_bytes().splitlines())
    keys, loaded = (table.column(name).to_pylist() for name in ("key", "value"))
    assert keys == [value.split(b" ")[0] for value in loaded]
    assert table.num_rows == LINES
    assert "Everything is stopped" in run.stdout
    hints = run.stdout.split("Everything is stopped")[1].splitlines()[1:]
    assert [" pipeline sql " in hint or " start " in hint for hint in hints] == [True, True]
    for hint in hints:
        assert "Usage: ottla" in shell(f"{hint} --help")


def test_directory_delta_cannot_open_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="choose a directory without it"):
        run_demo(None, 1, tmp_path / "per%20cent", "local[1]")
    assert not list((tmp_path / "per%20cent").iterdir())
