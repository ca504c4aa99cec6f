"""Check that after a clean stop `leader-epoch-checkpoint` contains every leader epoch of a log's batches with its start
offset.

Followers are truncated by these entries: a missing one causes them to remove records that both replicas have.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from operator import itemgetter

from ottla.common.platform.disk import Disk
from ottla.record.batch import iter_batches
from ottla.storage.files.checkpoints import read_epochs, read_offsets
from ottla.storage.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    parse_partition_dir,
)
from simulation.checkers import Violation

_PARTITION_DIRECTORY = re.compile(r"(?!__cluster_metadata).+-\d+")


def check_epoch_files(disk: Disk, data_dir: str, host: str) -> int:
    """Returns the number of compared batches. Raises Violation with the first batch that the file contradicts."""
    log_starts = read_offsets(disk, f"{data_dir}/{LOG_START_OFFSET_CHECKPOINT}")
    compared = 0
    for name in filter(_PARTITION_DIRECTORY.fullmatch, disk.listdir(data_dir)):
        directory = f"{data_dir}/{name}"
        log_start = log_starts.get(parse_partition_dir(name) or ("", -1), 0)
        entries = read_epochs(disk, f"{directory}/{LEADER_EPOCH_CHECKPOINT}")
        for file in disk.listdir(directory):
            if not file.endswith(LOG_SUFFIX):
                continue
            for batch in iter_batches(disk.read_bytes(f"{directory}/{file}")):
                if batch.last_offset < log_start:
                    continue
                at = bisect_right(entries, max(batch.base_offset, log_start), key=itemgetter(1))
                known = entries[at - 1][0] if at else None
                if batch.partition_leader_epoch != known:
                    raise Violation(
                        f"{host} stopped cleanly: the batch at {name}@{batch.base_offset} has leader epoch "
                        f"{batch.partition_leader_epoch}, {known} by {LEADER_EPOCH_CHECKPOINT}: {entries}"
                    )
                compared += 1
    return compared
