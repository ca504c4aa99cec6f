"""One real node in the simulation: started, killed, paused, stopped and started again on the same disk.

The broker is `ottla.server.broker.Broker` with coordinator, controller and quorum; only clock, randomness, disk,
network and pool are simulated. It restarts after it died, as under a supervisor.

Findings here: a start that fails, an exception that reaches the loop, a defect that the broker caught and reported, and
damage reported by its scrubber in files that were not changed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import NotJoinedInTimeError, OperatorError
from ottla.common.kafka.ids import ZERO_UUID, Uuid, new_uuid, uuid_from_string, uuid_to_string
from ottla.common.platform.channel import Dispatcher
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import Peers
from ottla.common.platform.runtime import NodeRuntime
from ottla.metrics.registry import MetricsRegistry
from ottla.quorum.format import format_directory
from ottla.quorum.raft_types import Voter
from ottla.server.broker import Broker
from ottla.storage.files.names import CLEAN_SHUTDOWN_FILE, partition_dir
from simulation.damage import damage_files
from simulation.disk import Mount, SimDisk
from simulation.epoch_files import check_epoch_files
from simulation.loop import Process, ProcessKilled, SimClock, SimLoop
from simulation.network import Address, ListeningProcess, Network
from simulation.peer import SimPeerNetwork
from simulation.rng import SimRng
from simulation.step_cleaner import StepWorker
from simulation.trace import Trace

DATA_DIR = "/data"
RESTART_S = (0.2, 4.0)
SCRUB_S = 5.0
"""Scrubber interval: short, since a node lives only for minutes."""
CLEANER_STEP_S = (0.001, 1.0)
"""Time that the cleaner works on a group of segments."""
UUID_BYTES = 16


class BrokerDefect(Exception):
    """A defect of the broker that no fault explains."""


class SimNode:
    """One node: disk and clock persist, processes come and go."""

    def __init__(
        self,
        loop: SimLoop,
        rng: SimRng,
        trace: Trace,
        network: Network,
        endpoints: Sequence[Endpoint],
        settings: Mapping[str, str],
    ) -> None:
        """`endpoints` are all on one host, with the node's name in the trace."""
        self._loop = loop
        self._rng = rng.fork("broker")
        self._trace = trace
        self._endpoints = list(endpoints)
        self.host = endpoints[0].host
        self.network = network
        self.clock = SimClock(loop)
        self.disk = SimDisk(self.clock, rng.fork("disk"))
        listeners = ",".join(f"{each.listener_name}://{each.address}" for each in endpoints)
        self.config, _ = BrokerConfig.parse(
            {"log.dirs": DATA_DIR, "listeners": listeners, "advertised.listeners": listeners, **settings}
        )
        self._process: Process | None = None
        self._mount: Mount | None = None
        self._broker: Broker | None = None
        self._task: asyncio.Task[None] | None = None
        self._power_fails = False
        self._abandoned = False
        self._cluster_id = ""
        self.directory_id: Uuid = ZERO_UUID
        """Id of the data directory, if the node is formatted."""
        self.pool_delay_s = 0.0
        """Additional delay of everything that waits for the disk."""
        self.starts = 0
        self.damaged_kinds: Counter[str] = Counter()
        self.may_lose_committed = False
        """Whether the cluster loses more than the guarantees cover."""
        self.scrubbed_bytes = 0
        """Number of processes so far."""

    @property
    def client_address(self) -> Address:
        """Address of the node for clients."""
        return (self._endpoints[0].host, self._endpoints[0].port)

    @property
    def controller_endpoint(self) -> Endpoint:
        """Address of the node's controller for other nodes."""
        return self._endpoints[-1]

    def format(self, cluster_id: str, directory_id: str, voters: Sequence[Voter]) -> None:
        """Format the data directory of a cluster node, before its first start; without `voters` as an observer."""
        self._cluster_id = cluster_id
        self.directory_id = uuid_from_string(directory_id)
        process = Process(self._loop, self._rng.fork("format"))
        format_directory(
            Mount(self.disk, process),
            self.clock,
            self._rng,
            DATA_DIR,
            node_id=self.config.node_id,
            cluster_id=cluster_id,
            directory_id=directory_id,
            voters=voters,
        )

    @property
    def running(self) -> bool:
        """Whether a broker has finished its start and not begun to stop."""
        return self._broker is not None

    @property
    def broker(self) -> Broker | None:
        """The broker, if it is running: for checkers, which only read."""
        return self._broker

    # -- life

    def start(self) -> None:
        """A new process on the same disk."""
        if self._abandoned or self._process is not None:
            return
        self.starts += 1
        process = self._process = Process(self._loop, self._rng.fork(f"pool {self.starts}"))
        process.on_death = self._died
        process.pool_delay_s = self.pool_delay_s
        self._mount = Mount(self.disk, process)
        self._trace.note(self.host, f"start {self.starts}")
        peers = SimPeerNetwork(self.network, process, self.host)
        broker = Broker(
            self.config,
            NodeRuntime(self._mount, self.clock, self._rng.fork(f"rng {self.starts}"), process, process),
            MetricsRegistry(),
            peers=Peers(peers, peers),
            on_fatal=lambda error: process.kill(),
            cleaner_worker=partial(
                self._cleaner_worker, process, self._mount, self._rng.fork(f"cleaner {self.starts}")
            ),
        )
        self._follow(self._start(process, broker))

    def _cleaner_worker(self, process: Process, mount: Mount, rng: SimRng) -> StepWorker:
        return StepWorker(mount, lambda step: process.call_later(rng.uniform(*CLEANER_STEP_S), step))

    def _follow(self, life: Coroutine[None, None, None]) -> None:
        task = self._task = self._loop.create_task(life)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._loop.failures.append(error)

    async def _start(self, process: Process, broker: Broker) -> None:
        try:
            broker.open(self._endpoints)
            if self.config.clustered:
                self._listen(process, broker.controller_dispatcher, of_controller=True)
            await broker.start()
        except ProcessKilled:
            return
        except (OperatorError, NotJoinedInTimeError) as error:
            if process is not self._process:
                return
            # A minute may not be enough during faults; after them the cluster has to recover in time.
            if not self.disk.refuses and not isinstance(error, NotJoinedInTimeError):
                raise BrokerDefect(f"{self.host} doesn't start: {error}") from error
            process.kill()  # and the supervisor tries again
            return
        if process.alive:
            self._broker = broker
            if broker.scrubber is not None:
                broker.scrubber.least_round_s = SCRUB_S
            self._listen(process, broker.dispatcher, of_controller=False)
            self._trace.note(self.host, "serves")

    def _listen(self, process: Process, dispatcher: Dispatcher, *, of_controller: bool) -> None:
        controllers = self.config.controller_listener_names
        for each in self._endpoints:
            if (each.listener_name in controllers) == of_controller:
                self.network.listen((each.host, each.port), ListeningProcess(process, dispatcher, each.listener))

    def kill(self, *, power: bool = False) -> None:
        """kill -9, or `power` failure: the process ends now."""
        if self._process is not None:
            self._power_fails = power
            self._process.kill()

    def kill_in_disk_change(self, operations: int) -> None:
        """The process dies during one of its next disk changes."""
        if self._mount is not None:
            self._mount.die_in(operations)

    def lose_disk(self) -> None:
        """The process dies, and restarts with an empty disk that was formatted with a new directory id."""
        self.kill()
        self.disk = SimDisk(self.clock, self._rng.fork(f"disk {self.starts}"))
        directory_id = uuid_to_string(new_uuid(self._rng.fork(f"directory {self.starts}").random_bytes(UUID_BYTES)))
        self.format(self._cluster_id, directory_id, ())

    def damage_files(self, count: int) -> None:
        """The process dies, and restarts with a flipped bit in this many of its files."""
        logs = [] if self._broker is None else self._broker.parts.logs.logs()
        compacted = {partition_dir(log.topic, log.partition) for log in logs if log.config.compacted}
        self.kill()
        damaged = damage_files(self.disk, DATA_DIR, count, self._rng.fork(f"damage {self.starts}"), compacted)
        self.damaged_kinds.update(each.kind for each in damaged)
        self._trace.note(self.host, f"damaged: {', '.join(map(str, damaged))}")

    def slow_disk(self, delay_s: float) -> None:
        """Add a delay to everything that waits for the disk, until changed again."""
        self.pool_delay_s = delay_s
        if self._process is not None:
            self._process.pool_delay_s = delay_s

    def pause(self) -> None:
        """SIGSTOP."""
        if self._process is not None:
            self._process.pause()

    def resume(self) -> None:
        """SIGCONT; allowed for a process that is not paused."""
        if self._process is not None:
            self._process.resume()

    def stop(self) -> None:
        """Request a graceful stop; the broker restarts afterwards."""
        broker, process = self._broker, self._process
        if broker is not None and process is not None:
            self._broker = None
            self._trace.note(self.host, "stops")
            self._follow(self._stop(process, broker))

    async def _stop(self, process: Process, broker: Broker) -> None:
        try:
            await broker.hand_over()
            await broker.stop()
        except ProcessKilled:
            return
        self._report_defects(broker)
        mount, is_damaged = self._mount, self.damaged_kinds or self.disk.failed_directory
        if mount is not None and not is_damaged and mount.exists(f"{DATA_DIR}/{CLEAN_SHUTDOWN_FILE}"):
            check_epoch_files(mount, DATA_DIR, self.host)
        process.kill()

    def _died(self) -> None:
        power, self._power_fails = self._power_fails, False
        self._trace.note(self.host, "power failed" if power else "died")
        if self._broker is not None:
            self._report_defects(self._broker)
            self.scrubbed_bytes += 0 if self._broker.scrubber is None else self._broker.scrubber.bytes_read.value
        process = self._process
        self._process = self._mount = self._broker = None
        if self._task is not None and not self._task.done():
            # Not at once: it may be the current task that dies.
            self._loop.call_soon(self._task.cancel)
        if process is not None:
            self.network.refuse(process)
        if power:
            self.disk.power_failed()
        else:
            self.disk.process_died()
        self._loop.call_later(self._rng.uniform(*RESTART_S), self.start)

    def abandon(self) -> None:
        """The run is over: no process restarts."""
        self._abandoned = True
        if self._process is not None:
            self._process.on_death = lambda: None
            self._process.kill()

    # -- findings

    def check(self) -> None:
        """Raises BrokerDefect if the broker reported a defect."""
        if self._broker is not None:
            self._report_defects(self._broker)

    def _report_defects(self, broker: Broker) -> None:
        if broker.parts.failures.count:
            raise BrokerDefect(f"{self.host} caught an unexpected exception; see its log")
        if broker.parts.replicas.statistics.committed_truncations.value and not self.may_lose_committed:
            raise BrokerDefect(f"{self.host} truncated committed records; see its log")
        scrubber = broker.scrubber
        if scrubber is not None and scrubber.damaged and not (self.damaged_kinds or self.disk.failed_directory):
            raise BrokerDefect(f"{self.host} reported damage in undamaged files: {scrubber.damaged}")
