"""Metrics of partitions and elections, counted from images and decisions."""

from __future__ import annotations

from ottla.controller.elections import handle_elect_leaders
from ottla.controller.registration import fence_silent
from ottla.controller.statistics import ControllerStatistics
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.server.wiring.controller_gauges import PartitionTally

from .world import SESSION_MS, World

PREFERRED, UNCLEAN = 0, 1


def elected(world: World, kind: int) -> tuple[int, int]:
    """Return (elections, unclean ones) for a request to elect all partitions that need it."""
    statistics = ControllerStatistics(MetricsRegistry())
    request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
    statistics.decided(handle_elect_leaders(world.image, request, world.context()).records)
    return statistics.leader_elections.value, statistics.unclean_elections.value


def test_partitions_are_counted_again_when_they_changed() -> None:
    world = World()
    world.join(1, 2)
    world.create("two", [1, 2], [2, 1])
    world.create("one", [2])
    tally = PartitionTally()
    assert (tally.of(world.image).offline, tally.of(world.image).unpreferred) == (0, 0)
    world.silence(2)
    assert (tally.of(world.image).offline, tally.of(world.image).unpreferred) == (1, 2)


def test_elections_after_a_silent_broker_are_counted() -> None:
    world = World()
    world.join(1, 2)
    world.create("t", [1, 2], [2, 1], [2, 1])
    world.now_ms += SESSION_MS
    world.heartbeat(1)
    statistics = ControllerStatistics(MetricsRegistry())
    statistics.decided(fence_silent(world.image, 2, world.context()).records)
    assert (statistics.leader_elections.value, statistics.unclean_elections.value) == (2, 0)


def test_elections_on_request_are_counted_and_unclean_ones_apart() -> None:
    world = World()
    world.join(1, 2)
    world.create("t", [1, 2])
    world.alter_partition([1])
    assert elected(world, PREFERRED) == (0, 0)
    world.silence(1)
    world.heartbeat(2)
    assert elected(world, UNCLEAN) == (1, 1)
