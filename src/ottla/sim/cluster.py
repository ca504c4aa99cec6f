"""One real broker in the simulated world: started, killed, stopped and started again on the same disk.

The broker is `ottla.server.broker.Broker`, coordinator and all; only clock, randomness, disk, network and pool are
simulated. It comes back by itself after it died, as under a supervisor.

Findings here: a start that fails, an exception that reaches the loop, a defect that the broker caught and reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping

from ottla.common.broker_configs import BrokerConfig
from ottla.common.endpoint import Endpoint
from ottla.common.errors import OperatorError
from ottla.metrics.registry import MetricsRegistry
from ottla.server.broker import Broker
from ottla.sim.disk import Mount, SimDisk
from ottla.sim.loop import Process, ProcessKilled, SimClock, SimLoop
from ottla.sim.network import Network
from ottla.sim.rng import SimRng
from ottla.sim.trace import Trace

LISTENER = Endpoint("PLAINTEXT", "PLAINTEXT", "broker-1", 9092)
DATA_DIR = "/data"
RESTART_S = (0.2, 4.0)


class BrokerDefect(Exception):
    """The broker did something that no fault excuses."""


class SimCluster:
    """A cluster of one."""

    def __init__(self, loop: SimLoop, rng: SimRng, trace: Trace, settings: Mapping[str, str]) -> None:
        self._loop = loop
        self._rng = rng.fork("broker")
        self._trace = trace
        self.clock = SimClock(loop)
        self.disk = SimDisk(self.clock, rng.fork("disk"))
        self.network = Network(loop, rng.fork("network"), trace, LISTENER.listener_name)
        self._config, _ = BrokerConfig.parse(
            {
                "log.dirs": DATA_DIR,
                "listeners": f"PLAINTEXT://{LISTENER.host}:{LISTENER.port}",
                "advertised.listeners": f"PLAINTEXT://{LISTENER.host}:{LISTENER.port}",
                **settings,
            }
        )
        self._process: Process | None = None
        self._mount: Mount | None = None
        self._broker: Broker | None = None
        self._task: asyncio.Task[None] | None = None
        self._power_fails = False
        self.starts = 0

    @property
    def running(self) -> bool:
        """Whether there is a broker that finished its start and did not begin to stop."""
        return self._broker is not None

    # -- life

    def start(self) -> None:
        """A new process on the same disk."""
        self.starts += 1
        process = self._process = Process(self._loop, self._rng.fork(f"pool {self.starts}"))
        process.on_death = self._died
        self._mount = Mount(self.disk, process)
        self._trace.note("broker", f"start {self.starts}")
        broker = Broker(
            self._config,
            self._mount,
            self.clock,
            self._rng.fork(f"rng {self.starts}"),
            process,
            process,
            MetricsRegistry(),
        )
        self._follow(self._start(process, broker))

    def _follow(self, life: Coroutine[None, None, None]) -> None:
        task = self._task = self._loop.create_task(life)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._loop.failures.append(error)

    async def _start(self, process: Process, broker: Broker) -> None:
        try:
            await broker.start([LISTENER])
        except ProcessKilled:
            return
        except OperatorError as error:
            if process is not self._process:
                return
            if not self.disk.full:
                raise BrokerDefect(f"the broker doesn't start: {error}") from error
            process.kill()  # it says that the disk is full, and the supervisor tries again
            return
        if process.alive:
            self._broker = broker
            self.network.listen(process, broker.dispatcher)
            self._trace.note("broker", "serves")

    def kill(self, *, power: bool = False) -> None:
        """kill -9, or `power` failure: the process is gone now."""
        if self._process is not None:
            self._power_fails = power
            self._process.kill()

    def kill_in_disk_change(self, operations: int) -> None:
        """The process dies in the middle of one of its next changes of the disk."""
        if self._mount is not None:
            self._mount.die_in(operations)

    def stop(self) -> None:
        """Ask for a graceful stop; the broker comes back afterwards."""
        broker, process = self._broker, self._process
        if broker is not None and process is not None:
            self._broker = None
            self._trace.note("broker", "stops")
            self._follow(self._stop(process, broker))

    async def _stop(self, process: Process, broker: Broker) -> None:
        try:
            await broker.stop()
        except ProcessKilled:
            return
        self._report_defects(broker)
        process.kill()

    def _died(self) -> None:
        power, self._power_fails = self._power_fails, False
        self._trace.note("broker", "power failed" if power else "died")
        if self._broker is not None:
            self._report_defects(self._broker)
        self._process = self._mount = self._broker = None
        if self._task is not None and not self._task.done():
            # Not at once: it may be this very task that dies.
            self._loop.call_soon(self._task.cancel)
        self.network.refuse()
        if power:
            self.disk.power_failed()
        else:
            self.disk.process_died()
        self._loop.call_later(self._rng.uniform(*RESTART_S), self.start)

    def abandon(self) -> None:
        """The run is over: no process comes back."""
        if self._process is not None:
            self._process.on_death = lambda: None
            self._process.kill()

    # -- findings

    def check(self) -> None:
        """Raises BrokerDefect when the broker reported a defect of its own."""
        if self._broker is not None:
            self._report_defects(self._broker)

    def _report_defects(self, broker: Broker) -> None:
        if broker.context.failures.count:
            raise BrokerDefect("the broker caught an exception that it did not expect; its log says which")
