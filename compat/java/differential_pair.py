"""Sends the same requests to Apache Kafka and Ottla on fresh directories, and compares the responses field by field.

Values that differ by nature are normalized first. Topic ids become names; ports, current times, session ids and paths
become placeholders; producer ids are numbered in order of appearance; throttle times are removed. Lists are sorted by
the names of their items, because Apache Kafka responds in hash map order. Batches of producers, including markers, are
decoded first. All other values are compared unchanged.
"""

from __future__ import annotations

import dataclasses
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from apache import Kafka
from differential_records import shown
from differential_wire import CLOSED, SILENT, Connection, User, decode, encode, header

from ottla.testing import Broker

SETTLE_TIMEOUT_S = 120.0
SETTLE_POLL_S = 0.005
RECENT_MS = 3_600_000
VERSION_SUFFIX = re.compile(r"-v\d+\b")
"""Suffix of the topic that a case creates for each version; without it the differences of all versions are equal."""

NO_PRODUCER = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}

COORDINATOR_PARTITIONS = 3
CONFIGS = {
    "node.id": "1",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "86400000",
    "producer.id.expiration.check.interval.ms": "86400000",
    "group.initial.rebalance.delay.ms": "3000",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": str(COORDINATOR_PARTITIONS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "offsets.topic.num.partitions": str(COORDINATOR_PARTITIONS),
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
"""Configs of both brokers; the old records of the test cases are retained, and so are their producers."""

NAMES = ("name", "topic", "topic_name", "topic_id", "partition_index", "partition", "index", "resource_type")
ENTITY_KEYS = ("entity_type", "entity", "user")
MORE_NAMES = (
    *("resource_name", "key", "node_id", "broker_id", "api_key", "feature", "source", *ENTITY_KEYS),
    *(
        "group_id",
        "principal",
        "principal_name",
        "operation",
        "permission_type",
        "host",
        "transactional_id",
        "producer_id",
        "base_offset",
    ),
)


OWN_SETTINGS = "ottla."
"""Prefix of settings that Apache Kafka does not have."""


class TopicId(NamedTuple):
    """A placeholder in a request for the id that each broker assigned to a topic."""

    name: str


class Each(NamedTuple):
    """A separate value for each broker."""

    kafka: Any
    ottla: Any

    def __getitem__(self, key: Any) -> Any:
        return Each(self.kafka[key], self.ottla[key])


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """One field that differs; `case` and `path` locate it."""

    api: str
    version: int
    case: str
    path: str
    kafka: Any
    ottla: Any


class _Side:
    """One broker, and the normalization of its responses."""

    def __init__(self, name: str, port: int, asking_port: int, data_dir: Path) -> None:
        self.name = name
        self.port = port
        self.data_dir = data_dir
        self.connection = Connection(port)
        self.asking_port = asking_port
        self._of_users: dict[User, Connection] = {}
        self.ids: dict[str, uuid.UUID] = {}
        self._producers: dict[int, str] = {}
        self.cluster_id = ""

    def connection_of(self, user: User) -> Connection:
        """Returns the connection that is authenticated as `user`."""
        return self._of_users.setdefault(user, Connection(self.asking_port, user))

    def resolve(self, value: Any) -> Any:
        """Returns `value` with topic ids and per-broker values filled in."""
        if isinstance(value, TopicId):
            return self.ids[value.name]
        if isinstance(value, Each):
            return self.resolve(getattr(value, self.name))
        if isinstance(value, Mapping):
            return {name: self.resolve(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.resolve(item) for item in value]
        return value

    def normal(self, value: Any, name: str = "") -> Any:
        """Returns `value` with values that differ by nature removed or replaced."""
        if isinstance(value, dict):
            return {key: self.normal(item, key) for key, item in value.items() if key != "throttle_time"}
        if isinstance(value, list):
            shared = (each for each in value if name != "configs" or not each["name"].startswith(OWN_SETTINGS))
            return sorted((self.normal(item, name) for item in shared), key=_order)
        if isinstance(value, uuid.UUID):
            names = [topic for topic, known in self.ids.items() if known == value]
            return f"id of {names[0]}" if names else "id" if value.version else str(value)
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, bytes) and name == "records":
            return self.normal(shown(value), "batches")
        if name == "cluster_id" and value == self.cluster_id:
            return "cluster id"
        if isinstance(value, str):
            text = value.replace(str(self.data_dir), "<data>")
            text = re.sub(rf"(?<!\d){self.port}(?!\d)", "<port>", text)  # not within a longer number
            return VERSION_SUFFIX.sub("", text)
        if isinstance(value, int):
            if value in (self.port, self.asking_port):
                return "<port>"
            if name == "producer_id" and value > 0:
                return self._producers.setdefault(value, f"<producer {len(self._producers)}>")
            if name in ("session_id", "total_bytes", "usable_bytes") and value > 0:
                return f"<{name}>"
            if abs(value - time.time() * 1000) < RECENT_MS:
                return "<now>"
        return value


def _order(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    return repr([(name, value[name]) for name in (*NAMES, *MORE_NAMES) if name in value])


class Pair:
    """Both brokers; `ask` sends one request to each and records the differences."""

    def __init__(self, classpath: str, more: Mapping[str, str] | None = None) -> None:
        """`more` configs apply to both brokers and include those of a listener ASKING."""
        asking = more is not None
        configs = CONFIGS | dict(more or {})
        self._kafka = Kafka(classpath, configs, voters_in_log=asking, asking=asking)
        listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,ASKING://127.0.0.1:0"} if asking else {}
        self._ottla = Broker(configs=configs | listeners)
        self._barriers = 0
        self._coordinators = False
        self.differences: list[Difference] = []
        self.asked = 0

    def __enter__(self) -> Pair:
        try:
            self._kafka.format()
            self._kafka.start()
            self._ottla.start()
            asking = self._ottla.ready["listeners"].get("ASKING", self._ottla.bootstrap_servers)
            asking_port = int(asking.rpartition(":")[2])
            self.kafka = _Side("kafka", self._kafka.port, self._kafka.asking_port, self._kafka.data_dirs[0])
            self.ottla = _Side("ottla", self._ottla.port, asking_port, self._ottla.data_dir)
            for side in self.sides:
                self._await_producer_ids(side)
                side.cluster_id = self.request_one(side, "describe_cluster", 0, {})["cluster_id"]
            self.settle()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._kafka.close()
        self._ottla.close(check=False)

    @property
    def sides(self) -> tuple[_Side, _Side]:
        return (self.kafka, self.ottla)

    @contextmanager
    def acting(self, user: User | None) -> Iterator[None]:
        """Requests in this context are sent as `user`, or without authentication for None."""
        own = [side.connection for side in self.sides]
        for side in self.sides:
            side.connection = Connection(side.asking_port) if user is None else side.connection_of(user)
        try:
            yield
        finally:
            if user is None:
                for side in self.sides:
                    side.connection.close()
            for side, connection in zip(self.sides, own, strict=True):
                side.connection = connection

    def _await_producer_ids(self, side: _Side) -> None:
        """Wait for the first producer id: Apache Kafka initially responds that it has none yet."""

        def served() -> bool:
            return bool(self.request_one(side, "init_producer_id", 4, NO_PRODUCER)["error_code"] == "none")

        wait_for(served, f"{side.name} gives producer ids")

    def await_coordinators(self) -> None:
        """Wait until both brokers have created the internal topics and loaded all their partitions."""
        if self._coordinators:
            return
        new = {"transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1}
        for side in self.sides:
            for kind in (0, 1):
                found = {"key_type": kind, "coordinator_keys": ["first"]}

                def made(side: _Side = side, found: dict[str, Any] = found) -> bool:
                    answer = self.request_one(side, "find_coordinator", 4, found)
                    return bool(answer["coordinators"][0]["error_code"] == "none")

                wait_for(made, f"{side.name} has a topic of coordinators")
            for number in range(2 * COORDINATOR_PARTITIONS):
                wait_for(lambda: self._loaded(side, new, number), f"{side.name} loads its coordinators")  # noqa: B023
        self._coordinators = True

    def _loaded(self, side: _Side, new: dict[str, Any], number: int) -> bool:
        """Names that differ only in the last letter cover all partitions."""
        given = self.request_one(side, "init_producer_id", 4, new | {"transactional_id": f"first-{number}"})
        groups = {"groups": [{"group_id": f"first-{number}", "topics": []}]}
        read = self.request_one(side, "offset_fetch", 8, groups)
        return bool(given["error_code"] == "none" and read["groups"][0]["error_code"] == "none")

    def request_one(self, side: _Side, api: str, version: int, body: Mapping[str, Any]) -> Any:
        """Send one request to one broker, without comparison."""
        side.connection.send(encode(api, version, side.resolve(body)))
        frame = side.connection.receive()
        return CLOSED if frame is None else decode(api, version, frame)

    def ask(
        self,
        case: str,
        api: str,
        version: int,
        body: Mapping[str, Any],
        *,
        answer_version: int | None = None,
        client_id: str | None = "differential",
    ) -> Each:
        """Send the same request to both brokers; returns their responses, or CLOSED."""
        frames = [encode(api, version, side.resolve(body), client_id=client_id) for side in self.sides]
        return self._exchange(case, api, version, frames, version if answer_version is None else answer_version)

    def ask_unknown(self, case: str, api: str, key: int, version: int, *, answer_version: int, flexible: bool) -> Each:
        """Send a request with only a valid header, for versions and keys without a codec."""
        frame = header(key, version, flexible=flexible)
        return self._exchange(case, api, version, [frame, frame], answer_version)

    def _exchange(self, case: str, api: str, version: int, frames: list[bytes], answer_version: int) -> Each:
        for side, frame in zip(self.sides, frames, strict=True):
            side.connection.send(frame)
        answers = []
        for side in self.sides:
            try:
                answer = side.connection.receive()
            except TimeoutError:
                answers.append(SILENT)
                continue
            answers.append(CLOSED if answer is None else decode(api, answer_version, answer))
        self.asked += 1
        found = _compare(self.kafka.normal(answers[0]), self.ottla.normal(answers[1]), "")
        for path, kafka, ottla in found:
            self.differences.append(Difference(api, version, case, path, kafka, ottla))
        return Each(*answers)

    def silent(self, case: str, api: str, version: int, body: Mapping[str, Any]) -> None:
        """Send a request without a response: the next response must be that of an ApiVersions request sent after it."""
        for side in self.sides:
            side.connection.send(encode(api, version, side.resolve(body)))
        self.ask(f"{case}, then ApiVersions", "api_versions", 0, {})

    def create(self, *names: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create topics on both brokers, and record their ids."""
        pairs = [{"name": name, "value": value} for name, value in (configs or {}).items()]
        topics = [
            {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": pairs} for name in names
        ]
        for side in self.sides:
            answer = self.request_one(side, "create_topics", 7, {"topics": topics, "timeout": 60_000})
            if any(topic["error_code"] != "none" for topic in answer["topics"]):
                raise RuntimeError(f"{side.name} refused a topic of the test: {answer}")
        self.settle()

    def settle(self) -> None:
        """Wait until a newly created topic returns offsets: all earlier changes are then applied too."""
        self._barriers += 1
        name = f"barrier-{self._barriers}"
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
        asked = {"replica_id": -1, "topics": [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}]}
        for side in self.sides:
            self.request_one(side, "create_topics", 7, {"topics": [topic], "timeout": 60_000})

            def serves(side: _Side = side) -> bool:
                answer = self.request_one(side, "list_offsets", 7, asked)
                return bool(answer["topics"][0]["partitions"][0]["error_code"] == "none")

            wait_for(serves, f"{side.name} serves {name}")
            self.request_one(side, "delete_topics", 4, {"topic_names": [name], "timeout": 60_000})

            def gone(side: _Side = side) -> bool:
                metadata = self.request_one(side, "metadata", 12, {"topics": None})
                for known in metadata["topics"]:
                    side.ids[known["name"]] = known["topic_id"]
                return all(known["name"] != name for known in metadata["topics"])

            wait_for(gone, f"{side.name} forgets {name}")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Poll until `condition` holds; raises RuntimeError on a timeout."""
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError(f"timed out waiting for: {what}")
        time.sleep(SETTLE_POLL_S)


def _compare(kafka: Any, ottla: Any, path: str) -> Iterable[tuple[str, Any, Any]]:
    if isinstance(kafka, dict) and isinstance(ottla, dict):
        for name in {**kafka, **ottla}:
            here = f"{path}.{name}" if path else name
            yield from _compare(kafka.get(name, "missing"), ottla.get(name, "missing"), here)
    elif isinstance(kafka, list) and isinstance(ottla, list):
        if all(isinstance(item, dict) for item in (*kafka, *ottla)) and (kafka or ottla):
            yield from _compare_items(kafka, ottla, path)
        elif kafka != ottla:
            yield path, kafka, ottla
    elif type(kafka) is not type(ottla) or kafka != ottla:
        yield path, kafka, ottla


def _compare_items(kafka: list[Any], ottla: list[Any], path: str) -> Iterable[tuple[str, Any, Any]]:
    """Compare items with equal names; the n-th of several with the n-th."""
    left, right = _labelled(kafka), _labelled(ottla)
    for label in sorted({*left, *right}):
        here = f"{path}[{label}]"
        if label not in right:
            yield here, left[label], "missing"
        elif label not in left:
            yield here, "missing", right[label]
        else:
            yield from _compare(left[label], right[label], here)


def _labelled(items: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for item in items:
        words = [str(item[name]) for name in (*NAMES, *MORE_NAMES) if name in item and item[name] is not None]
        label = " ".join(words)
        while label in found:
            label += "+"
        found[label] = item
    return found
