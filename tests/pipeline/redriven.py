"""A redrive in a process of its own that is killed, see `forks.py`.

`step` is a step of the redrive, or the number of the Python file operation before which it is killed.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import pyarrow as pa
from tests.pipeline.deaths import die_before

from ottla.pipeline.operations.redrive import redrive
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.transform.value_format import CsvFormat

FIRST = CsvFormat(pa.schema([("a", pa.int64()), ("b", pa.string())]))
REPAIRED = CsvFormat(pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.string())]))


def main(path: str, step: str) -> None:
    def reached(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    if step.isdecimal():
        die_before(int(step))
    redrive(open_table(path), REPAIRED, reached=reached)
