"""Runbooks that messages name, as paths in the repository.

An exception class names its runbook (`OttlaError.runbook`), and the end of a command adds it to the message. Log lines
end with `See` and the path.
"""

from __future__ import annotations

BROKER_DOES_NOT_START = "docs/operations/runbooks/broker-does-not-start.md"
DAMAGED_DATA = "docs/operations/runbooks/damaged-data.md"
DISK_FULL = "docs/operations/runbooks/disk-full.md"
LEADERLESS_PARTITION = "docs/operations/runbooks/leaderless-partition.md"
LOAD_REFUSED = "docs/operations/runbooks/load-refused.md"
LOCKED_OUT_BY_A_SETTING = "docs/operations/runbooks/locked-out-by-a-setting.md"
STRAY_PARTITIONS = "docs/operations/runbooks/stray-partitions.md"


def with_runbook(message: str, runbook: str) -> str:
    """The message, and where `runbook` is not empty a sentence that names it."""
    return f"{message.removesuffix('.')}. See {runbook}." if runbook else message
