"""Formatting of a node's data directory: node id, initial voters and feature levels (KIP-1170).

Voters and levels are in the bootstrap snapshot `00000000000000000000-0000000000.checkpoint`, which is identical in the
directories of all initial voters. A directory without voters belongs to an observer, or to a cluster whose
configuration names the voters. Invariant: `meta.properties` is written last, so a directory that contains it is
formatted completely. A single node formats itself at its first start.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ottla.common.config.config_def import MAX_INT
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_from_string, uuid_to_string
from ottla.common.platform.clock import Clock, Rng
from ottla.common.platform.disk import Disk
from ottla.common.platform.disk_refusal import disk_refusal
from ottla.common.platform.endpoint import BRACKETED_HOST
from ottla.metadata.records import ApiMessageAndVersion
from ottla.quorum.metadata_log import DIRECTORY
from ottla.quorum.raft_types import Voter
from ottla.quorum.snapshot_file import BOOTSTRAP, bootstrap_snapshot
from ottla.storage.files.directories import make_durably, require_unused
from ottla.storage.files.meta_properties import MetaProperties, random_id, write_meta_properties
from ottla.storage.files.names import META_PROPERTIES

_CONTROLLER = re.compile(rf"([0-9]{{1,10}})@(?:{BRACKETED_HOST}|([^:\[\]/@]+)):([0-9]{{1,5}}):([A-Za-z0-9_-]{{22}})")


def parse_initial_controllers(text: str, listener_name: str) -> tuple[Voter, ...]:
    """The voters of `ID@HOST:PORT:DIRECTORYID,...`, reached on `listener_name`; raises OperatorError."""
    voters: list[Voter] = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = _CONTROLLER.fullmatch(item)
        if match is None or int(match.group(1)) > MAX_INT or not 0 < int(match.group(4)) <= 65535:
            raise OperatorError(
                f"{item!r} is not a controller of the form ID@HOST:PORT:DIRECTORYID, with an id up to {MAX_INT} and a "
                "directory id of 22 characters"
            )
        host = match.group(2) or match.group(3)
        directory_id = uuid_from_string(match.group(5))
        voters.append(Voter(int(match.group(1)), directory_id, ((listener_name, host, int(match.group(4))),)))
    if not voters:
        raise OperatorError(
            "--initial-controllers is empty; specify the initial voters as ID@HOST:PORT:DIRECTORYID,..."
        )
    if len({voter.voter_id for voter in voters}) < len(voters):
        raise OperatorError("two initial controllers have the same id; each node votes once")
    if len({voter.directory_id for voter in voters}) < len(voters):
        raise OperatorError("two initial controllers have the same directory id; each directory has its own")
    return tuple(voters)


def format_directory(
    disk: Disk,
    clock: Clock,
    rng: Rng,
    data_dir: str,
    *,
    node_id: int,
    cluster_id: str,
    directory_id: str | None = None,
    voters: Sequence[Voter] = (),
    records: Sequence[ApiMessageAndVersion] = (),
) -> MetaProperties:
    """Format `data_dir`; blocks. Without `directory_id` the one of this node's voter is used, or a random one.

    `records` replace the initial records that the first active controller of a new cluster would write.

    Raises OperatorError if the directory is formatted already or contains files of a node, if the voter with this id
    has another directory, and for disk errors.
    """
    own = next((uuid_to_string(voter.directory_id) for voter in voters if voter.voter_id == node_id), None)
    if own is not None and directory_id not in (None, own):
        raise OperatorError(f"node {node_id} is named as a controller with directory {own}, not {directory_id}")
    meta = MetaProperties(cluster_id, node_id, directory_id or own or random_id(rng))
    refuse_formatted(disk, (data_dir,))
    try:
        make_durably(disk, f"{data_dir}/{DIRECTORY}")
        if voters or records:
            data = bootstrap_snapshot(voters, records, clock.time_ms())
            disk.write_atomic(f"{data_dir}/{DIRECTORY}/{BOOTSTRAP.file_name}", data)
    except OSError as error:
        raise disk_refusal(error, data_dir) from error
    write_meta_properties(disk, data_dir, meta)
    return meta


def refuse_formatted(disk: Disk, data_dirs: Sequence[str]) -> None:
    """Raise OperatorError for a directory that is formatted, contains files of a node, or can't be read."""
    for path in data_dirs:
        try:
            if disk.exists(f"{path}/{META_PROPERTIES}"):
                raise OperatorError(f"the data directory {path} is formatted already")
            require_unused(disk, path)
        except OSError as error:
            raise disk_refusal(error, path) from error
