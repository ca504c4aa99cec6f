"""Names of files and directories in a log directory, exactly as Apache Kafka writes them."""

from __future__ import annotations

import re
from functools import lru_cache

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
DELETED_SUFFIX = ".deleted"
CLEANED_SUFFIX = ".cleaned"
"""Behind the name of a file that the cleaner still writes."""
SWAP_SUFFIX = ".swap"
"""Behind the name of a file that is complete and will take the place of others."""
TEMPORARY_SUFFIX = ".tmp"

SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""The files that belong to one segment and go with it; producer snapshots have a life of their own."""

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
"""Ottla's own: the incarnation that runs here, and the boot of the machine in which it does."""

SIBLINGS_FILE = ".ottla_siblings"
"""Ottla's own: the directories that a broker on ZooKeeper had."""
CLEANER_REPORT_FILE = ".ottla_cleaner"
"""Ottla's own, for the output of `ottla log cleaner` only."""

METADATA_TOPIC = "__cluster_metadata"
METADATA_DIR = f"{METADATA_TOPIC}-0"
"""The directory of its one partition, which is the quorum's."""
BOOTSTRAP_CHECKPOINT = "00000000000000000000-0000000000.checkpoint"
"""All that formatting leaves there (KIP-853)."""

DELETE_DIR_SUFFIX = "-delete"
STRAY_DIR_SUFFIX = "-stray"
FUTURE_DIR_SUFFIX = "-future"
MOVED_FROM = ".ottla_moved_from"
"""Ottla's own, in the directory of a partition: it takes the place of the one in that data directory."""

PARTITION_FILES = (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA)
PARTITION_SUFFIXES = (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, DELETED_SUFFIX, CLEANED_SUFFIX, TEMPORARY_SUFFIX, SWAP_SUFFIX)

_STRAY = re.compile(rf"(.+)\.[0-9a-f]{{32}}{STRAY_DIR_SUFFIX}")
_FUTURE = re.compile(rf"(.+)\.[0-9a-f]{{32}}{FUTURE_DIR_SUFFIX}")
_OFFSET_DIGITS = 20
_MAX_NAME_LENGTH = 255


@lru_cache(maxsize=16)
def offset_name(offset: int, suffix: str) -> str:
    """`00000000000000000042.log`.

    The names of first segments are shared: in a directory of ten thousand young logs that is 2 MB.
    """
    return f"{offset:020d}{suffix}"


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


def parse_offset(name: str, suffix: str) -> int | None:
    """The offset in a name like `00000000000000000042.log`; None when it is not one with this suffix."""
    if not name.endswith(suffix):
        return None
    digits = name[: -len(suffix)]
    if len(digits) != _OFFSET_DIGITS or not digits.isascii() or not digits.isdigit():
        return None
    return int(digits)


def partition_dir(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_dir(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a partition directory's name; None for any other name."""
    topic, dash, digits = name.rpartition("-")
    if not dash or not topic or not digits.isascii() or not digits.isdigit() or len(digits) > 10:
        return None
    if len(digits) > 1 and digits[0] == "0":
        return None
    return topic, int(digits)


def parse_stray_dir(name: str) -> str | None:
    """The name that a directory had before it was set aside, as far as it fits; None for any other name."""
    match = _STRAY.fullmatch(name)
    return match[1] if match is not None and parse_partition_dir(match[1]) is not None else None


def future_partition_dir(topic: str, partition: int, unique: bytes) -> str:
    """`topic-0.<32 hex digits>-future`: of a log that is on its way to its data directory. It may be too long."""
    return f"{topic}-{partition}.{unique.hex()}{FUTURE_DIR_SUFFIX}"


def has_future_dir(topic: str, partition: int) -> bool:
    """Return whether the name of such a directory fits a file system's limit."""
    return len(future_partition_dir(topic, partition, bytes(16))) <= _MAX_NAME_LENGTH


def parse_future_dir(name: str) -> tuple[str, int] | None:
    """(topic, partition) of a log that is on its way to its data directory; None for any other name."""
    match = _FUTURE.fullmatch(name)
    return None if match is None else parse_partition_dir(match[1])


def is_cut_short(name: str) -> bool:
    """Return whether the name of a retired directory may contain a shortened topic."""
    return len(name) >= _MAX_NAME_LENGTH


def retired_partition_dir(topic: str, partition: int, unique: bytes, suffix: str) -> str:
    """`topic-0.<32 hex digits>-delete` or `-stray`; a long topic name is cut so that it fits a file system's limit."""
    tail = f"-{partition}.{unique.hex()}{suffix}"
    return topic[: _MAX_NAME_LENGTH - len(tail)] + tail
