"""The compiled load generator: builds it when its source changed, runs it, and reads the broker's CPU in its window.

`load/load.c` is linked against the librdkafka of confluent-kafka, so that the client is the newest one; the header is
the one of Debian's librdkafka-dev (or of any 2.x), which has a stable binary interface.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from harness.peers import ROOT, Server
from harness.processes import Usage

SOURCE = ROOT / "bench" / "load" / "load.c"
NATS_SOURCE = ROOT / "bench" / "load" / "nats_load.py"
BUILD = ROOT / ".cache" / "bench"


@dataclass(frozen=True)
class Loaded:
    """The broker's usage within the window, and the counters of the load."""

    used: Usage
    counts: Mapping[str, Any]


def client_library() -> Path:
    """Returns the path of librdkafka inside confluent-kafka's wheel."""
    files = importlib.metadata.files("confluent-kafka") or []
    for file in files:
        if file.name.startswith("librdkafka"):
            return Path(str(file.locate())).resolve()
    raise RuntimeError("confluent-kafka brings no librdkafka of its own here; install its wheel")


def missing() -> str:
    """Returns the packages missing to build the load generator, as a sentence; empty if none."""
    if not shutil.which("gcc"):
        return "the load generator needs gcc and librdkafka's header: apt-get install gcc librdkafka-dev"
    probe = ["gcc", "-E", "-x", "c", "-o", os.devnull, "-"]
    found = subprocess.run(
        probe, input="#include <librdkafka/rdkafka.h>\n", text=True, capture_output=True, check=False
    )
    return (
        "" if found.returncode == 0 else "the load generator needs librdkafka's header: apt-get install librdkafka-dev"
    )


def program() -> Path:
    """Returns the load generator, rebuilt after a change of its source or library."""
    library = client_library()
    built = BUILD / "load"
    if built.exists() and built.stat().st_mtime > max(SOURCE.stat().st_mtime, library.stat().st_mtime):
        return built
    if missing():
        raise RuntimeError(missing())
    BUILD.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-std=gnu11", str(SOURCE), str(library), "-lpthread"]
    unfinished = BUILD / f"load.{os.getpid()}"
    result = subprocess.run(
        [*command, f"-Wl,-rpath,{library.parent}", "-o", str(unfinished)], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise RuntimeError(f"the load generator does not compile: {result.stderr[-500:]}")
    os.replace(unfinished, built)
    return built


def run_load(server: Server, command: list[str]) -> Loaded:
    """Run a program that prints `begin` and `end` around its window, then its counts as JSON; raises when it fails."""
    moments: dict[str, Usage] = {}
    counts: dict[str, Any] = {}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.strip() in ("begin", "end"):
                    moments[line.strip()] = server.usage()
                else:
                    counts = json.loads(line)
        except BaseException:
            process.kill()
            raise
        if process.wait() != 0:
            errors.seek(0)
            raise RuntimeError(f"the load failed: {errors.read().strip()[-500:]}")
    return Loaded(moments["end"] - moments["begin"] if moments else Usage(0, 0, 0), counts)


def load(mode: str, server: Server, properties: Mapping[str, object] | None = None, **options: object) -> Loaded:
    """Run the load generator for the peer's protocol once; options as in load.c, and client properties."""
    pairs = {"brokers": server.bootstrap_servers, **options}
    if server.protocol == "nats":
        command = [sys.executable, str(NATS_SOURCE)]
    else:
        command = [str(program())]
        pairs |= properties or {}
    return run_load(server, [*command, mode, *(f"{name}={value}" for name, value in pairs.items())])


def create_topic(server: Server, name: str, partitions: int) -> None:
    """Create a topic with the broker's defaults; the load generator creates the stream of NATS."""
    if server.protocol == "kafka":
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        admin.create_topics([NewTopic(name, partitions)], request_timeout=60)[name].result(90)
