"""A node of a simulated cluster with two data directories, of which one fails (KIP-858)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.ids import Uuid
from ottla.metadata.image import PartitionImage
from ottla.sim.node import DATA_DIR
from ottla.sim.replication import TOPIC, ClusterOptions, ReplicationSimulation

MORE = "/more"
STEADY_S = 20.0


class FailedDirectory(ReplicationSimulation):
    """The directory of one node without the metadata log fails under load, and is back after a restart."""

    def _make_nodes(self, settings: Mapping[str, str]) -> None:
        super()._make_nodes({**settings, "log.dirs": f"{DATA_DIR},{MORE}"})

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

    def _state(self, index: int) -> PartitionImage:
        return self.view.newest().topics[TOPIC].partitions[index]

    def _replicas(self, number: int, directory: Uuid) -> list[int]:
        partitions = self.view.newest().topics[TOPIC].partitions
        return [index for index, state in partitions.items() if state.directory_of(number) == directory]


def test_a_directory_that_fails_takes_its_partitions_only() -> None:
    for seed in range(1, 4):
        outcome = FailedDirectory(seed, ClusterOptions(nodes=3)).run()
        report = "\n".join(outcome.history[-60:])
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}\n{report}"
        assert outcome.acknowledged > 100
