"""The tools of Apache Kafka as a fixture."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from tools import JavaTools


@pytest.fixture(scope="session")
def tools(java_classpath: str) -> JavaTools:
    return JavaTools(java_classpath)


@pytest.fixture
def free_ports() -> Callable[[int], list[int]]:
    """So many different TCP ports of the loopback address that nobody listens on now."""

    def find(count: int) -> list[int]:
        with ExitStack() as stack:
            probes = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
            return [probe.getsockname()[1] for probe in probes]

    return find
