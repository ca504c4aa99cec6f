"""Once faults are over every transaction ends: the last stable offset reaches the end of each partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from simulation.history.findings import Findings


class Progress(NamedTuple):
    """Of one partition, as its leader has it."""

    last_stable_offset: int
    end_offset: int


def judge_stable_offsets(findings: Findings, partitions: Mapping[str, Progress], within_s: float) -> None:
    """Break hanging-transaction for each partition that does not read to its end by read_committed.

    To be called `within_s` seconds after the last fault and the last write: no transaction may be open for longer than
    its timeout and what the coordinator needs to end it.
    """
    for name, (last_stable_offset, end_offset) in sorted(partitions.items()):
        if last_stable_offset < end_offset:
            findings.broken(
                "hanging-transaction",
                f"{within_s:.0f} s after the last fault {name} is stable to {last_stable_offset} of {end_offset}",
            )
