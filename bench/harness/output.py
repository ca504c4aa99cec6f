"""The option `--output` of the measurements, which checks before the start that the file can be written."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.peers import ROOT

MEASURED = ROOT / "bench" / "results" / "measured"


def add_output(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the option; its default is that name in MEASURED. An unwritable file ends the program."""
    parser.add_argument("--output", type=output_file, default=str(MEASURED / f"{name}.json"), metavar="FILE")


def output_file(text: str) -> Path:
    """A writable file, in a directory that exists or can be created. Raises ArgumentTypeError."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is a directory: name a file in it, such as {path / 'figures.json'}")
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if there != path and not there.is_dir():
        raise argparse.ArgumentTypeError(f"{text} can't be written: {there} is not a directory")
    if not os.access(there, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} can't be written: no permission to write to {there}")
    return path


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write the figures as JSON; directories are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
