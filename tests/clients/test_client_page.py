"""The snippets of docs/guides/client.md are a program that runs, top to bottom, against a real broker."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "client.md"
SERVERS = '"localhost:9092"'


def test_every_snippet_of_the_page_runs(ottla_broker, capsys):
    text = PAGE.read_text(encoding="utf-8")
    program = ["\n"] * len(text.splitlines())
    for snippet in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first = text.count("\n", 0, snippet.start(1))
        lines = snippet[1].splitlines(keepends=True)
        program[first : first + len(lines)] = lines  # so that a traceback names the line of the page
    source = "".join(program)
    assert source.count(SERVERS) == 1
    exec(compile(source.replace(SERVERS, repr(ottla_broker.bootstrap_servers)), str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert "b'/page/99'" in printed
    assert re.search(r"^[1-9]\d* records$", printed, re.MULTILINE)
    assert "records, next offset" in printed
    assert "arrived" in printed
