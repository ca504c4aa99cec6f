"""Nodes of a simulated cluster with two data directories, of which one fails, or replicas move (KIP-858, KIP-113)."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from functools import partial

import pytest
from simulation.node import DATA_DIR, SimNode
from simulation.replication import TOPIC, ClusterOptions, ReplicationSimulation

from ottla.common.errors import InvariantError
from ottla.common.kafka.ids import Uuid
from ottla.metadata.image import PartitionImage

MORE = "/more"
STEADY_S = 20.0


class TwoDirectories(ReplicationSimulation):
    """Each node has two."""

    def _make_nodes(self, settings: Mapping[str, str]) -> None:
        super()._make_nodes({**settings, "log.dirs": f"{DATA_DIR},{MORE}"})

    def _state(self, index: int) -> PartitionImage:
        return self.view.newest().topics[TOPIC].partitions[index]

    def _replicas(self, number: int, directory: Uuid) -> list[int]:
        partitions = self.view.newest().topics[TOPIC].partitions
        return [index for index, state in partitions.items() if state.directory_of(number) == directory]


class FailedDirectory(TwoDirectories):
    """The directory of one node without the metadata log fails under load, and is back after a restart."""

    def _run(self) -> None:
        for node in self.nodes:
            node.start()
        self._set_up()
        self._wait_for_replicas()
        watch = self._begin(self._watch())
        self._begin_clients()
        self.loop.run_until(self.loop.time() + STEADY_S)
        node = self.nodes[1]
        number = node.config.node_id
        kept = node.directory_id
        (lost,) = set(self.view.newest().brokers[number].log_dirs) - {kept}
        in_lost, in_kept = self._replicas(number, lost), self._replicas(number, kept)
        assert in_lost
        assert in_kept
        node.disk.failed_directory = MORE
        self._wait(
            "its directory is not given up",
            60,
            lambda: (
                self.view.newest().brokers[number].log_dirs == (kept,)
                and not any(number in self._state(index).isr for index in in_lost)
            ),
        )
        self.loop.run_until(self.loop.time() + STEADY_S)
        assert all(self._state(index).leader not in (number, -1) for index in in_lost)
        assert all(number in self._state(index).isr for index in in_kept)
        assert (node.running, node.starts) == (True, 1)
        node.disk.failed_directory = ""
        node.kill()
        self._calm()
        self._recover()
        watch.cancel()
        self._compare_replicas()
        assert self._replicas(number, lost) == in_lost


class MovedReplicas(TwoDirectories):
    """Replicas move to and fro under load, while their nodes die at any change of the disk, or a directory fails."""

    rounds = 6

    def _run(self) -> None:
        for node in self.nodes:
            node.start()
        self._set_up()
        self._wait_for_replicas()
        watch = self._begin(self._watch())
        self._begin_clients()
        self.loop.run_until(self.loop.time() + STEADY_S)  # the group's topic exists
        rng = self._rng.fork("moves")
        moved = 0
        for number in range(self.rounds):
            node = self.nodes[number % len(self.nodes)]
            self._wait("the node does not serve", 120, partial(self._serves, node))
            before = self._places(node)
            for index in sorted(before):
                if rng.randrange(2):
                    self._begin_move(node, index, MORE if before[index] == DATA_DIR else DATA_DIR)
            end = rng.randrange(4)
            if end == 0:
                node.kill_in_disk_change(rng.randrange(400))
            self.loop.run_until(self.loop.time() + rng.uniform(0.0, 3.0))
            if end == 1:
                node.kill(power=True)
            elif end == 2:
                node.disk.failed_directory = MORE
                self.loop.run_until(self.loop.time() + STEADY_S)
                node.disk.failed_directory = ""
                node.kill()
            self.loop.run_until(self.loop.time() + STEADY_S)
            self._wait("the node does not come back", 120, partial(self._serves, node))
            self._wait("moves do not end", 120, partial(self._rests, node))
            self._wait_for_replicas()
            after = self._places(node)
            moved += sum(before[index] != after[index] for index in before)
            self._wait("the metadata has another place", 60, partial(self._announced, node))
        assert moved > self.rounds
        self._calm()
        self._recover()
        watch.cancel()
        self._compare_replicas()

    def _serves(self, node: SimNode) -> bool:
        try:
            return node.broker is not None and len(self._places(node)) == self.options.partitions
        except InvariantError:  # it was not started yet
            return False

    def _places(self, node: SimNode) -> dict[int, str]:
        partitions = node.broker.parts.replicas.partitions()
        return {each.index: posixpath.dirname(each.log.directory) for each in partitions if each.topic == TOPIC}

    def _begin_move(self, node: SimNode, index: int, path: str) -> None:
        parts = node.broker.parts
        (directory,) = [each for each in parts.logs.directories if each.path == path]
        parts.replicas.moves.begin(parts.replicas.find(TOPIC, index), directory)

    def _rests(self, node: SimNode) -> bool:
        return self._serves(node) and not list(node.broker.parts.replicas.moves.copies())

    def _announced(self, node: SimNode) -> bool:
        if not self._serves(node):
            return False
        number, ids = node.config.node_id, {each.path: each.directory_id for each in node.broker.parts.logs.directories}
        return all(self._state(index).directory_of(number) == ids[path] for index, path in self._places(node).items())


@pytest.mark.promise("D13")
def test_replicas_that_move_keep_all_promises() -> None:
    for seed in (1, 3):
        outcome = MovedReplicas(seed, ClusterOptions(nodes=3, partitions=6)).run()
        report = "\n".join(outcome.history[-60:])
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}\n{report}"
        assert outcome.acknowledged > 100


@pytest.mark.promise("D9")
def test_a_directory_that_fails_takes_its_partitions_only() -> None:
    for seed in range(1, 4):
        outcome = FailedDirectory(seed, ClusterOptions(nodes=3)).run()
        report = "\n".join(outcome.history[-60:])
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}\n{report}"
        assert outcome.acknowledged > 100
