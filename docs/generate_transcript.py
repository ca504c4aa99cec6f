"""Writes `docs/pictures/quick-start.svg`: the commands of the README's "Five minutes" and their output.

Run it when these commands or their output change: `.venv/bin/python docs/generate_transcript.py`. It has no `--check`,
because ids, times and durations differ on each run.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from ottla.testing import Broker

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "pictures" / "quick-start.svg"
COLUMNS = 100
BLOCK = re.compile(r"^```sh\n(ottla topic create .*?)^```$", re.MULTILINE | re.DOTALL)
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
"""Rich refers to fonts on other hosts; the picture uses the fonts of the reader."""


def commands() -> list[str]:
    """The commands of the README, one a line."""
    block = BLOCK.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert block is not None, "README.md has no block that begins with `ottla topic create`"
    return block[1].splitlines()


def transcript(bootstrap_servers: str) -> str:
    """SVG of a terminal that ran the commands against this broker."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OTTLA_BOOTSTRAP_SERVER": bootstrap_servers}
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for command in commands():
        console.print(Text("$ ", style="bold green").append(command, style="bold white"), soft_wrap=True)
        done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=True)
        console.print(Text((done.stdout + done.stderr).rstrip()))
    return FONT_FACE.sub("", console.export_svg(title="ottla", theme=MONOKAI, unique_id="quick-start"))


if __name__ == "__main__":
    with Broker() as broker:
        PICTURE.write_text(transcript(broker.bootstrap_servers), encoding="utf-8")
