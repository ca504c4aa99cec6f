"""The parts of a chaos run that can be wrong without a broker: schedule, links, switch, comparison, figures."""

from __future__ import annotations

import os
import random
import select
import socket
from pathlib import Path

import pytest

from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch

from .book import Book, Figures
from .coordination import reigns_in, shared
from .copies import contents_of, difference
from .faults import OF_BROKERS, ON_ZOOKEEPER, WEIGHTS, Fault, schedule
from .network import CLIENTS, Link, Switch, merged
from .report import percentile

NODES = (1, 2, 3)
SERVERS = (11, 12, 13)


def test_a_seed_fixes_the_schedule():
    first, again, other = (schedule(random.Random(seed), 600.0, NODES) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert {fault.kind for fault in first} == set(WEIGHTS)
    assert all(fault.at_s + fault.seconds <= 600.0 and fault.node != fault.other for fault in first)


def test_servers_of_zookeeper_have_faults_too():
    faults = schedule(random.Random(1), 900.0, NODES, SERVERS)
    assert {fault.kind for fault in faults} == set(ON_ZOOKEEPER)
    assert {fault.node for fault in faults if fault.kind in OF_BROKERS} == {*NODES}
    assert {fault.node for fault in faults if fault.kind == "kill"} == {*NODES, *SERVERS}


def test_a_broker_that_is_cut_from_the_servers_alone():
    links = Fault(0.0, "alone", 1, 2, 1.0, Link(cut=True)).links(NODES, SERVERS[:2])
    assert set(links) == {(1, 11), (11, 1), (1, 12), (12, 1)}


def test_an_epoch_of_two_controllers_is_found():
    logs = ["broker 1 is the controller in epoch 3\n...\n... broker 1 is the controller in epoch 5", "nothing", ""]
    assert not shared(reigns_in(logs))
    logs[1] = "... broker 2 is the controller in epoch 4\nbroker 2 is the controller in epoch 5"
    assert shared(reigns_in(logs)) == ["controller epoch 5 is of brokers 1, 2"]


@pytest.mark.parametrize(
    ("kind", "pairs"),
    [
        ("one-way", {(1, 2)}),
        ("muted", {(1, 2), (1, 3)}),
        ("isolated", {(1, 2), (1, 3), (2, 1), (3, 1)}),
        ("unplugged", {(1, 2), (1, 3), (2, 1), (3, 1), (1, CLIENTS), (CLIENTS, 1)}),
        ("kill", set()),
    ],
)
def test_links_that_a_fault_cuts(kind, pairs):
    links = Fault(0.0, kind, 1, 2, 1.0, Link(cut=True)).links(NODES)
    assert set(links) == pairs
    assert all(link.cut for link in links.values())


def test_troubles_add_up():
    slow, lossy = Link(delay_s=0.1, jitter_s=0.2), Link(loss=0.5, delay_s=0.1)
    links = merged([{(1, 2): slow}, {(1, 2): lossy, (2, 1): Link(cut=True)}])
    assert links == {(1, 2): Link(loss=0.5, delay_s=0.2, jitter_s=0.2), (2, 1): Link(cut=True)}


class Ports:
    """Two ports of a switch as pipes of packets."""

    def __init__(self) -> None:
        self.pairs = {host: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for host in (1, 2)}
        for pair in self.pairs.values():
            for end in pair:
                end.setblocking(False)
        self.switch = Switch({host: pair[0].fileno() for host, pair in self.pairs.items()}, random.Random(1))

    def received(self, host: int) -> list[bytes]:
        end = self.pairs[host][1]
        packets = []
        while select.select([end], [], [], 0)[0]:
            packets.append(os.read(end.fileno(), 2000))
        return packets

    def close(self) -> None:
        for pair in self.pairs.values():
            for end in pair:
                end.close()


@pytest.fixture
def ports():
    found = Ports()
    yield found
    found.close()


def packet(receiver: int, number: int = 0) -> bytes:
    """The head of one by IPv4."""
    return bytes([0x45, *bytes(15), 198, 18, 0, receiver]) + b"%d" % number


def test_the_switch_passes_packets_and_drops_strays(ports):
    for stray in (b"", b"\x60" + bytes(39), packet(9)):
        ports.switch.receive(1, stray, 0.0)
    ports.switch.receive(1, packet(2), 0.0)
    assert ports.received(2) == [packet(2)]
    assert ports.received(1) == []


def test_a_cut_is_in_one_direction(ports):
    ports.switch.set_links({(1, 2): Link(cut=True)})
    ports.switch.receive(1, packet(2), 0.0)
    ports.switch.receive(2, packet(1), 0.0)
    assert ports.received(2) == []
    assert ports.received(1) == [packet(1)]
    ports.switch.set_links({})
    ports.switch.receive(1, packet(2), 0.0)
    assert ports.received(2) == [packet(2)]
    assert ports.switch.lost == 1


def test_a_slow_link_delays(ports):
    ports.switch.set_links({(1, 2): Link(delay_s=0.1)})
    ports.switch.receive(1, packet(2), 5.0)
    assert ports.switch.deliver_due(5.0) == pytest.approx(0.1)
    assert ports.received(2) == []
    ports.switch.deliver_due(5.11)
    assert ports.received(2) == [packet(2)]


def test_a_bad_link_loses_some(ports):
    ports.switch.set_links({(1, 2): Link(loss=0.3)})
    arrived = 0
    for number in range(500):
        ports.switch.receive(1, packet(2, number), 0.0)
        ports.switch.deliver_due(1.0)
        arrived += len(ports.received(2))
    assert 300 < arrived < 400
    assert arrived + ports.switch.lost == 500


def replica(folder: Path, *segments: list[bytes]) -> Path:
    folder.mkdir(parents=True)
    for number, batches in enumerate(segments):
        (folder / f"{number:020}.log").write_bytes(b"".join(batches))
    return folder


def batch(offset: int, value: bytes) -> bytes:
    return bytes(build_batch([RecordData(1_700_000_000_000, None, value)], base_offset=offset))


def test_replicas_with_other_segments_are_equal(tmp_path):
    batches = [batch(number, b"%d" % number) for number in range(3)]
    first = replica(tmp_path / "1" / "t-0", batches)
    second = replica(tmp_path / "2" / "t-0", batches[:1], batches[1:])
    assert difference({1: first, 2: second}) is None


@pytest.mark.parametrize(("values", "offset"), [([b"0", b"x", b"2"], 1), ([b"0", b"1"], 2)])
def test_replicas_differ(tmp_path, values, offset):
    first = replica(tmp_path / "1" / "t-0", [batch(number, b"%d" % number) for number in range(3)])
    second = replica(tmp_path / "2" / "t-0", [batch(number, value) for number, value in enumerate(values)])
    assert difference({1: first, 2: second}) == f"t-0: 1 and 2 differ at offset {offset}"
    assert difference({2: second, 1: first}) == f"t-0: 2 and 1 differ at offset {offset}"


@pytest.mark.parametrize(("name", "second_epoch", "copies"), [("p2", 1, {1}), ("p2", 0, set()), ("p0", 1, set())])
def test_a_copy_in_another_producer_epoch_is_its_clients(name, second_epoch, copies):
    value = b"%s:7 ..." % name.encode()
    batches = [
        BatchView(build_batch([RecordData(0, None, value)], base_offset=offset, producer_id=4, producer_epoch=epoch))
        for offset, epoch in enumerate((0, second_epoch))
    ]
    assert contents_of(batches, {"p0"}) == ({0: f"{name}:7", 1: f"{name}:7"}, copies)


def book(*, allow_loss: bool = False) -> Book:
    made = Book(Figures(), allow_loss=allow_loss)
    for number in range(2):
        made.sent(0, f"p:{number}")
    return made


def test_a_violation_that_a_thread_sees_is_kept():
    made = book()
    made.acknowledged("p", 0, 0, "p:0")
    made.polled("c", 0, 1, "p:1")
    made.finish({0: {1: "p:1"}})
    assert made.violations == [
        "poll-skip: c read 0@1 where 0 came next",
        "lost-write: p:0 was acknowledged at 0@0, where None is at the end",
    ]


def test_a_record_that_was_acknowledged_without_an_offset():
    made = book()
    made.acknowledged("p", 0, None, "p:0")
    made.finish({0: {3: "p:0"}})
    assert made.violations == []
    made.finish({0: {}})
    assert made.violations == ["lost-write: p:0 was acknowledged and is not in the log at the end"]


def test_losses_that_are_allowed_are_figures():
    made = book(allow_loss=True)
    made.acknowledged("p", 0, 0, "p:0")
    made.finish({0: {}})
    assert made.violations == []
    assert made.figures.lost_acknowledged == 1
    assert made.figures.forgiven == {"lost-write": 1}


def test_records_unseen_by_a_group():
    made = book()
    made.acknowledged("p", 0, 0, "p:0")
    made.acknowledged("p", 0, 1, "p:1")
    made.group_read("g", "m", 0, 1, "p:1")
    assert made.unseen("g") == {"p:0"}


def test_progress_needs_every_producer_and_every_partition():
    made = book()
    made.acknowledged("p", 0, 0, "p:0")
    assert made.progressed(["p"], 1)
    assert not made.progressed(["p", "q"], 1)
    assert not made.progressed(["p"], 2)
    made.begin_progress()
    assert not made.progressed(["p"], 1)


def test_percentiles():
    assert [percentile([3.0, 1.0, 2.0], share) for share in (0.5, 0.99, 1.0)] == [2.0, 3.0, 3.0]
    assert percentile([], 0.5) == 0.0
