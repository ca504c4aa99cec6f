"""The raw request replayer: `replayer.c`, compiled on first use, and the code that starts it and reads its results.

    with Replay(server.port, load, seconds=10, warm_up_s=5) as replay: ...
    used, replayed = measure(server, load, seconds=10, warm_up_s=5)

It uses no client library, so the broker's cost of a request is separate from that of its clients.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from harness.cells import Figure, quantile_figures
from harness.peers import Server
from harness.processes import Usage
from harness.programs import compiled

SOURCE = Path(__file__).with_name("replayer.c")
ENDLESS_S = 86_400.0
"""For loads that end after a number of requests."""


@dataclass(frozen=True)
class Load:
    """A load to send. Positions count from the size prefix of a request or response; see `replayer.c`."""

    frames: Sequence[bytes]
    connections: int = 1
    window: int = 1
    """Unanswered requests of a connection, 1 for unpipelined."""
    rate: float = 0.0
    """Requests per second of all connections together, as an open loop; 0 sends the next request on each response."""
    requests: int = 0
    """Number of requests per connection; 0 for no limit."""
    stagger: int = 0
    """Connection i starts with frame i * stagger."""
    prologue: Sequence[bytes] = ()
    """Sent once by every connection, unpipelined, before the measurement."""
    error_at: int = -1
    """Position of an error code in every response, which must be 0."""
    capture: tuple[int, int] = (0, -1)
    """Copies four bytes from this position in the last prologue response to that position in every request."""
    counter_at: int = -1
    """Position of a 32-bit counter in the requests, which starts at 1."""
    offset_at: int = -1
    """Position of a 64-bit offset in the requests, which starts at 0 ..."""
    offset_below: int = (1 << 63) - 1
    """... and restarts before it reaches this value."""
    same_length: bool = False
    """Every response must be as long as the first."""


@dataclass(frozen=True)
class Replayed:
    """Results of the measured time."""

    requests: int
    seconds: float
    latency_us: Mapping[str, float]
    """p50, p90, p99, p999, max, mean."""
    all_requests: int
    """Includes those of the warm-up, but not those of the prologue."""
    bytes_in: int
    """Bytes of all responses, including those of the prologue."""
    client_cpu_s: float
    first_response: bytes
    """The first response of connection 0, without its size prefix."""

    def latency_figures(self, name: str = "latency") -> list[Figure]:
        """Returns p50, p99 and p99.9."""
        at = self.latency_us
        return quantile_figures(name, {0.5: at["p50"] / 1e6, 0.99: at["p99"] / 1e6, 0.999: at["p999"] / 1e6})


class Replay:
    """One run of the replayer in the background; the context manager ends it on exit."""

    def __init__(self, port: int, load: Load, *, seconds: float = ENDLESS_S, warm_up_s: float = 0.0) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ottla-replay-")
        self._sample = Path(self._folder.name) / "sample"
        self._process = subprocess.Popen(self._command(port, load, seconds, warm_up_s), stdout=subprocess.PIPE)

    def _command(self, port: int, load: Load, seconds: float, warm_up_s: float) -> list[str]:
        options: dict[str, object] = {
            "port": port,
            "seconds": seconds,
            "warmup": warm_up_s,
            "connections": load.connections,
            "window": load.window,
            "rate": load.rate,
            "requests": load.requests,
            "stagger": load.stagger,
            "error-at": load.error_at,
            "capture-from": load.capture[0],
            "capture-to": load.capture[1],
            "counter-at": load.counter_at,
            "offset-at": load.offset_at,
            "offset-below": load.offset_below,
            "sample": self._sample,
        }
        for name, frames in (("frames", load.frames), ("prologue", load.prologue)):
            if frames:
                options[name] = Path(self._folder.name) / name
                Path(self._folder.name, name).write_bytes(b"".join(frames))
        command = [str(compiled(SOURCE)), *(f"--{name}={value}" for name, value in options.items())]
        return [*command, "--same-length"] if load.same_length else command

    def __enter__(self) -> Replay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the replayer ended with {self._process.wait()}; its last words are above")
        return line.decode().strip()

    def wait_for(self, event: str) -> None:
        """Wait until the measured time begins ("begin") or is over ("end")."""
        said = self._line()
        if said != event:
            raise RuntimeError(f"the replayer said {said!r} where {event!r} was expected")

    def end(self) -> Replayed:
        """Stop sending; returns the result once pending responses have arrived."""
        self._process.terminate()
        self.wait_for("end")
        return self.result()

    def result(self) -> Replayed:
        """Wait for the last response; call it after the end."""
        found = json.loads(self._line())
        self._process.wait()
        return Replayed(
            found["requests"],
            found["seconds"],
            found["latency_us"],
            found["all_requests"],
            found["bytes_in"],
            found["client_cpu_s"],
            self._sample.read_bytes()[4:],
        )


def measure(server: Server, load: Load, seconds: float, warm_up_s: float) -> tuple[Usage, Replayed]:
    """Run one load alone; returns the server's usage within the measured time, and the results."""
    with Replay(server.port, load, seconds=seconds, warm_up_s=warm_up_s) as replay:
        replay.wait_for("begin")
        before = server.usage()
        replay.wait_for("end")
        used = server.usage() - before
        return used, replay.result()


def replay_all(server: Server, load: Load) -> Replayed:
    """Send `load.requests` requests as fast as the server responds."""
    with Replay(server.port, load) as replay:
        replay.wait_for("begin")
        replay.wait_for("end")
        return replay.result()
