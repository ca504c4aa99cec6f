"""Small text files next to the logs, in Apache Kafka's formats, and detection of damage in them.

- offset checkpoints: version 0, count, then `topic partition offset` lines. Apache Kafka ignores lines of unknown
  topics. One line is our checksum of the others, since a changed digit looks like any other offset; files without it,
  from Apache Kafka or older versions, are accepted;
- `leader-epoch-checkpoint`: version 0, count, then `epoch start_offset` lines;
- `partition.metadata`: `version: 0` and `topic_id: <22 characters>`;
- `.kafka_cleanshutdown`: `{"version":0,"brokerEpoch":-1}`;
- `.ottla_running`, specific to Ottla: `{"version":0,"brokerEpoch":7,"bootId":"..."}`, and with
  `"incarnationId":"<22 characters>"` while that incarnation registers and has appended nothing; padded with spaces to a
  fixed length, so that it can be overwritten when the disk has no space for a new file.

Invariant: a reader never trusts a count for an allocation, and raises `CheckpointCorruption` with file and line for
anything that is not exactly the format; the caller then falls back to a safe state (a full recovery).

`meta.properties` is in `meta_properties.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from ottla.common.kafka.ids import Uuid, uuid_from_string, uuid_to_string
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.disk import Disk
from ottla.record.checksum import crc32c
from ottla.storage.files.names import TEMPORARY_SUFFIX, TRANSACTION_INDEX_SUFFIX, offset_name, parse_offset

_VERSION = 0
_MAX_LONG = 2**63 - 1
_OWN = ":ottla:"
NO_GAPS_ABOVE: TopicPartition = (f"{_OWN}no-gaps-above", 0)
"""Entry among recovery points, of no topic: offsets missing above them are losses (`log_directory`)."""
_CHECKSUM: TopicPartition = (f"{_OWN}crc32c", 0)
"""Entry in each file with the CRC-32C of all other lines."""
_FEW_BYTES = 256
"""Maximum size of an epoch checkpoint with entries that are remembered."""
_RUNNING_BYTES = 192
"""Limit above the longest `.ottla_running`: an epoch of 19 digits, a boot's UUID of 36 characters, an incarnation's."""


class CheckpointCorruption(Exception):
    """A checkpoint file is not in its format; the message has the file and the problem."""


def format_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the bytes of an offset checkpoint, sorted by topic and partition behind the checksum."""
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for (topic, index), offset in offsets.items():
        by_topic.setdefault(topic, []).append((index, offset))
    # Not one sort of all entries, in which no other thread would run: 60 ms for 50,000 partitions.
    lines = [f"{topic} {index} {offset}" for topic in sorted(by_topic) for index, offset in sorted(by_topic[topic])]
    return _format([_offset_line(_CHECKSUM, _checksum(lines)), *lines])


def _offset_line(key: TopicPartition, offset: int) -> str:
    return f"{key[0]} {key[1]} {offset}"


