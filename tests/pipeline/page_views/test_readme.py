"""The commands of examples/streams/README.md, over a smaller day and with one of its streams."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from ..test_readme import BLOCK, ROOT, Reader, is_elsewhere
from ..test_readme import pytestmark as needs_namespaces

EXAMPLE = ROOT / "examples" / "streams"
README = (EXAMPLE / "README.md").read_text()
OWN_LOGS = "## Your own logs"
VIEWS = "60000"
"""Replaces 200000."""
USE = "security"
OTHERS = ("--table top-pages", "--table last-views", "--topics activity", "--topics alerts", "plot.py")
"""Commands on results of the other streams. Starting Spark is most of the work here: `test_page_views.py` runs all the
streams, a snapshot and loads in one session, `test_plot.py` draws."""
LINE = '192.0.2.{host} - - [02/Mar/2026:00:00:{host:02} +0000] "GET / HTTP/1.1" 200 512 "-" "curl/8"\n'

pytestmark = [*needs_namespaces, pytest.mark.pipeline, pytest.mark.timeout(1800)]


@pytest.fixture
def reader(tmp_path: Path):
    folder = tmp_path / "streams"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("pictures"))
    reader = Reader(folder)
    reader.start("ottla start")
    yield reader
    reader.close()


def typed(reader: Reader, text: str) -> None:
    for match in BLOCK.finditer(text):
        reader.read(match[1], match[2])
    reader.stop()


def test_a_day_through_a_stream(reader: Reader) -> None:
    text, smaller = re.subn(r"--views \d+", f"--views {VIEWS}", README.partition(OWN_LOGS)[0])
    text, fewer = re.subn(r"for use in [^;]+;", f"for use in {USE};", text)
    assert (smaller, fewer) == (1, 1)
    lines = text.splitlines(keepends=True)
    skipped = [line for line in lines if any(other in line for other in OTHERS)]
    assert len(skipped) == len(OTHERS)
    typed(reader, "".join(line for line in lines if line not in skipped))
    assert "ottla consume alerts --from-beginning --stop-at-end" in reader.typed


def test_own_access_logs(reader: Reader) -> None:
    (reader.folder / "access.log").write_text("".join(LINE.format(host=host) for host in range(1, 31)))
    typed(reader, README.partition(OWN_LOGS)[2])
    assert [command.split()[1] for command in reader.typed] == ["start", "topic", "produce"]


def test_install_commands_are_not_typed() -> None:
    first = next(BLOCK.finditer(README))[2].splitlines()[0]
    assert is_elsewhere(first)
    assert "ottla[pipeline,plots]" in first
