"""Gauges of a broker's replicas, from states that the test creates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ottla.metrics.exposition import render
from ottla.metrics.registry import MetricsRegistry
from ottla.record.batch import TRANSACTIONAL_MASK
from ottla.server.wiring.replication_gauges import TALLY_LIFETIME_S, ReplicaTally, register_replication_gauges
from ottla.storage.log.producer_state import LATE_TRANSACTION_BUFFER_MS, ProducerState


class Clock:
    """Does not advance until it is set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def time_ms(self) -> int:
        return int(self.now_s * 1000)


def replica(
    isr: int,
    replicas: int,
    *,
    leader: bool = True,
    failed: bool = False,
    producers: ProducerState | None = None,
) -> Any:
    """A replica with given numbers of in-sync and all replicas, and min.insync.replicas 2."""
    config = SimpleNamespace(min_insync_replicas=2)
    log = SimpleNamespace(failed=failed, config=config, producers=producers or ProducerState(0))
    state = SimpleNamespace(isr=tuple(range(isr)), replicas=tuple(range(replicas)))
    return SimpleNamespace(state=state, is_leader=leader, offline=False, log=log)


class TestReplicas:
    def test_leaders_are_counted_by_their_isr(self) -> None:
        held = [
            replica(3, 3),
            replica(2, 3),
            replica(1, 3),
            replica(0, 3),
            replica(1, 1),
            replica(1, 3, leader=False),
            replica(3, 3, leader=False, failed=True),
        ]
        tally = ReplicaTally(SimpleNamespace(partitions=lambda: held), Clock(), 1000).refreshed()  # type: ignore[arg-type]
        assert (tally.partitions, tally.leaders, tally.offline) == (7, 5, 1)
        assert (tally.under_replicated, tally.under_min_isr, tally.at_min_isr) == (3, 2, 2)

    def test_gauges_of_one_scrape_share_a_pass(self) -> None:
        passes: list[int] = []

        def partitions() -> list[Any]:
            passes.append(1)
            return [replica(1, 1)]

        clock = Clock()
        tally = ReplicaTally(SimpleNamespace(partitions=partitions), clock, 1000)  # type: ignore[arg-type]
        assert [tally.refreshed().leaders for _ in range(5)] == [1] * 5
        assert len(passes) == 1
        clock.now_s += TALLY_LIFETIME_S
        assert (tally.refreshed().leaders, len(passes)) == (1, 2)

    def test_late_transactions_and_producer_ids_are_counted(self) -> None:
        def producers(*last_timestamps: int, attributes: int = TRANSACTIONAL_MASK) -> ProducerState:
            """Producers with a batch of that time each, the first with the oldest transaction."""
            state = ProducerState(0)
            for offset, timestamp in enumerate(last_timestamps):
                header = (offset, 0, 0, 2, 0, attributes, 0, timestamp, timestamp, 100 + offset, 0, 0, 1)
                state.update(header, offset, timestamp)
            return state

        clock = Clock()
        clock.now_s = 10_000.0
        late = 10_000_000 - 1000 - LATE_TRANSACTION_BUFFER_MS - 1
        held = [
            replica(3, 3, producers=producers(late, late + 1)),
            replica(3, 3, producers=producers(late + 1, late)),
            replica(3, 3, producers=producers(late, attributes=0)),
            replica(3, 3, producers=producers(late), leader=False),
            replica(3, 3, producers=producers(-1)),
            replica(3, 3),
        ]
        tally = ReplicaTally(SimpleNamespace(partitions=lambda: held), clock, 1000).refreshed()  # type: ignore[arg-type]
        assert (tally.late_transactions, tally.producer_ids) == (1, 7)


def test_damaged_replicas_are_counted() -> None:
    registry = MetricsRegistry()
    moves = SimpleNamespace(max_lag=lambda: 0, failed_count=lambda: 0)
    fetchers = SimpleNamespace(max_lag=lambda: 0)
    replicas: Any = SimpleNamespace(partitions=list, fetchers=fetchers, repair=[None, None], moves=moves)
    register_replication_gauges(registry, replicas, Clock(), 1000)
    assert "ottla_damaged_replicas 2\n" in b"".join(render(registry)).decode()
