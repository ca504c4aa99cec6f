"""Data directories in the layout of Apache Kafka, written by our own encoders."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ottla.common.config.feature_levels import METADATA_VERSION_LEVEL
from ottla.common.kafka.ids import Uuid, uuid_to_string
from ottla.metadata.records import FRAME_VERSION, encode_record, versioned
from ottla.protocol.messages.metadata_records import (
    BrokerEndpoint,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from ottla.quorum.control import leader_change, voter_records
from ottla.quorum.raft_types import Voter
from ottla.record.builder import RecordData, build_batch
from ottla.record.varint import write_unsigned_varint
from ottla.storage.files.checkpoints import format_clean_shutdown, format_offsets, format_partition_metadata

NOW_MS = 1_700_000_000_000
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
DIRECTORY_ID: Uuid = b"D" * 16
PREALLOCATED = bytes(64 * 1024)
"""An index that Apache Kafka had open when it was killed is zeros behind its entries, 10 MiB by default."""


def topic_id(name: str) -> Uuid:
    return name.encode().ljust(16, b"-")[:16]


def topic_records(name: str, partitions: int = 1, node_ids: Sequence[int] = (1,), **settings: str) -> list[Any]:
    """Metadata records of a topic; settings with `_` instead of dots."""
    found: list[Any] = [TopicRecord(name=name, topic_id=topic_id(name))]
    for index in range(partitions):
        record = PartitionRecord(
            partition_id=index,
            topic_id=topic_id(name),
            replicas=list(node_ids),
            isr=list(node_ids),
            leader=node_ids[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[DIRECTORY_ID] * len(node_ids),
        )
        found.append(record)
    for key, value in settings.items():
        found.append(ConfigRecord(resource_type=2, resource_name=name, name=key.replace("_", "."), value=value))
    return found


def features(**levels: int) -> list[Any]:
    """Finalized feature levels, with `_` instead of dots."""
    wanted = {"metadata_version": METADATA_VERSION_LEVEL, "group_version": 1, "transaction_version": 2} | levels
    return [FeatureLevelRecord(name=name.replace("_", "."), feature_level=level) for name, level in wanted.items()]


def registration(node_id: int = 1, log_dirs: Sequence[Uuid] = (DIRECTORY_ID,)) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=b"I" * 16,
        broker_epoch=5,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)],
        log_dirs=list(log_dirs),
    )


def unread_record(kind: int) -> bytes:
    """A metadata record in version 0 with an empty body, by its kind alone."""
    out = bytearray()
    for number in (FRAME_VERSION, kind, 0, 0):
        write_unsigned_varint(out, number)
    return bytes(out)


class ApacheDirectory:
    """A combined node, by default the only one; empty before `write`."""

    def __init__(
        self,
        path: Path,
        *,
        node_id: int = 1,
        directory_id: Uuid = DIRECTORY_ID,
        voters: Sequence[int] = (1,),
        voters_in_log: bool = True,
    ) -> None:
        """`voters_in_log`: of kraft.version 1; otherwise the configuration names them, and `quorum-state` by id."""
        self.path = path
        self.metadata = path / "__cluster_metadata-0"
        self._node_id = node_id
        self._directory_id = directory_id
        self._voters = voters
        self._in_log = voters_in_log

    def write(self, records: Iterable[Any], *, values: Sequence[bytes] = (), clean: bool = True) -> None:
        """Everything except partitions, as after a clean stop; `values` are encoded records."""
        self.write_identity(clean=clean)
        self.metadata.mkdir()
        control = [leader_change(self._voters[0], self._voters, NOW_MS)]
        if self._in_log:
            voters = [Voter(each, DIRECTORY_ID, (("CONTROLLER", "localhost", 9093),)) for each in self._voters]
            control += voter_records(voters, NOW_MS)
        data = bytes(build_batch(control, leader_epoch=1, is_control=True))
        encoded = [*(encode_record(versioned(record)) for record in records), *values]
        found = [RecordData(NOW_MS, None, value) for value in encoded]
        data += bytes(build_batch(found, base_offset=len(control), leader_epoch=1))
        self._segment(self.metadata, data, clean=clean)
        (self.metadata / "leader-epoch-checkpoint").write_text("0\n1\n1 0\n")
        state: dict[str, object] = {"leaderId": self._voters[0], "leaderEpoch": 1, "votedId": -1}
        if self._in_log:
            state |= {"votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA", "data_version": 1}
        else:
            state |= {"clusterId": "", "appliedOffset": 0, "data_version": 0}
            state |= {"currentVoters": [{"voterId": each} for each in self._voters]}
        (self.metadata / "quorum-state").write_text(json.dumps(state))

    def write_identity(self, *, clean: bool = True) -> None:
        """The files of each directory."""
        self.path.mkdir()
        (self.path / ".lock").touch()
        directory_id = uuid_to_string(self._directory_id)
        (self.path / "meta.properties").write_text(
            f"#\n#Tue Nov 24 02:54:06 UTC 2026\nnode.id={self._node_id}\ndirectory.id={directory_id}\n"
            f"version=1\ncluster.id={CLUSTER_ID}\n"
        )
        if clean:
            (self.path / ".kafka_cleanshutdown").write_bytes(format_clean_shutdown(5))

    def partition(self, topic: str, index: int, data: bytes, *, clean: bool = True, base_offset: int = 0) -> Path:
        """The directory of a partition with one segment; its path."""
        path = self.path / f"{topic}-{index}"
        path.mkdir(exist_ok=True)
        self._segment(path, data, clean=clean, base_offset=base_offset)
        (path / "partition.metadata").write_bytes(format_partition_metadata(topic_id(topic)))
        (path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        return path

    def recovery_points(self, points: dict[tuple[str, int], int]) -> None:
        (self.path / "recovery-point-offset-checkpoint").write_bytes(format_offsets(points))

    @staticmethod
    def _segment(path: Path, data: bytes, *, clean: bool, base_offset: int = 0) -> None:
        (path / f"{base_offset:020d}.log").write_bytes(data)
        for suffix in ("index", "timeindex"):
            (path / f"{base_offset:020d}.{suffix}").write_bytes(b"" if clean else PREALLOCATED)

    def content(self) -> dict[str, bytes]:
        """Every file with its bytes."""
        files = (path for path in sorted(self.path.rglob("*")) if path.is_file())
        return {str(path.relative_to(self.path)): path.read_bytes() for path in files}


def batch(first: int, count: int, **options: Any) -> bytes:
    """A batch of records `first` to `first + count - 1`."""
    records = [RecordData(NOW_MS + n, b"k%d" % n, b"v%d" % n) for n in range(first, first + count)]
    return bytes(build_batch(records, base_offset=first, leader_epoch=0, **options))
