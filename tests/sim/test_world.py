"""The parts of the simulation: time, processes, disk, connections, and that a run is a function of its seed."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from simulation.disk import Mount, SimDisk
from simulation.loop import Livelock, Process, ProcessKilled, SimClock, SimLoop
from simulation.network import ListeningProcess, Network
from simulation.rng import SimRng
from simulation.trace import Trace

from ottla.common.errors import ProtocolError
from ottla.common.platform.channel import Channel, Part
from ottla.common.platform.endpoint import ListenerInfo


@pytest.fixture
def loop() -> SimLoop:
    return SimLoop()


@pytest.fixture
def process(loop: SimLoop) -> Process:
    return Process(loop, SimRng(1))


@pytest.fixture
def disk(loop: SimLoop) -> SimDisk:
    return SimDisk(SimClock(loop), SimRng(2))


def test_time_jumps_to_the_next_timer(loop: SimLoop) -> None:
    seen: list[tuple[float, str]] = []
    for delay, name in ((5.0, "late"), (1.0, "first"), (1.0, "second")):
        loop.call_later(delay, lambda name=name: seen.append((loop.time(), name)))
    loop.call_later(2.0, lambda: seen.append((loop.time(), "cancelled"))).cancel()
    loop.run_until(3.0)
    assert seen == [(1.0, "first"), (1.0, "second")]
    assert loop.time() == 3.0


def test_tasks_sleep_in_virtual_time(loop: SimLoop) -> None:
    async def work() -> float:
        await asyncio.sleep(3600)
        return loop.time()

    task = loop.create_task(work())
    assert loop.run_until(10_000, task.done)
    assert task.result() == 3600


def test_an_exception_ends_the_run(loop: SimLoop) -> None:
    loop.call_soon(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        loop.run_until(1)


def test_spinning_is_found(loop: SimLoop) -> None:
    def spin() -> None:
        loop.call_soon(spin)

    spin()
    with pytest.raises(Livelock):
        loop.run_until(1)


def test_nothing_of_a_killed_process_runs(loop: SimLoop, process: Process) -> None:
    ran: list[str] = []
    process.call_soon(ran.append, "before")
    process.call_later(1, ran.append, "timer")
    process.submit(lambda: ran.append("work"), lambda result, error: ran.append("done"))
    loop.run_until(0)
    process.kill()
    loop.run_until(10)
    assert ran == ["before"]


def test_power_failure_keeps_what_was_synced(disk: SimDisk, process: Process) -> None:
    mount = Mount(disk, process)
    mount.makedirs("/data")
    mount.fsync_dir("/")
    file = mount.open("/data/log", create=True)
    file.append([b"durable"])
    file.fsync()
    mount.fsync_dir("/data")
    file.append([b" and not"])
    process.kill()
    disk.power_failed()
    survivor = Mount(disk, Process(SimLoop(), SimRng(1)))
    assert survivor.read_bytes("/data/log").startswith(b"durable")


def test_synced_directory_without_a_durable_name_may_be_lost(disk: SimDisk, process: Process) -> None:
    mount = Mount(disk, process)
    lost = False
    for attempt in range(20):
        directory = f"/data{attempt}"
        mount.makedirs(directory)
        mount.open(f"{directory}/log", create=True)
        mount.fsync_dir(directory)
        disk.power_failed()
        lost = lost or directory not in disk.names
        assert (directory in disk.names) == (f"{directory}/log" in disk.names)
    assert lost


def test_a_kill_keeps_the_page_cache_and_ends_the_mount(disk: SimDisk, process: Process) -> None:
    mount = Mount(disk, process)
    file = mount.open("/log", create=True)
    file.append([b"not synced"])
    lock = mount.lock("/lock")
    process.kill()
    disk.process_died()
    with pytest.raises(ProcessKilled):
        file.append([b"too late"])
    survivor = Mount(disk, Process(SimLoop(), SimRng(1)))
    assert survivor.read_bytes("/log") == b"not synced"
    survivor.lock("/lock")
    assert lock is not None


def test_a_process_dies_within_a_write(disk: SimDisk, process: Process) -> None:
    mount = Mount(disk, process)
    file = mount.open("/log", create=True)
    mount.die_in(1)
    file.append([b"whole"])
    with pytest.raises(ProcessKilled):
        file.append([b"torn" * 100])
    assert not process.alive
    data = bytes(disk.names["/log"].data)
    assert data + (b"torn" * 100)[len(data) - 5 :] == b"whole" + b"torn" * 100


def test_a_full_disk_refuses(disk: SimDisk, process: Process) -> None:
    file = Mount(disk, process).open("/log", create=True)
    disk.full = True
    with pytest.raises(OSError, match="no space"):
        file.append([b"0123456789"])
    assert file.size() < 10


class Echo:
    """A dispatcher that returns its input; `park` is answered later, `bad` is refused."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.closed: list[int] = []

    def handle(self, channel: Channel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        frame = bytes(buffer[start:end])
        if frame == b"bad":
            raise ProtocolError("bad")
        if frame == b"park":
            self._process.call_later(5, channel.respond, [frame])
            return None
        return [frame]

    def connection_closed(self, channel: Channel) -> None:
        self.closed.append(channel.id)


ADDRESS = ("broker-1", 9092)


class Wire:
    """A network with an echo behind it."""

    def __init__(self, loop: SimLoop, process: Process) -> None:
        self.network = Network(loop, SimRng(3), Trace(loop), ADDRESS)
        self.echo = Echo(process)
        self.network.listen(ADDRESS, ListeningProcess(process, self.echo, ListenerInfo("PLAINTEXT", "PLAINTEXT")))
        self.link = self.network.connect("client")
        self.got: list[bytes] = []
        self.link.on_frame = self.got.append
        self.lost: list[bool] = []
        self.link.on_close = lambda: self.lost.append(True)

    def send(self, *frames: bytes) -> None:
        for frame in frames:
            self.link.send(len(frame).to_bytes(4, "big") + frame)


def test_answers_come_in_order_also_behind_a_parked_one(loop: SimLoop, process: Process) -> None:
    wire = Wire(loop, process)
    wire.send(b"1", b"park", b"2")
    loop.run_until(4)
    assert wire.got == [b"1"]
    loop.run_until(20)
    assert wire.got == [b"1", b"park", b"2"]


def test_a_refusal_closes(loop: SimLoop, process: Process) -> None:
    wire = Wire(loop, process)
    wire.send(b"bad", b"never")
    loop.run_until(10)
    assert (wire.got, wire.lost, wire.echo.closed) == ([], [True], [wire.link.number])


def test_a_cut_connection_delivers_nothing_more(loop: SimLoop, process: Process) -> None:
    wire = Wire(loop, process)
    wire.send(b"1")
    wire.link.cut()
    loop.run_until(10)
    assert wire.got == []
    assert wire.echo.closed == [wire.link.number]


def test_a_blocked_direction_holds_frames_back_in_order(loop: SimLoop, process: Process) -> None:
    wire = Wire(loop, process)
    wire.network.block("broker-1", "client")
    wire.send(b"1", b"2")
    loop.run_until(10)
    assert wire.got == []
    wire.network.unblock_all()
    wire.send(b"3")
    loop.run_until(20)
    assert wire.got == [b"1", b"2", b"3"]


def test_a_dead_broker_refuses(loop: SimLoop, process: Process) -> None:
    wire = Wire(loop, process)
    process.kill()
    wire.network.refuse(process)
    loop.run_until(10)
    assert wire.lost == [True]
    assert wire.network.connect("client") is None


@pytest.mark.parametrize("seed", [3, 12])
def test_a_seed_gives_the_same_run_in_any_process(seed: int) -> None:
    """Also where strings hash differently: nothing may depend on the order of a set."""
    lines = []
    for hash_seed in ("1", "2"):
        command = [sys.executable, "-m", "simulation", "--seed", str(seed)]
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)}
        run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
        lines.append(run.stdout.splitlines()[0])
    assert "trace" in lines[0]
    assert lines[0] == lines[1]
