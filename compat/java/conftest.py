"""Fixture for Apache Kafka's tools."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tools import JavaTools


@pytest.fixture(scope="session")
def tools(java_classpath: str, java_tools_classpath: str) -> Iterator[JavaTools]:
    if shutil.which("javac") is None:
        pytest.skip("javac, by which Java runs programs/Tools.java, is not installed on this machine")
    with JavaTools(java_classpath, java_tools_classpath) as running:
        yield running
