"""After the faults every transaction ends: the last stable offset reaches the end of each partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from simulation.history.findings import Findings


class Progress(NamedTuple):
    """Offsets of one partition, from its leader."""

    last_stable_offset: int
    end_offset: int


def judge_stable_offsets(findings: Findings, partitions: Mapping[str, Progress], within_s: float) -> None:
    """Report hanging-transaction for each partition that read_committed can't read to its end.

    To be called `within_s` seconds after the last fault and the last write: the transaction timeout, plus the
    coordinator's time to end a transaction.
    """
    for name, (last_stable_offset, end_offset) in sorted(partitions.items()):
        if last_stable_offset < end_offset:
            findings.broken(
                "hanging-transaction",
                f"{within_s:.0f} s after the last fault {name} is stable to {last_stable_offset} of {end_offset}",
            )
