"""`ottla start --brokers N`: N broker processes on one machine, started, monitored, restarted and stopped together.

Each broker runs `ottla start --config` with one end of a pipe. It stops when the supervisor closes its end or exits for
any reason. The closed pipe means that the whole cluster stops, so brokers do not move their leaderships; SIGTERM to a
single broker does. A broker that exits is restarted: after a short pause if it had served, otherwise with a doubled
pause for each failed start. A broker that exits before it was ready for the first time stops the whole cluster with its
error message.

Invariants: no broker outlives its supervisor; log lines of brokers are forwarded whole, marked with the broker id.
Left out: the broker itself (`app.process`), the plan (`app.local_cluster`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.app.clock import SystemClock
from ottla.app.disk import RealDisk
from ottla.app.ending import stopping_signals
from ottla.app.local_cluster import LocalBroker, LocalCluster
from ottla.app.service_manager import notify_service_manager
from ottla.common.config.properties import format_properties
from ottla.common.errors import OperatorError

if TYPE_CHECKING:
    from ottla.app.console_process import ConsoleProcess

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
MAX_LINE_BYTES = 1 << 20


class Supervisor:
    """Supervises the broker processes of one `LocalCluster`."""

    def __init__(
        self,
        plan: LocalCluster,
        arguments: Sequence[str],
        ready_file: str | None,
        stop_pipe: int | None = None,
        console: ConsoleProcess | None = None,
    ) -> None:
        """`arguments` are appended to each broker's command line; `ready_file` is absolute.

        The end of file of `stop_pipe` means that the cluster is no longer needed (`ottla.testing`).
        """
        self._plan = plan
        self._arguments = tuple(arguments)
        self._ready_file = ready_file
        self._stop_pipe = stop_pipe
        self._console = console
        self._disk = RealDisk()
        self._clock = SystemClock()
        self._stopping = asyncio.Event()
        self._failure: str | None = None
        self._run_dir = tempfile.TemporaryDirectory(prefix="ottla-cluster-")

    async def run(self) -> int:
        """Start all brokers, serve until a signal, stop all; returns the exit code. Raises OperatorError."""
        loop = asyncio.get_running_loop()
        for number in stopping_signals():
            loop.add_signal_handler(number, self._on_signal, number)
        if self._stop_pipe is not None:
            loop.add_reader(self._stop_pipe, self._on_stop_pipe, self._stop_pipe)
        read_end, write_end = os.pipe()
        watches = [
            asyncio.create_task(self._watch(broker, read_end), name=f"broker {broker.node_id}")
            for broker in self._plan.brokers
        ]
        try:
            if await self._wait_until_ready():
                self._announce()
                if self._console is not None:
                    self._console.start(self._plan.bootstrap_servers, self._metrics())
                await self._stopping.wait()
        finally:
            self._stopping.set()
            if self._console is not None:
                await asyncio.to_thread(self._console.close)
            os.close(write_end)
            await asyncio.gather(*watches)
            os.close(read_end)
            self._run_dir.cleanup()
        if self._failure is not None:
            raise OperatorError(self._failure)
        logger.info("the cluster stopped")
        return 0

    def _on_signal(self, number: int) -> None:
        logger.info("%s: stopping %d brokers", signal.Signals(number).name, len(self._plan.brokers))
        notify_service_manager("STOPPING=1")
        self._stopping.set()

    def _on_stop_pipe(self, descriptor: int) -> None:
        asyncio.get_running_loop().remove_reader(descriptor)
        logger.info("stopping %d brokers: the parent process has exited", len(self._plan.brokers))
        self._stopping.set()

    def _fail(self, reason: str) -> None:
        self._failure = self._failure or reason
        self._stopping.set()

    # -- ready -----------------------------------------------------------------------------------------------------

    def _ready_path(self, broker: LocalBroker) -> str:
        return os.path.join(self._run_dir.name, f"{broker.node_id}.json")

    async def _wait_until_ready(self) -> bool:
        """True once every broker has written its ready file; False after a request to stop."""
        until = self._clock.monotonic() + READY_TIMEOUT_S
        while not self._stopping.is_set():
            missing = [broker for broker in self._plan.brokers if not os.path.exists(self._ready_path(broker))]
            if not missing:
                return True
            if self._clock.monotonic() >= until:
                names = ", ".join(str(broker.node_id) for broker in missing)
                self._fail(f"broker {names} was not ready after {READY_TIMEOUT_S:.0f} s: see its log above")
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 0.02)
        return False

    def _announce(self) -> None:
        plan = self._plan
        logger.info(
            "%d brokers are ready: cluster %s on %s, data in %s",
            len(plan.brokers),
            plan.cluster_id,
            plan.bootstrap_servers,
            plan.data_dir,
        )
        notify_service_manager("READY=1")
        if self._ready_file is None:
            return
        content = {
            "pid": os.getpid(),
            "cluster_id": plan.cluster_id,
            "bootstrap_servers": plan.bootstrap_servers,
            "data_dir": plan.data_dir,
            "brokers": self._ready_brokers(),
        }
        try:
            self._disk.write_atomic(self._ready_file, json.dumps(content, indent=2).encode() + b"\n")
        except OSError as error:
            logger.error("writing the ready file %s failed: %s", self._ready_file, error.strerror)

    def _ready_brokers(self) -> list[dict[str, Any]]:
        """The contents of the brokers' ready files."""
        return [json.loads(self._disk.read_bytes(self._ready_path(broker))) for broker in self._plan.brokers]

    def _metrics(self) -> list[str]:
        """Addresses of the brokers' metrics."""
        return [address for each in self._ready_brokers() if (address := each["metrics"]) is not None]

    # -- one broker ------------------------------------------------------------------------------------------------

    async def _watch(self, broker: LocalBroker, read_end: int) -> None:
        """Restart one broker until the cluster stops.

        A broker that had served is restarted quickly: the cluster needs it, and a pause would not help.
        """
        pause_s = FIRST_PAUSE_S
        was_ready = False
        while not self._stopping.is_set():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._ready_path(broker))  # of its previous run
            code = await self._run_once(broker, read_end)
            if self._stopping.is_set():
                return
            if os.path.exists(self._ready_path(broker)):
                was_ready = True
                pause_s = FIRST_PAUSE_S
            if not was_ready:
                self._fail(
                    f"broker {broker.node_id} ended with exit code {code} before it was ready: see its log above"
                )
                return
            logger.warning("broker %d exited (%s), restarting in %.1f s", broker.node_id, _exit_text(code), pause_s)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    async def _run_once(self, broker: LocalBroker, read_end: int) -> int:
        """Run a broker process once; returns its exit code."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ottla", "start", "--config", self._plan.properties_path(broker)),
            *("--ready-file", self._ready_path(broker), "--stop-with-pipe", str(read_end)),
            *self._arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            pass_fds=(read_end,),
            env={name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"},
            start_new_session=True,  # Ctrl-C in the terminal only goes to the supervisor
            limit=MAX_LINE_BYTES,
        )
        output = asyncio.create_task(_pass_on(broker.node_id, process.stdout))
        ended = asyncio.create_task(process.wait())
        asked = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((ended, asked), return_when=asyncio.FIRST_COMPLETED)
        try:
            code = await asyncio.wait_for(ended, STOP_TIMEOUT_S)
        except TimeoutError:
            logger.error("broker %d did not stop within %.0f s, killing it", broker.node_id, STOP_TIMEOUT_S)
            process.kill()
            code = await process.wait()
        asked.cancel()
        await output
        return code


async def _pass_on(node_id: int, stream: asyncio.StreamReader | None) -> None:
    """Forward the log of a broker to standard error, line by line."""
    if stream is None:
        return
    while True:
        try:
            line = await stream.readline()
        except ValueError:  # the line exceeds the limit: continue after it
            continue
        if not line:
            return
        with contextlib.suppress(OSError):
            sys.stderr.write(f"[{node_id}] {line.decode(errors='backslashreplace').rstrip()}\n")


def _exit_text(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def write_properties(plan: LocalCluster, base: Mapping[str, str]) -> None:
    """Write the settings file of each broker, so that changed common settings take effect."""
    disk = RealDisk()
    for broker in plan.brokers:
        text = (
            f"# Broker {broker.node_id} of the cluster in {plan.data_dir}; written by ottla start --brokers at each "
            "start.\n" + format_properties(plan.settings(broker, base))
        )
        disk.write_atomic(plan.properties_path(broker), text.encode())
