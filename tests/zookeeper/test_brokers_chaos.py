"""Three brokers on a simulated ZooKeeper while they stop, die, stand still, and lose sessions and one another."""

from __future__ import annotations

from contextlib import suppress

import pytest
from simulation.loop import ProcessKilled
from simulation.rng import SimRng
from tests.scale import size
from tests.server.harness import Connection, fetch_request, fetched, produce_request

from ottla.protocol.znodes import paths
from ottla.protocol.znodes.operations import Delete

from .brokers import TIMEOUT_MS, Life, World
from .test_three_brokers import IDS, Cluster, create

STEPS = 150


class Chaos:
    """Random faults under writes that all in sync have to acknowledge."""

    def __init__(self, seed: int) -> None:
        self.rng = SimRng(seed)
        self.world = World(seed)
        self.cluster = Cluster(self.world, replica_lag_time_max_ms="1000")
        self.cluster.start(*IDS)
        create(self.cluster, 1, *IDS, min_insync_replicas="2")
        self.asked: list[tuple[Life, Connection, bytes]] = []
        self.acknowledged: list[bytes] = []
        self.number = 0
        self.reigns: dict[int, int] = {}

    @property
    def up(self) -> list[Life]:
        """Those that serve, and run."""
        lives = self.cluster.lives.values()
        return [life for life in lives if life.is_up and life.process.paused is None]

    def step(self) -> None:
        self.world.run(self.rng.uniform(0.0, 0.4))
        for life in self.up:
            control = life.broker.parts.control
            if control.controller.active:
                broker_id, epoch = control.metadata.log.leader
                assert self.reigns.setdefault(epoch, broker_id) == broker_id
            if life.fatal:
                life.kill()  # the process ends, and its supervisor starts another
        for broker_id, life in list(self.cluster.lives.items()):
            if not life.process.alive or (life.start.done() and not life.is_up):
                life.kill()
                self.cluster.begin(broker_id)
        self.hear()
        for life in self.up:
            self.produce(life)
        if self.rng.chance(0.3):
            self.fault(self.rng.choice(list(self.cluster.lives.values())))

    def produce(self, life: Life) -> None:
        """Send to a broker that believes it is the leader."""
        partition = life.broker.image.topics["t"].partitions[0]
        if self.cluster.lives.get(partition.leader) is not life:
            return
        self.number += 1
        value = b"<%09d>" % self.number
        client = life.connect()
        try:
            client.send(produce_request("t", value, acks=-1), 12)
        except ProcessKilled:
            return
        self.asked.append((life, client, value))

    def hear(self) -> None:
        waiting, self.asked = self.asked, []
        for life, client, value in waiting:
            if client.channel.answers:
                if client.answer().responses[0].partition_responses[0].error_code == 0:
                    self.acknowledged.append(value)
            elif life.process.alive and not client.channel.closed:
                self.asked.append((life, client, value))

    def fault(self, life: Life) -> None:
        world, rng = self.world, self.rng
        kind = rng.randrange(9)
        if kind == 0:
            life.session.cut()
        elif kind == 1:
            life.session.expire()
        elif kind == 2:
            life.process.pause()
            world.loop.call_later(rng.uniform(0.1, 2 * TIMEOUT_MS / 1000), life.process.resume)
        elif kind == 3:
            life.kill()
        elif kind == 4 and life.is_up:
            world.loop.create_task(self.stop(life))
        elif kind > 5:
            source, target = rng.choice(IDS), rng.choice(IDS)
            world.network.block(f"broker-{source}", f"broker-{target}")
            world.loop.call_later(rng.uniform(1.0, 5.0), world.network.unblock_all)
        elif world.node(paths.CONTROLLER) is not None:
            world.write(Delete(paths.CONTROLLER))

    async def stop(self, life: Life) -> None:
        """Stop like SIGTERM."""
        with suppress(ProcessKilled):
            await life.broker.hand_over()
            await life.broker.stop()
            life.kill()

    def end(self) -> None:
        world, cluster = self.world, self.cluster
        world.network.unblock_all()
        for _ in range(300):
            self.rng.chance(0.5)
            world.run(0.2)
            for broker_id, life in list(cluster.lives.items()):
                if not life.process.alive or life.fatal or (life.start.done() and not life.is_up):
                    life.kill()
                    cluster.begin(broker_id)
            if len(self.up) == len(IDS) and cluster.agree() and cluster.in_sync() and cluster.led():
                break
        else:
            raise AssertionError("the cluster does not become whole")
        self.hear()
        world.until(lambda: len(cluster.ends()) == 1)
        leader = cluster.leader()
        topic_id = cluster.lives[1].broker.image.topics["t"].topic_id
        (found,) = fetched(leader.ask(fetch_request((topic_id, 0, 0)), 13)).values()
        data = bytes(found.records)
        assert [value for value in self.acknowledged if data.count(value) != 1] == []


@pytest.mark.promise("Z1")
@pytest.mark.parametrize("seed", range(1, size(2, 9)))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    chaos = Chaos(seed)
    for _ in range(STEPS):
        chaos.step()
    chaos.end()
    assert len(chaos.reigns) > 3
    assert len(chaos.acknowledged) > 30
