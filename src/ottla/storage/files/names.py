"""Names of files and directories in a log directory, exactly as Apache Kafka writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
KEY_FILTER_SUFFIX = ".keyfilter"
"""Specific to Ottla: filters of the keys in a segment. Apache Kafka ignores files with other suffixes than its own."""
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
"""Suffix of a file that the cleaner is writing."""
SWAP_SUFFIX = ".swap"
"""Suffix of a complete file that will replace others."""
TEMPORARY_SUFFIX = ".tmp"

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, KEY_FILTER_SUFFIX)
"""Files that belong to one segment and are deleted with it; producer snapshots are separate."""

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT = "replication-offset-checkpoint"
LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
RUNNING_FILE = ".ottla_running"
"""Specific to Ottla: the running incarnation, and the boot of the machine."""

SIBLINGS_FILE = ".ottla_siblings"
"""Specific to Ottla: the directories of a ZooKeeper broker."""
CLEANER_REPORT_FILE = ".ottla_cleaner"
"""Ottla's own, for the output of `ottla log cleaner` only."""

METADATA_TOPIC = "__cluster_metadata"
METADATA_DIR = f"{METADATA_TOPIC}-0"
"""Directory of the quorum's partition."""
BOOTSTRAP_CHECKPOINT = "00000000000000000000-0000000000.checkpoint"
"""Files that formatting creates there (KIP-853)."""

DELETE_DIR_SUFFIX = "-delete"
STRAY_DIR_SUFFIX = "-stray"
FUTURE_DIR_SUFFIX = "-future"
MOVED_FROM = ".ottla_moved_from"
"""Specific to Ottla, in a partition directory: the data directory of the log that it replaces."""

PARTITION_FILES = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
PARTITION_SUFFIXES = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX, SWAP_SUFFIX)

_STRAY = re.compile(rf"(.+)\.[0-9a-f]{{32}}{STRAY_DIR_SUFFIX}")
_FUTURE = re.compile(rf"(.+)\.[0-9a-f]{{32}}{FUTURE_DIR_SUFFIX}")
_OFFSET_DIGITS = 20
_FIRST_OFFSET = "0" * _OFFSET_DIGITS
_MAX_NAME_LENGTH = 255
_FEW_NAMES = 8
"""Maximum length of a listing that is remembered."""


@lru_cache(maxsize=16)
def offset_name(offset: int, suffix: str) -> str:
    """Return a name such as `00000000000000000042.log`.

    The names of first segments are shared: in a directory of ten thousand young logs that is 2 MB.
    """
    return f"{offset:020d}{suffix}"


def offsets_by_suffix(listing: Iterable[str]) -> dict[str, list[int]]:
    """Return the offsets in the names of a partition's directory, by suffix, in the order of `listing`.

    A suffix begins at the last dot; a name without a dot is one itself. Names that are not an offset and one of Kafka's
    suffixes leave an empty list, or add nothing to it.
    """
    found: dict[str, list[int]] = {}
    for name in listing:
        suffix = name[max(name.rfind("."), 0) :]
        offsets = found.get(suffix)
        if offsets is None:
            offsets = found[suffix] = []
        offset = parse_offset(name, suffix)
        if offset is not None:
            offsets.append(offset)
    return found


def is_left_over(name: str) -> bool:
    """Return whether a file in a partition's directory was left over by a removed log or an incomplete write.

    A foreign `.tmp` or `.deleted` file must not be removed.
    """
    for mark in (DELETED_SUFFIX, TEMPORARY_SUFFIX):
        if name.endswith(mark):
            whole = name.removesuffix(mark).removesuffix(SWAP_SUFFIX).removesuffix(CLEANED_SUFFIX)
            suffixes = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)
            return whole in PARTITION_FILES or any(parse_offset(whole, suffix) is not None for suffix in suffixes)
    return False


class PartitionListing(NamedTuple):
    """The names in a partition's directory, sorted by purpose."""

    offsets: Mapping[str, Sequence[int]]
    """Offsets in names, by suffix; see `offsets_by_suffix`."""
    left_over: Sequence[str]
    """Files to remove; see `is_left_over`."""
    has_swaps: bool
    """Whether a cleaner swap was interrupted."""
    is_partition: bool
    """Whether it is empty, or any name belongs to a partition."""


def read_listing(listing: Sequence[str]) -> PartitionListing:
    """Return the names by purpose. Directories of young logs all have the same few names, and share one result."""
    return _read_few(tuple(listing)) if len(listing) <= _FEW_NAMES else _read_names(listing)


def _read_names(listing: Sequence[str]) -> PartitionListing:
    return PartitionListing(
        offsets_by_suffix(listing),
        tuple(filter(is_left_over, listing)),
        any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in listing),
        not listing or any(name.endswith(PARTITION_SUFFIXES) or name in PARTITION_FILES for name in listing),
    )


_read_few = lru_cache(maxsize=64)(_read_names)


def parse_offset(name: str, suffix: str) -> int | None:
    """Return the offset in a name like `00000000000000000042.log`; None for other names and suffixes."""
    if not name.endswith(suffix):
        return None
    digits = name[: -len(suffix)]
    if digits == _FIRST_OFFSET:  # of most segments, where there are tens of thousands
        return 0
    if len(digits) != _OFFSET_DIGITS or not digits.isascii() or not digits.isdigit():
        return None
    return int(digits)


def partition_dir(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_dir(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a partition directory's name; None for any other name."""
    topic, dash, digits = name.rpartition("-")
    if not dash or not topic or not digits.isascii() or not digits.isdigit() or len(digits) > 10:
        return None
    if len(digits) > 1 and digits[0] == "0":
        return None
    return topic, int(digits)


def parse_stray_dir(name: str) -> str | None:
    """Return the original name of a stray directory, as far as it fits; None for any other name."""
    match = _STRAY.fullmatch(name)
    return match[1] if match is not None and parse_partition_dir(match[1]) is not None else None


def future_partition_dir(topic: str, partition: int, unique: bytes) -> str:
    """Return `topic-0.<32 hex digits>-future`, for a copy in its new data directory. It may be too long."""
    return f"{topic}-{partition}.{unique.hex()}{FUTURE_DIR_SUFFIX}"


def has_future_dir(topic: str, partition: int) -> bool:
    """Return whether the name of such a directory fits a file system's limit."""
    return len(future_partition_dir(topic, partition, bytes(16))) <= _MAX_NAME_LENGTH


def parse_future_dir(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a copy in its new data directory; None for any other name."""
    match = _FUTURE.fullmatch(name)
    return None if match is None else parse_partition_dir(match[1])


def is_cut_short(name: str) -> bool:
    """Return whether the name of a retired directory may contain a shortened topic."""
    return len(name) >= _MAX_NAME_LENGTH


def retired_partition_dir(topic: str, partition: int, unique: bytes, suffix: str) -> str:
    """Return `topic-0.<32 hex digits>-delete` or `-stray`; a long topic name is cut to the file system's limit."""
    tail = f"-{partition}.{unique.hex()}{suffix}"
    return topic[: _MAX_NAME_LENGTH - len(tail)] + tail
