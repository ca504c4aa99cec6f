"""The command `python -m profiles`: runs a workload against a broker of this checkout, samples it, writes the text."""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.load import program
from harness.page_cache import page_cache_filler
from harness.peers import Ottla, Server
from replayer import Load, Replay
from replayer.frames import Wire, batch
from workloads import partitions, requests

from profiles.report import call_tree, collapsed, self_times, weighed

FOLDER = Path(__file__).parent
REMARKS = FOLDER / "remarks.toml"
TOPIC = "profile"
SIX = 6
WARM_UP_S = 2.0
SAMPLED_S = 8
RATE = 250
"""Sampling rate of py-spy, which stops the process for each sample: a higher one would change the measurement."""
PERF_ROWS = 25


@contextlib.contextmanager
def client(server: Server, mode: str, size: int) -> Iterator[None]:
    """librdkafka under full load, until the profile is complete."""
    with Wire(server) as wire:
        wire.create_topic(TOPIC, SIX)
        if mode == "consume":
            wire.write(TOPIC, SIX, batch(size, 900_000 // size), count=80)
    options = {"brokers": server.bootstrap_servers, "topic": TOPIC, "partitions": SIX, "size": size, "seconds": 600}
    command = [str(program()), mode, *(f"{name}={value}" for name, value in options.items())]
    if mode == "produce":
        command.append("linger.ms=5")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
        if process.poll() is not None:
            raise RuntimeError("the load ended before the profile was taken")
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def replayed(server: Server, make: Callable[[Wire], Load]) -> Iterator[None]:
    """Raw requests, until the profile is complete."""
    with Wire(server) as wire:
        load = make(wire)
    with Replay(server.port, load) as replay:
        replay.wait_for("begin")
        yield


PROFILED: dict[str, Callable[[Server], contextlib.AbstractContextManager[None]]] = {
    "produce-100": lambda server: client(server, "produce", 100),
    "produce-1024": lambda server: client(server, "produce", 1024),
    "consume-1024": lambda server: client(server, "consume", 1024),
    "requests-unpipelined-64": lambda server: replayed(server, lambda wire: requests.load(wire, 64, 1)),
    "requests-pipelined-64": lambda server: replayed(server, lambda wire: requests.load(wire, 64, 16)),
    "fetch-full-1000": lambda server: replayed(server, lambda wire: partitions.load(wire, "full", 1000)),
    "fetch-idle-1000": lambda server: replayed(server, lambda wire: partitions.load(wire, "idle", 1000)),
    "fetch-session-10000": lambda server: replayed(server, lambda wire: partitions.load(wire, "session", 10_000)),
}


def tool(name: str) -> str:
    """Returns a program on the PATH or next to the interpreter."""
    found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if found is None:
        raise SystemExit(f"{name} is missing (perf: Debian's linux-perf; py-spy: from PyPI)")
    return found


def perf(pid: int, folder: Path, *sort: str) -> list[str]:
    """Returns the share of samples by `sort`, without column padding."""
    data = folder / "perf.data"
    if not data.exists():
        record = [tool("perf"), "record", "-q", "-F", "997", "-p", str(pid), "-o", str(data)]
        subprocess.run([*record, "--", "sleep", str(SAMPLED_S)], check=True, stderr=subprocess.DEVNULL)
    report = [tool("perf"), "report", "-i", str(data), "--stdio", "--sort", ",".join(sort), "-q"]
    text = subprocess.run(report, check=True, capture_output=True, text=True).stdout
    lines = [re.sub(r"\s+- +-\s*$", "", line).strip() for line in text.splitlines()]
    return [line for line in lines if line][:PERF_ROWS]


def spy(pid: int, folder: Path) -> str:
    """Returns collapsed stacks of py-spy."""
    output = folder / "stacks"
    command = [tool("py-spy"), "record", "--native", "--format", "raw", "--rate", str(RATE), "--pid", str(pid)]
    subprocess.run([*command, "--duration", str(SAMPLED_S), "--output", str(output)], check=True, capture_output=True)
    return output.read_text()


def take(name: str) -> str:
    """Returns the text of one profile."""
    remark = tomllib.loads(REMARKS.read_text()).get(name, "") if REMARKS.exists() else ""
    with Ottla("ottla") as server, PROFILED[name](server), tempfile.TemporaryDirectory() as folder:
        time.sleep(WARM_UP_S)
        before = server.usage()
        objects = perf(server.pid, Path(folder), "dso")
        used = server.usage() - before
        symbols = perf(server.pid, Path(folder), "dso", "symbol")
        kernel = used.system_s / max(used.cpu_s, 0.01)
        stacks = weighed(collapsed(spy(server.pid, Path(folder))), kernel)
    parts = [
        f"{name}: {remark or 'no remark yet.'}",
        f"{used.cpu_s / used.seconds:.2f} cores used, {100 * kernel:.0f} % in the kernel",
        "Where the samples are (perf):\n" + "\n".join(objects),
        "Symbols (perf):\n" + "\n".join(symbols),
        "Functions by their own time (py-spy, native frames; system calls weighted by kernel CPU time):\n"
        + "\n".join(self_times(stacks)),
        "Calls, down to 1.5 % of the samples (py-spy):\n" + "\n".join(call_tree(stacks)),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="profiles", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROFILED)}")
    names = parser.parse_args().names or list(PROFILED)
    unknown = [name for name in names if name not in PROFILED]
    if unknown:
        raise SystemExit(f"unknown profile {unknown[0]!r}, but {', '.join(PROFILED)}")
    with page_cache_filler() as fill:
        for name in names:
            fill()
            path = FOLDER / f"{name}.txt"
            path.write_text(take(name))
            print(f"written to {path}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