def _checksum(lines: Sequence[str]) -> int:
    return crc32c("\n".join(lines).encode())


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Read the offsets in a checkpoint, empty without the file. Raises CheckpointCorruption, OSError."""
    return _parse_offset_lines(_read_lines(disk, path), path)


def parse_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """Parse the content of an offset checkpoint at `path`. Raises CheckpointCorruption."""
    return _parse_offset_lines(_parse_lines(data, path), path)


def _parse_offset_lines(lines: list[tuple[int, str]], path: str) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for number, line in lines:
        parts = line.split(" ")
        if len(parts) != 3:
            raise CheckpointCorruption(f"{path}, line {number}: three fields are due")
        offsets[parts[0], _number(path, number, parts[1])] = _number(path, number, parts[2])
    checksum = offsets.pop(_CHECKSUM, None)
    if checksum is not None:
        mark = _offset_line(_CHECKSUM, checksum)
        if checksum != _checksum([line for _, line in lines if line != mark]):
            raise CheckpointCorruption(f"{path}: its checksum does not match")
    return offsets


def aborted_entry(partition: TopicPartition, base_offset: int) -> TopicPartition:
    """Return the key of the recovery point entry with the number of aborted transactions in a segment's index.

    A clean stop writes it; every later write of the file, also by Apache Kafka, drops it. So a start can verify the
    index against it (`log_directory`).
    """
    return f"{_OWN}{offset_name(base_offset, TRANSACTION_INDEX_SUFFIX)}:{partition[0]}", partition[1]


def aborted_counts(points: Mapping[TopicPartition, int]) -> dict[TopicPartition, dict[int, int]]:
    """Return the counts in such entries, by partition and base offset of the segment."""
    counts: dict[TopicPartition, dict[int, int]] = {}
    for (name, index), count in points.items():
        if name.startswith(_OWN):
            file, _, topic = name.removeprefix(_OWN).partition(":")
            base_offset = parse_offset(file, TRANSACTION_INDEX_SUFFIX)
            if base_offset is not None:
                counts.setdefault((topic, index), {})[base_offset] = count
    return counts


def format_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """Return the bytes of a leader epoch checkpoint."""
    return _format([f"{epoch} {start}" for epoch, start in entries])


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]]:
    """Read (epoch, start offset) entries, empty without the file. Raises CheckpointCorruption, OSError."""
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return []
    return parse_epochs(data, path)


def parse_epochs(data: bytes, path: str) -> list[tuple[int, int]]:
    """Parse the content of an epoch checkpoint at `path`. Raises CheckpointCorruption."""
    entries = _intact_epochs(data) if len(data) <= _FEW_BYTES else None
    return _parse_epoch_lines(_parse_lines(data, path), path) if entries is None else list(entries)


@lru_cache(maxsize=1024)
def _intact_epochs(data: bytes) -> Sequence[tuple[int, int]] | None:
    """Return the entries, shared by all logs with the same; None for damaged ones."""
    try:
        return tuple(_parse_epoch_lines(_parse_lines(data, ""), ""))
    except CheckpointCorruption:
        return None


def _parse_epoch_lines(lines: list[tuple[int, str]], path: str) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for number, line in lines:
        parts = line.split(" ")
        if len(parts) != 2:
            raise CheckpointCorruption(f"{path}, line {number}: two fields are due")
        entry = _number(path, number, parts[0]), _number(path, number, parts[1])
        if entries and (entry[0] <= entries[-1][0] or entry[1] < entries[-1][1]):
            raise CheckpointCorruption(f"{path}, line {number}: epochs and offsets must rise")
        entries.append(entry)
    return entries


def _format(lines: list[str]) -> bytes:
    return "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode()


def _read_lines(disk: Disk, path: str) -> list[tuple[int, str]]:
    """Return numbered data lines of a checkpoint; an absent or empty file has none, as in Kafka."""
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return []
    return _parse_lines(data, path)


def _parse_lines(data: bytes, path: str) -> list[tuple[int, str]]:
    if not data:
        return []
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise CheckpointCorruption(f"{path}: not text") from error
    if lines[-1] == "":
        lines.pop()
    if len(lines) < 2 or _number(path, 1, lines[0]) != _VERSION:
        raise CheckpointCorruption(f"{path}: not a checkpoint of version {_VERSION}")
    if _number(path, 2, lines[1]) != len(lines) - 2:
        raise CheckpointCorruption(f"{path}: {lines[1]} lines are announced, {len(lines) - 2} are there")
    return list(enumerate(lines[2:], start=3))


def _number(path: str, line: int, text: str) -> int:
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 20:
        raise CheckpointCorruption(f"{path}, line {line}: {text[:40]!r} is not a number")
    value = int(text)
    if not -_MAX_LONG <= value <= _MAX_LONG:
        raise CheckpointCorruption(f"{path}, line {line}: {text} is out of range")
    return value


def format_partition_metadata(topic_id: Uuid) -> bytes:
    """Return the bytes of `partition.metadata`."""
    return f"version: 0\ntopic_id: {uuid_to_string(topic_id)}".encode()


def read_partition_metadata(disk: Disk, path: str) -> Uuid | None:
    """Read the topic id, None without the file. Raises CheckpointCorruption, OSError."""
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        return _parse_partition_metadata(data)
    except ValueError as error:
        raise CheckpointCorruption(f"{path}: {error}") from error


@lru_cache(maxsize=1024)
def _parse_partition_metadata(data: bytes) -> Uuid:
    """Return the topic id; all partitions of a topic share one object. Raises ValueError."""
    fields: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields[name.strip()] = value.strip()
    if fields.get("version") not in ("0", "1"):
        raise ValueError("no version 0")
    return uuid_from_string(fields.get("topic_id", ""))


def format_clean_shutdown(broker_epoch: int) -> bytes:
    """Return the bytes of `.kafka_cleanshutdown` with the stopped incarnation (KIP-966), -1 if not recorded."""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def parse_clean_shutdown(data: bytes) -> int:
    """Read the broker epoch of the marker; -1 for a marker without one, as older versions wrote it."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        return -1
    epoch = fields.get("brokerEpoch") if isinstance(fields, dict) else None
    return epoch if isinstance(epoch, int) else -1


class LastIncarnation(NamedTuple):
    """Last incarnation that ran on a directory."""

    broker_epoch: int = -1
    """Epoch of the last incarnation with appends; -1 if its records may be lost, or it is unknown."""
    incarnation_id: Uuid | None = None
    """Incarnation that started registration after that, without an append."""


def format_running(running: LastIncarnation, boot_id: str) -> bytes:
    """Return the bytes of `.ottla_running`."""
    fields: dict[str, object] = {"version": 0, "brokerEpoch": running.broker_epoch, "bootId": boot_id}
    if running.incarnation_id is not None:
        fields["incarnationId"] = uuid_to_string(running.incarnation_id)
    return json.dumps(fields, separators=(",", ":")).encode().ljust(_RUNNING_BYTES)


def parse_running(data: bytes, boot_id: str) -> LastIncarnation:
    """Read `.ottla_running` if it is of this boot of the machine; otherwise, or if it is damaged, nothing is known."""
    try:
        fields = json.loads(data)
        if not isinstance(fields, dict) or not boot_id or fields.get("bootId") != boot_id:
            return LastIncarnation()
        epoch, incarnation = fields.get("brokerEpoch"), fields.get("incarnationId")
        if not isinstance(epoch, int):
            return LastIncarnation()
        return LastIncarnation(epoch, uuid_from_string(incarnation) if isinstance(incarnation, str) else None)
    except (ValueError, RecursionError):
        return LastIncarnation()


def write_unsynced(disk: Disk, path: str, data: bytes) -> None:
    """Replace a file without a sync; a caller that needs it durable syncs it later. Raises OSError.

    For files that are cheap to verify and dispensable after a power failure.
    """
    temporary = path + TEMPORARY_SUFFIX
    disk.unlink(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.append((data,))
    finally:
        file.close()
    disk.rename(temporary, path)
