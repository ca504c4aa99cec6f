"""Content of partitions: records for the history, and comparison of replicas in the files of running nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from ottla.record.batch import BatchView, iter_batches


def stored(folder: Path) -> bytes:
    """All batches of a replica; segment boundaries don't matter."""
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def difference(replicas: Mapping[int, Path]) -> str | None:
    """The first difference between the replicas of a partition, given as their folders by node; None if they are
    equal."""
    contents = {node: stored(folder) for node, folder in replicas.items()}
    (first, expected), *others = contents.items()
    for node, found in others:
        if found != expected:
            name = replicas[first].name
            return f"{name}: {first} and {node} differ at offset {_first_difference(expected, found)}"
    return None


def contents_of(batches: Iterable[BatchView], strict: Collection[str]) -> tuple[dict[int, str], set[int]]:
    """The text of each record by offset, and the offsets of second copies in another producer epoch.

    None of the latter are of producers in `strict`, by their names without `-life`; texts are `producer:number`.
    """
    contents: dict[int, str] = {}
    copies: set[int] = set()
    epochs: dict[str, tuple[int, int]] = {}
    for batch in batches:
        if batch.is_control:
            continue
        epoch = (batch.producer_id, batch.producer_epoch)
        for record in batch.records():
            text = contents[record.offset] = (record.value or b"").partition(b" ")[0].decode()
            before = epochs.get(text)
            epochs[text] = epoch
            if before not in (None, epoch) and _seat(text) not in strict:
                copies.add(record.offset)
    return contents, copies


def _seat(text: str) -> str:
    return text.partition(":")[0].partition("-")[0]


def _first_difference(expected: bytes, found: bytes) -> int | None:
    """None where one of them ends."""
    others = {batch.base_offset: batch.to_bytes() for batch in iter_batches(found)}
    for batch in iter_batches(expected):
        if others.pop(batch.base_offset, None) != batch.to_bytes():
            return batch.base_offset
    return min(others, default=None)
