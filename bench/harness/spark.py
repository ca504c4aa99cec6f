"""Runs the programs in `readers/` by Spark: the pyspark of this checkout, or that of Spark's own Kafka connector.

Heap, Java and the other settings are the same for both. A program prints its progress as words, and runs until its
input ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness.peers import ROOT
from harness.processes import Usage, usage
from ottla.common.errors import OperatorError
from ottla.pipeline.spark.session import EXTRA_MODULES, find_java, launch_home

CONNECTOR = "connector"
"""The way with Spark's own connector; all others are Ottla's."""
LOCAL = "local"
"""The way without Spark."""
READERS = ROOT / "bench" / "readers"
COMPAT = ROOT / ".cache" / "compat"
CONNECTOR_PYTHON = COMPAT / "spark" / "bin" / "python"
CONNECTOR_JARS = COMPAT / "java-spark"
END_S = 120.0


def missing(way: str) -> str:
    """Returns the missing requirements, as a sentence."""
    if way == CONNECTOR and not (CONNECTOR_PYTHON.exists() and any(CONNECTOR_JARS.glob("spark-sql-kafka*.jar"))):
        return "its jars and its pyspark come from Maven and PyPI by `make bench-pipeline`"
    if way != CONNECTOR and any(find_spec(name) is None for name in EXTRA_MODULES):
        return "it needs the extra `pipeline`"
    if way == LOCAL:
        return ""
    try:
        find_java()
    except OperatorError as error:
        return str(error)
    return ""


def present(ways: list[str]) -> list[str]:
    """Returns the ways that can be measured, and prints the others."""
    for way in ways:
        if missing(way):
            print(f"{way} is left out: {missing(way)}", file=sys.stderr)
    return [way for way in ways if not missing(way)]


def conf(way: str, heap: str, scratch: Path) -> dict[str, str]:
    """Returns Spark's settings, the same for all ways except for the connector's jars."""
    settings = {
        "spark.driver.memory": heap,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.compression.codec": "zstd",
    }
    if way == CONNECTOR:
        settings["spark.jars"] = ",".join(map(str, sorted(CONNECTOR_JARS.glob("*.jar"))))
    return settings


class Program:
    """A running program."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    def said(self, word: str) -> Usage:
        """Returns the usage when it printed a word. Raises RuntimeError if it exited before."""
        if self._process.stdout is None:
            raise RuntimeError("the program has no output")
        for line in self._process.stdout:
            if line.strip() == word:
                return usage(self.pid)
        raise RuntimeError(f"the program ended before it said {word!r}:\n{self.last_words()}")

    def check_alive(self) -> None:
        """Raises RuntimeError with the end of its output when it has exited."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the program ended with {self._process.returncode}:\n{self.last_words()}")

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def end(self) -> str:
        """Close its input; returns its whole output."""
        return self._process.communicate(timeout=END_S)[0]


@contextmanager
def program(name: str, job: Mapping[str, Any], scratch: Path) -> Iterator[Program]:
    """Start `readers/NAME.py` with its job by the Python of the job's way; it is killed if it does not exit."""
    python = CONNECTOR_PYTHON if job["way"] == CONNECTOR else Path(sys.executable)
    variables = {"PYSPARK_PYTHON": str(python)}
    if job["way"] != LOCAL:
        variables["JAVA_HOME"] = str(launch_home(find_java(), scratch))
    with (scratch / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(python), str(READERS / f"{name}.py"), json.dumps(job)],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield Program(process, scratch / "log")
    finally:
        process.kill()
        process.wait()
