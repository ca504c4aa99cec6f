"""Transactions of 1,000 transactional ids at 1,000 and 5,000 a second, and the highest sustainable rate.

By a generator of raw requests (`transactor/`), in the flow of transactions v2. Each transaction is one record of 100
bytes to each of three partitions, in one Produce request with acks=all, and EndTxn; each id has its own connection and
always an open transaction. A commit is complete when the coordinator accepts the next transaction of the id, which
requires that all markers are written.

The search for the highest rate starts at `LADDER[0]` and increases by a quarter, until more than `BEHIND` of the
transactions are missing at the end or commits take too long. A closed loop does not measure it: of 1,000 that end at
once most are refused and retried, and a broker does that instead of transactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from harness.cells import Axis, Cell, Figure, Profile, memory_figures, profiles
from harness.peers import Server
from replayer.frames import Wire
from transactor import Driven, Shape, drive

SHAPE = Shape(producers=1000, topic="transactions", topic_partitions=30, partitions=3, record_bytes=100)
RATES = (1000, 5000)
LADDER = tuple(round(250 * 1.25**step) for step in range(20))
BEHIND = 0.02
LONGEST_COMPLETE_US = 1e6
"""A growing backlog appears in the commit time before it appears in the rate."""
QUICK = {"transactions/1000"}


def figures(driven: Driven, server: Server) -> list[Figure]:
    per_million = driven.used.cpu_s / max(1, driven.transactions) * 1e6
    return [
        Figure("broker CPU per M transactions", per_million, "s/M transactions", yardstick=True),
        Figure("transactions per second", driven.per_second, "1/s", better="more", yardstick=True),
        *(
            Figure(f"{name} {quantile}", times[quantile], "us", yardstick=name == "commit complete")
            for name, times in (("commit answered", driven.answer_us), ("commit complete", driven.complete_us))
            for quantile in ("p50", "p99")
        ),
        Figure("begins tried again", driven.retries / max(1, driven.transactions), "per transaction"),
        Figure("broker cores used", driven.used.cpu_s / driven.used.seconds, "cores", better="neither"),
        Figure("generator cores used", driven.client_cpu_s / driven.seconds, "cores", better="neither"),
        *memory_figures(server),
    ]


def run(rate: int, server: Server, profile: Profile) -> Sequence[Figure]:
    with Wire(server) as wire:
        wire.create_topic(SHAPE.topic, SHAPE.topic_partitions)
        driven = drive(server, wire, SHAPE, rate=rate, seconds=profile.seconds, warm_up_s=profile.warm_up_s)
    return figures(driven, server)


def run_highest(server: Server, profile: Profile) -> Sequence[Figure]:
    """Returns the figures of the highest sustained rate."""
    kept: list[Figure] = []
    with Wire(server) as wire:
        wire.create_topic(SHAPE.topic, SHAPE.topic_partitions)
        for rate in LADDER:
            driven = drive(server, wire, SHAPE, rate=rate, seconds=profile.seconds, warm_up_s=profile.warm_up_s)
            if driven.per_second < (1 - BEHIND) * rate or driven.complete_us["p99"] > LONGEST_COMPLETE_US:
                break
            kept = figures(driven, server)
    if not kept:
        raise RuntimeError(f"the server does not keep up with {LADDER[0]} transactions a second")
    return kept


def cells() -> list[Cell]:
    found = [
        Cell(
            name=(name := f"transactions/{rate}"),
            run=partial(run, rate),
            profiles=profiles(name, (), QUICK),
            axis=Axis("Broker CPU per transaction", "1,000 transactional ids", rate, "transactions per second"),
        )
        for rate in RATES
    ]
    return [*found, Cell("transactions/highest", run_highest)]
