"""Consume-transform-produce, exactly once: what came out is what went in, once each and in its order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.sim.history.findings import Findings


def judge_copies(
    findings: Findings, inputs: Mapping[int, Sequence[str]], outputs: Mapping[int, Iterable[tuple[str, str]]]
) -> None:
    """Compare partition by partition, both as read_committed reads them at the end, in the order of their offsets.

    `inputs` are values; `outputs` are copies, each with the value that it is a copy of. A copy lies in the partition
    whose number is that of its source. Breaks lost-copy, duplicate-copy, reordered-copy, and phantom for a copy of
    what is not in the input.
    """
    for partition in sorted(inputs.keys() | outputs.keys()):
        places = {value: place for place, value in enumerate(inputs.get(partition, ()))}
        copies: dict[str, str] = {}
        newest = -1
        for copy, source in outputs.get(partition, ()):
            place = places.get(source)
            if place is None:
                findings.broken("phantom", f"{copy} in {partition} is a copy of {source}, which is not in the input")
                continue
            first = copies.setdefault(source, copy)
            if first != copy:
                findings.broken("duplicate-copy", f"{source} in {partition} was copied as {first} and as {copy}")
            elif place < newest:
                findings.broken("reordered-copy", f"{copy} in {partition}, of {source}, comes after later ones")
            newest = max(newest, place)
        for source in places:
            if source not in copies:
                findings.broken("lost-copy", f"{source} in {partition} was not copied")
