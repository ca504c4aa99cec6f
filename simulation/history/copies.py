"""Consume-transform-produce, exactly once: the output equals the input, each record once and in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from simulation.history.findings import Findings


def judge_copies(
    findings: Findings, inputs: Mapping[int, Sequence[str]], outputs: Mapping[int, Iterable[tuple[str, str]]]
) -> None:
    """Compare input and output per partition, both as returned by read_committed at the end, in offset order.

    `inputs` are values; `outputs` are copies, each with its source value. A copy is in the partition with the number of
    its source's; a source that its producer sent twice has as many copies. Reports lost-copy, duplicate-copy,
    reordered-copy, and phantom for a copy without a source in the input.
    """
    for partition in sorted(inputs.keys() | outputs.keys()):
        places: dict[str, deque[int]] = {}
        for place, value in enumerate(inputs.get(partition, ())):
            places.setdefault(value, deque()).append(place)
        first_copies: dict[str, str] = {}
        newest = -1
        for copy, source in outputs.get(partition, ()):
            left = places.get(source)
            if left is None:
                findings.broken("phantom", f"{copy} in {partition} is a copy of {source}, which is not in the input")
                continue
            first = first_copies.setdefault(source, copy)
            if not left:
                findings.broken("duplicate-copy", f"{source} in {partition} was copied as {first} and as {copy}")
                continue
            place = left.popleft()
            if place < newest:
                findings.broken("reordered-copy", f"{copy} in {partition}, of {source}, comes after later ones")
            newest = max(newest, place)
        for source, left in places.items():
            if left:
                findings.broken("lost-copy", f"{source} in {partition} was not copied")
