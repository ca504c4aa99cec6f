"""Differential cases of the other APIs: versions, metadata, topics, partitions, configs, features, the cluster."""

from __future__ import annotations

import uuid
from typing import Any

from differential_data import batch, produce_body
from differential_pair import Each, Pair, TopicId
from differential_wire import KEYS

NO_ID = uuid.UUID(int=0)
UNKNOWN_ID = uuid.UUID("11111111-2222-4333-8444-555555555555")
BAD_NAMES = ("", ".", "..", "bad name!", "x" * 250, "sl/ash", "ümlaut", "new\nline")
FIRST_VERSION_WITHOUT_AUTO_CREATION = 4
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

# -- ApiVersions and unknown versions ----------------------------------------------------------------------------------


def api_versions(pair: Pair, versions: list[int]) -> None:
    """Client software names and versions, client ids, and unsupported versions."""
    for version in versions:
        for name, software in (("a", "1"), ("", "1"), ("a", ""), ("bad name!", "1"), ("a.b-c", "1_0"), ("-a", "b-")):
            body = {"client_software_name": name, "client_software_version": software}
            pair.ask(f"software {name!r} {software!r}", "api_versions", version, body)
        body = {"client_software_name": "a", "client_software_version": "1"}
        for client_id in (None, "", "ü", "x" * 300):
            pair.ask(f"client id {str(client_id)[:5]!r}", "api_versions", version, body, client_id=client_id)
        if version >= 5:
            own = Each(pair.kafka.cluster_id, pair.ottla.cluster_id)
            for cluster_id in (None, "", "another", own):
                for node_id in (1, 2, -1):
                    meant = body | {"cluster_id": cluster_id, "node_id": node_id}
                    words = "own" if cluster_id is own else repr(cluster_id)
                    pair.ask(f"cluster {words} node {node_id}", "api_versions", version, meant)
    for version in (6, 7, 100, -1):
        pair.ask_unknown(f"version {version}", "api_versions", 18, version, answer_version=0, flexible=version > 2)


def unknown_versions(pair: Pair, served: dict[str, list[int]]) -> None:
    """One version below and one above the supported range, and unknown API keys."""
    for api, versions in sorted(served.items()):
        if api == "api_versions":
            continue
        for version in (versions[0] - 1, versions[-1] + 1, 99, -1):
            pair.ask_unknown(
                f"version {version}", api, KEYS[api], version, answer_version=versions[-1], flexible=version > 3
            )
    for key in (4, 7, 58, 82, 93, 94, 95, 1_000, -1):
        pair.ask_unknown(f"key {key}", "api_versions", key, 0, answer_version=0, flexible=False)


# -- Metadata ----------------------------------------------------------------------------------------------------------


def metadata(pair: Pair, versions: list[int]) -> None:
    """All topics, some, none; ids; auto creation; flags."""
    pair.create("described", partitions=3)
    for version in versions:

        def ask(case: str, topics: Any, version: int = version, **more: Any) -> None:
            if version < FIRST_VERSION_WITHOUT_AUTO_CREATION and topics and not case.startswith(("one", "creating")):
                # These versions create missing topics, and Apache Kafka responds before the topic exists.
                return
            pair.ask(case, "metadata", version, {"topics": topics, "allow_auto_topic_creation": False, **more})

        ask("none", [])
        if version >= 1:
            ask("all", None)
        ask("one", [{"name": "described", "topic_id": NO_ID}])
        ask("one twice", [{"name": "described", "topic_id": NO_ID}] * 2)
        ask("unknown", [{"name": "nowhere", "topic_id": NO_ID}])
        ask("known and unknown", [{"name": name, "topic_id": NO_ID} for name in ("described", "nowhere", "", "a b")])
        for name in BAD_NAMES:
            ask(f"name {name[:10]!r}", [{"name": name, "topic_id": NO_ID}])
            ask(f"creating {name[:10]!r}", [{"name": name, "topic_id": NO_ID}], allow_auto_topic_creation=True)
        for name in ("__consumer_offsets", "__transaction_state", "__cluster_metadata", "__share_group_state"):
            ask(f"internal {name}", [{"name": name, "topic_id": NO_ID}])
        if version >= 10:
            ask("by id", [{"name": None, "topic_id": TopicId("described")}])
            ask("by unknown id", [{"name": None, "topic_id": UNKNOWN_ID}])
            ask("by id and name", [{"name": "described", "topic_id": TopicId("described")}])
            ask("by id and other name", [{"name": "nowhere", "topic_id": TopicId("described")}])
            ask("by neither", [{"name": None, "topic_id": NO_ID}])
            ask("by id twice", [{"name": None, "topic_id": TopicId("described")}] * 2)
            mixed = [{"name": None, "topic_id": TopicId("described")}, {"name": "described", "topic_id": NO_ID}]
            ask("ids and names mixed", mixed)
        for flags in range(4):
            asked = {
                "include_cluster_authorized_operations": bool(flags & 1),
                "include_topic_authorized_operations": bool(flags & 2),
            }
            ask(f"operations {flags}", [{"name": "described", "topic_id": NO_ID}], **asked)
            ask(f"operations {flags}, unknown", [{"name": "nowhere", "topic_id": NO_ID}], **asked)
        for name in (f"auto-v{version}", "auto.collision", f"auto.collision-v{version}"):
            ask(f"creating {name}", [{"name": name, "topic_id": NO_ID}], allow_auto_topic_creation=True)
        pair.settle()
        ask("created", [{"name": f"auto-v{version}", "topic_id": NO_ID}])


# -- topics ------------------------------------------------------------------------------------------------------------


def create_topics(pair: Pair, versions: list[int]) -> None:
    """Partition counts, replication factors, assignments, configs, names, duplicates."""
    pair.create("taken", "with.dot", "with_line")
    for version in versions:

        def ask(case: str, *topics: dict[str, Any], version: int = version, validate_only: bool = False) -> None:
            body = {"topics": list(topics), "timeout": 10_000, "validate_only": validate_only}
            pair.ask(case, "create_topics", version, body)

        def new(name: str, version: int = version, **more: Any) -> dict[str, Any]:
            return {"name": f"{name}-v{version}", "num_partitions": 1, "replication_factor": 1, **more}

        def assigned(*replicas: tuple[int, list[int]], **more: Any) -> dict[str, Any]:
            rows = [{"partition_index": index, "broker_ids": brokers} for index, brokers in replicas]
            return {"num_partitions": -1, "replication_factor": -1, "assignments": rows, **more}

        def configured(*pairs: tuple[str, str | None]) -> dict[str, Any]:
            return {"configs": [{"name": name, "value": value} for name, value in pairs]}

        ask("one", new("created-one"))
        ask("several", new("created-a", num_partitions=3), new("created-b"))
        ask("defaults", new("created-c", num_partitions=-1, replication_factor=-1))
        ask("validate only", new("created-d", num_partitions=5), validate_only=True)
        ask("none")
        ask("taken", new("x") | {"name": "taken"})
        ask("taken, validate only", new("x") | {"name": "taken"}, validate_only=True)
        ask("twice", new("created-e"), new("created-e"), new("created-f"))
        for name in (*BAD_NAMES, "with_dot", "with.line", "__cluster_metadata", "__consumer_offsets_"):
            ask(f"name {name[:20]!r}", new("x") | {"name": name}, validate_only=True)
        ask("collide in one request", new("col.a"), new("col_a"), validate_only=True)
        for count in (0, -2, 20_000, 2**31 - 1):
            ask(f"partitions {count}", new("x", num_partitions=count), validate_only=True)
        for factor in (0, -2, 2, 32_767):
            ask(f"factor {factor}", new("x", replication_factor=factor), validate_only=True)
        ask("partitions 0, factor 0", new("x", num_partitions=0, replication_factor=0), validate_only=True)
        ask("assigned", new("created-g", **assigned((0, [1]), (1, [1]))))
        ask("assigned out of order", new("created-h", **assigned((1, [1]), (0, [1]))))
        for case, change in {
            "assigned and count": assigned((0, [1])) | {"num_partitions": 1},
            "assigned and factor": assigned((0, [1])) | {"replication_factor": 1},
            "assigned and both": assigned((0, [1])) | {"num_partitions": 1, "replication_factor": 1},
            "assigned unknown broker": assigned((0, [9])),
            "assigned negative broker": assigned((0, [-1])),
            "assigned broker twice": assigned((0, [1, 1])),
            "assigned no broker": assigned((0, [])),
            "assigned gap": assigned((0, [1]), (2, [1])),
            "assigned from 1": assigned((1, [1])),
            "assigned negative": assigned((-1, [1])),
            "assigned twice": assigned((0, [1]), (0, [1])),
            "assigned uneven": assigned((0, [1]), (1, [1, 9])),
            "unknown key": configured(("no.such.key", "1")),
            "bad number": configured(("retention.ms", "soon")),
            "out of range": configured(("retention.ms", "-5")),
            "bad type": configured(("preallocate", "perhaps")),
            "bad choice": configured(("compression.type", "rar")),
            "bad list": configured(("cleanup.policy", "delete,burn")),
            "empty list": configured(("cleanup.policy", "")),
            "list twice": configured(("cleanup.policy", "delete,delete")),
            "null": configured(("retention.ms", None)),
            "two nulls": configured(("retention.ms", None), ("segment.ms", None)),
            "empty": configured(("retention.ms", "")),
            "spaces": configured(("retention.ms", " 1000 ")),
            "duplicate key": configured(("retention.ms", "1"), ("retention.ms", "2")),
            "two bad": configured(("no.such.key", "1"), ("retention.ms", "x")),
            "level": configured(("compression.gzip.level", "99")),
            "zstd level": configured(("compression.zstd.level", "100")),
            "replicas throttled": configured(("leader.replication.throttled.replicas", "nonsense")),
            "segment too small": configured(("segment.bytes", "10")),
            "remote storage": configured(("remote.storage.enable", "true")),
            "local retention": configured(("local.retention.ms", "99999999999")),
            "lag order": configured(("min.compaction.lag.ms", "100"), ("max.compaction.lag.ms", "50")),
            "old key": configured(("message.format.version", "2.0")),
            "good settings": configured(("retention.ms", "1000"), ("cleanup.policy", "compact,delete")),
            "bad setting and factor": {"replication_factor": 9, **configured(("no.such.key", "1"))},
        }.items():
            ask(case, new("checked", **change), validate_only=True)
        ask("created with settings", new("created-i", **configured(("retention.ms", "1000"))))
        ask("good and bad", new("created-j"), new("created-k", num_partitions=0))
        pair.settle()
        known = {
            "topics": [{"name": f"created-{letter}-v{version}", "topic_id": NO_ID} for letter in "abcdefghijk"],
            "allow_auto_topic_creation": False,
        }
        pair.ask("after all creations", "metadata", 9, known)


def delete_topics(pair: Pair, versions: list[int]) -> None:
    """By name, id, both, neither; duplicates."""
    pair.create(*(f"doomed-{letter}-v{version}" for letter in "abcdef" for version in versions))
    for version in versions:

        def ask(case: str, *topics: dict[str, Any], version: int = version) -> None:
            states = [{"name": None, "topic_id": NO_ID} | topic for topic in topics]
            names = [topic["name"] for topic in topics if topic.get("name") is not None]
            pair.ask(case, "delete_topics", version, {"topics": states, "topic_names": names, "timeout": 10_000})

        def name(letter: str, version: int = version) -> str:
            return f"doomed-{letter}-v{version}"

        ask("one", {"name": name("a")})
        ask("one again", {"name": name("a")})
        ask("two", {"name": name("b")}, {"name": name("c")})
        ask("none")
        ask("unknown", {"name": "nowhere"})
        for bad in BAD_NAMES:
            ask(f"name {bad[:10]!r}", {"name": bad})
        ask("cluster metadata", {"name": "__cluster_metadata"})
        ask("twice", {"name": name("d")}, {"name": name("d")})
        ask("unknown twice", {"name": "nowhere"}, {"name": "nowhere"})
        if version >= 6:
            ask("by id", {"topic_id": TopicId(name("e"))})
            ask("by id again", {"topic_id": TopicId(name("e"))})
            ask("unknown id", {"topic_id": UNKNOWN_ID})
            ask("unknown id twice", {"topic_id": UNKNOWN_ID}, {"topic_id": UNKNOWN_ID})
            ask("id twice", {"topic_id": TopicId(name("d"))}, {"topic_id": TopicId(name("d"))})
            ask("both", {"name": name("d"), "topic_id": TopicId(name("d"))})
            ask("neither", {})
            ask("name and its id", {"name": name("d")}, {"topic_id": TopicId(name("d"))})
            ask("name and another id", {"name": name("d")}, {"topic_id": TopicId(name("f"))})
        pair.settle()
        known = {
            "topics": [{"name": name(letter), "topic_id": NO_ID} for letter in "abcdef"],
            "allow_auto_topic_creation": False,
        }
        pair.ask("after all deletions", "metadata", 9, known)


def create_partitions(pair: Pair, versions: list[int]) -> None:
    """More partitions, the same number, fewer; assignments."""
    pair.create(*(f"grown-{letter}-v{version}" for letter in "abc" for version in versions), partitions=2)
    for version in versions:

        def ask(case: str, *topics: dict[str, Any], version: int = version, validate_only: bool = False) -> None:
            body = {"topics": list(topics), "timeout": 10_000, "validate_only": validate_only}
            pair.ask(case, "create_partitions", version, body)

        def grown(letter: str, count: int, *replicas: list[int], version: int = version) -> dict[str, Any]:
            rows = [{"broker_ids": brokers} for brokers in replicas]
            return {"name": f"grown-{letter}-v{version}", "count": count, "assignments": rows or None}

        ask("more", grown("a", 4))
        ask("more, validate only", grown("b", 4), validate_only=True)
        ask("more, assigned", grown("c", 4, [1], [1]))
        ask("none")
        for count in (2, 1, 0, -1, -5):  # on 10,000 more Apache Kafka creates some, then returns UNKNOWN_SERVER_ERROR
            ask(f"count {count}", grown("b", count))
        for name in ("nowhere", *BAD_NAMES, "__cluster_metadata"):
            ask(f"name {name[:20]!r}", {"name": name, "count": 3, "assignments": None})
        ask("twice", grown("b", 3), grown("b", 4))
        ask("good and bad", grown("b", 3), grown("a", 1))
        for case, replicas in {
            "too few assigned": [[1]],
            "too many assigned": [[1], [1], [1]],
            "unknown broker": [[1], [9]],
            "broker twice": [[1], [1, 1]],
            "no broker": [[1], []],
            "uneven": [[1], [1, 2]],
            "negative broker": [[1], [-1]],
        }.items():
            ask(f"assigned: {case}", grown("b", 5, *replicas))
        body = {"topics": [{"name": f"grown-b-v{version}", "count": 4, "assignments": []}], "timeout": 10_000}
        pair.ask("empty assignments", "create_partitions", version, body)
        pair.settle()
        known = {
            "topics": [{"name": f"grown-{letter}-v{version}", "topic_id": NO_ID} for letter in "abc"],
            "allow_auto_topic_creation": False,
        }
        pair.ask("after all growth", "metadata", 9, known)


def describe_topic_partitions(pair: Pair, versions: list[int]) -> None:
    """Pages, cursors, limits."""
    pair.create("page-a", "page-b", "page-c", partitions=3)
    for version in versions:

        def ask(case: str, names: list[str], limit: int = 100, cursor: Any = None, version: int = version) -> None:
            topics = [{"name": name} for name in names]
            body = {"topics": topics, "response_partition_limit": limit, "cursor": cursor}
            pair.ask(case, "describe_topic_partitions", version, body)

        three = ["page-a", "page-b", "page-c"]
        ask("all three", three)
        ask("other order", three[::-1])
        ask("twice", ["page-a", "page-a"])
        ask("unknown", ["nowhere"])
        ask("unknown among known", ["page-a", "nowhere", "page-c"])
        for name in BAD_NAMES:
            ask(f"name {name[:10]!r}", [name])
        for limit in (0, -1, 1, 2, 3, 4, 5, 6, 8, 9, 100_000):
            ask(f"limit {limit}", three, limit)
            ask(f"limit {limit}, unknown among known", ["nowhere", *three, "page-z"], limit)
        for topic, index in (("page-b", 0), ("page-b", 1), ("page-b", 3), ("page-b", 99), ("page-b", -1)):
            ask(f"cursor {topic} {index}", three, 100, {"topic_name": topic, "partition_index": index})
            ask(f"cursor {topic} {index} limit 2", three, 2, {"topic_name": topic, "partition_index": index})
        for topic in ("page-aa", "a", "z", "", "bad name!", "nowhere"):
            ask(f"cursor {topic!r}", three, 4, {"topic_name": topic, "partition_index": 0})
        ask("everything from a cursor", [], 4, {"topic_name": "page-b", "partition_index": 1})


# -- configs -----------------------------------------------------------------------------------------------------------


def describe_configs(pair: Pair, versions: list[int]) -> None:
    """Resources of every type, names, subsets, synonyms and documentation."""
    pair.create("settings", configs={"retention.ms": "1000", "cleanup.policy": "compact"})
    for version in versions:

        def ask(case: str, *resources: tuple[int, str, list[str] | None], version: int = version, **more: Any) -> None:
            asked = [
                {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
                for kind, name, keys in resources
            ]
            pair.ask(case, "describe_configs", version, {"resources": asked, **more})

        ask("topic", (TOPIC, "settings", None))
        ask("topic with synonyms", (TOPIC, "settings", None), include_synonyms=True)
        ask("topic with texts", (TOPIC, "settings", None), include_documentation=True)
        ask("topic, empty keys", (TOPIC, "settings", []))
        ask("topic, two keys", (TOPIC, "settings", ["retention.ms", "segment.ms"]))
        ask("topic, unknown key", (TOPIC, "settings", ["no.such.key"]))
        ask("topic, known and unknown key", (TOPIC, "settings", ["retention.ms", "no.such.key", "retention.ms"]))
        ask("broker", (BROKER, "1", None))
        ask("broker with synonyms", (BROKER, "1", None), include_synonyms=True)
        ask("broker with texts", (BROKER, "1", None), include_documentation=True)
        ask("broker, key", (BROKER, "1", ["log.retention.ms", "node.id"]))
        ask("all brokers", (BROKER, "", None))
        for name in ("2", "-1", "one", "01"):
            ask(f"broker {name!r}", (BROKER, name, ["node.id"]))
        for name in ("nowhere", *BAD_NAMES):
            ask(f"topic {name[:10]!r}", (TOPIC, name, None))
        for kind in (0, 1, 3, LOGGER, CLIENT_METRICS, GROUP, 64, -1):
            ask(f"type {kind}", (kind, "1", None))
        ask("client metrics without a name", (CLIENT_METRICS, "", None))
        ask("twice", (TOPIC, "settings", ["retention.ms"]), (TOPIC, "settings", ["retention.ms"]))
        ask("several", (TOPIC, "settings", ["retention.ms"]), (BROKER, "1", ["node.id"]), (TOPIC, "nowhere", None))
        ask("none")


SET, DELETE, APPEND, SUBTRACT = range(4)


def incremental_alter_configs(pair: Pair, versions: list[int]) -> None:
    """All operations, valid and invalid."""
    pair.create(*(f"altered-v{version}" for version in versions))
    for version in versions:
        topic = f"altered-v{version}"

        def ask(
            case: str,
            *changes: tuple[str, int, str | None],
            kind: int = TOPIC,
            name: str | None = topic,
            version: int = version,
            validate_only: bool = False,
        ) -> None:
            rows = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
            asked = [{"resource_type": kind, "resource_name": name, "configs": rows}]
            pair.ask(case, "incremental_alter_configs", version, {"resources": asked, "validate_only": validate_only})

        def result(case: str, topic: str = topic) -> None:
            pair.settle()
            keys = ["retention.ms", "cleanup.policy", "segment.ms", "leader.replication.throttled.replicas"]
            asked = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": keys}]
            pair.ask(f"after {case}", "describe_configs", 4, {"resources": asked, "include_synonyms": True})

        ask("set", ("retention.ms", SET, "5000"))
        ask("set two", ("segment.ms", SET, "6000"), ("retention.ms", SET, "7000"))
        ask("validate only", ("retention.ms", SET, "1"), validate_only=True)
        result("set")
        ask("append", ("cleanup.policy", APPEND, "compact"))
        ask("append again", ("cleanup.policy", APPEND, "compact"))
        result("append")
        ask("subtract", ("cleanup.policy", SUBTRACT, "delete"))
        ask("subtract what isn't there", ("cleanup.policy", SUBTRACT, "delete"))
        result("subtract")
        ask("append several", ("leader.replication.throttled.replicas", APPEND, "0:1,1:1"))
        ask("append with spaces", ("leader.replication.throttled.replicas", APPEND, "2:1, 3:1"))
        result("append several")
        ask("delete", ("retention.ms", DELETE, None))
        ask("delete with value", ("segment.ms", DELETE, "5"))
        ask("delete what isn't set", ("max.message.bytes", DELETE, None))
        ask("delete unknown", ("no.such.key", DELETE, None))
        result("delete")
        for case, changes in {
            "append to no list": [("retention.ms", APPEND, "5")],
            "subtract from no list": [("retention.ms", SUBTRACT, "5")],
            "append to unknown": [("no.such.key", APPEND, "5")],
            "append bad": [("cleanup.policy", APPEND, "burn")],
            "subtract all": [("cleanup.policy", SUBTRACT, "compact,delete")],
            "append empty": [("cleanup.policy", APPEND, "")],
            "unknown key": [("no.such.key", SET, "1")],
            "bad number": [("retention.ms", SET, "soon")],
            "out of range": [("retention.ms", SET, "-9")],
            "null": [("retention.ms", SET, None)],
            "null append": [("cleanup.policy", APPEND, None)],
            "empty": [("retention.ms", SET, "")],
            "duplicate key": [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            "duplicate key, set and delete": [("retention.ms", SET, "1"), ("retention.ms", DELETE, None)],
            "operation 4": [("retention.ms", 4, "1")],
            "operation -1": [("retention.ms", -1, "1")],
            "good and bad": [("retention.ms", SET, "1"), ("segment.ms", SET, "x")],
            "no changes": [],
            "empty key": [("", SET, "1")],
        }.items():
            ask(case, *changes, validate_only=True)
        for name in ("nowhere", *BAD_NAMES, "__cluster_metadata"):
            ask(f"topic {name[:20]!r}", ("retention.ms", SET, "1"), name=name, validate_only=True)
        for name in ("2", "-1", "one", "01"):
            ask(f"broker {name!r}", ("log.retention.ms", SET, "1"), name=name, kind=BROKER, validate_only=True)
        if version == versions[-1]:  # thousands of requests with the same responses in every version
            _broker_changes(ask, pair)
        for kind in (0, 1, LOGGER, CLIENT_METRICS, GROUP, 64, -1):
            ask(f"type {kind}", ("retention.ms", SET, "1"), name="1", kind=kind, validate_only=True)
        _client_metrics(ask, pair)
        row = {"name": "retention.ms", "config_operation": SET, "value": "9"}
        resource = {"resource_type": TOPIC, "resource_name": topic, "configs": [row]}
        pair.ask("resource twice", "incremental_alter_configs", version, {"resources": [resource] * 2})
        others = [resource, resource | {"resource_name": "nowhere"}]
        pair.ask("good and unknown topic", "incremental_alter_configs", version, {"resources": others})
        pair.ask("nothing", "incremental_alter_configs", version, {})
        result("all")
    _kept_settings(pair)


def _client_metrics(ask: Any, pair: Pair) -> None:
    """Subscriptions, valid and invalid, and one that is created, listed, changed and deleted."""
    kind = {"kind": CLIENT_METRICS}
    for key, values in {
        "interval.ms": ("99", "100", "3600000", "3600001", "x", ""),
        "metrics": ("", "*", "a, b ,a", "a,,b", "a,", ","),
        "match": (
            *("", "client_id", "client_id=", "client_id=a=b", "=b", "client_id==", "client_id=a=", "client_id=["),
            *(" client_id = a.* , client_software_name=x", "client_id=a,client_id=b", "CLIENT_ID=a", "client_id=a,"),
            *("client_source_address=a,client_source_port=9+,client_software_version=1", "client_instance_id=x"),
        ),
    }.items():
        for value in values:
            ask(f"client metrics {key}={value}", (key, SET, value), name="s", validate_only=True, **kind)
    ask("client metrics without a name", ("metrics", SET, "a"), name="", validate_only=True, **kind)
    for how, value in ((SET, "a.,b."), (APPEND, "b.,c."), (SUBTRACT, "a."), (DELETE, None)):
        ask(f"client metrics {how}", ("metrics", how, value), ("interval.ms", SET, "500"), name="s", **kind)
        pair.settle()
        asked = [{"resource_type": CLIENT_METRICS, "resource_name": "s", "configuration_keys": None}]
        pair.ask(f"client metrics {how}", "describe_configs", 4, {"resources": asked, "include_synonyms": True})
    pair.ask("client metrics", "list_config_resources", 0, {})
    ask("client metrics append to no list", ("interval.ms", APPEND, "5"), name="s", **kind)
    ask("client metrics deleted", ("interval.ms", DELETE, None), name="s", **kind)
    pair.settle()
    pair.ask("no client metrics", "list_config_resources", 0, {})


def _broker_changes(ask: Any, pair: Pair) -> None:
    """Validate-only changes of one broker's configs and the cluster default: each at its own value, then at others."""
    every = {"resource_type": BROKER, "resource_name": "1", "configuration_keys": None}
    [described] = pair.request_one(pair.kafka, "describe_configs", 4, {"resources": [every]})["results"]
    for entry in described["configs"]:
        name, value = entry["name"], entry["value"] or ""
        ask(f"broker {name} as it is", (name, SET, value), kind=BROKER, name="1", validate_only=True)
        ask(f"all brokers {name} as it is", (name, SET, value), kind=BROKER, name="", validate_only=True)
        ask(f"broker {name} deleted", (name, DELETE, None), kind=BROKER, name="1", validate_only=True)
        ask(f"all brokers {name} deleted", (name, DELETE, None), kind=BROKER, name="", validate_only=True)
    for key, value in {
        "log.retention.ms": "60000",
        "message.max.bytes": "2000000",
        "num.io.threads": "9",
        "node.id": "3",
        "log.dirs": "/tmp/x",
        "listeners": "PLAINTEXT://:1",
        "no.such.key": "1",
        "num.partitions": "4",
        "log.cleaner.threads": "2",
        "log.retention.bytes": "many",
        "auto.create.topics.enable": "false",
        "max.connections": "10",
        "background.threads": "0",
        "compression.type": "rar",
        "min.insync.replicas": "1",
    }.items():
        ask(f"broker {key}={value}", (key, SET, value), kind=BROKER, name="1", validate_only=True)
        ask(f"all brokers {key}={value}", (key, SET, value), kind=BROKER, name="", validate_only=True)


def _kept_settings(pair: Pair) -> None:
    """Configs without effect in Ottla are stored as in Apache Kafka; unknown configs are sensitive."""
    keys = ["num.io.threads", "plugin.of.mine"]
    for name in ("1", ""):

        def change(how: int, *values: str | None, name: str = name) -> None:
            rows = [{"name": k, "config_operation": how, "value": v} for k, v in zip(keys, values, strict=True)]
            resource = {"resource_type": BROKER, "resource_name": name, "configs": rows}
            pair.ask("kept settings", "incremental_alter_configs", 1, {"resources": [resource]})
            pair.settle()

        change(SET, "9", "secret")
        for described in ("1", ""):
            asked = [{"resource_type": BROKER, "resource_name": described, "configuration_keys": keys}]
            for synonyms in (False, True):
                body = {"resources": asked, "include_synonyms": synonyms}
                pair.ask(f"kept settings of {name!r} at {described!r}", "describe_configs", 4, body)
        change(DELETE, None, None)


def alter_configs(pair: Pair, versions: list[int]) -> None:
    """The older API, which sets all configs at once."""
    pair.create(*(f"replaced-v{version}" for version in versions), configs={"segment.ms": "60000"})
    for version in versions:
        topic = f"replaced-v{version}"

        def ask(
            case: str,
            *settings: tuple[str, str | None],
            kind: int = TOPIC,
            name: str = topic,
            version: int = version,
            validate_only: bool = True,
        ) -> None:
            rows = [{"name": key, "value": value} for key, value in settings]
            asked = [{"resource_type": kind, "resource_name": name, "configs": rows}]
            pair.ask(case, "alter_configs", version, {"resources": asked, "validate_only": validate_only})

        ask("replace", ("retention.ms", "5000"), validate_only=False)
        pair.settle()
        keys = ["retention.ms", "segment.ms"]
        asked = [{"resource_type": TOPIC, "resource_name": topic, "configuration_keys": keys}]
        pair.ask("after replace", "describe_configs", 4, {"resources": asked})
        for case, settings in {
            "none": [],
            "unknown key": [("no.such.key", "1")],
            "bad number": [("retention.ms", "soon")],
            "null": [("retention.ms", None)],
            "duplicate key": [("retention.ms", "1"), ("retention.ms", "2")],
            "empty key": [("", "1")],
        }.items():
            ask(case, *settings)
        for name in ("nowhere", "", "bad name!"):
            ask(f"topic {name!r}", ("retention.ms", "1"), name=name)
        for name in ("1", "", "2", "one"):
            ask(f"broker {name!r}", ("log.retention.ms", "1"), name=name, kind=BROKER)
            ask(f"broker {name!r} read-only", ("node.id", "1"), name=name, kind=BROKER)
        for kind in (0, LOGGER, CLIENT_METRICS, GROUP, 64):
            ask(f"type {kind}", ("retention.ms", "1"), name="1", kind=kind)
        # Duplicate resources are left out: Apache Kafka never responds to them.
        pair.ask("nothing", "alter_configs", version, {})


def list_config_resources(pair: Pair, versions: list[int]) -> None:
    """Known and unknown resource types."""
    for version in versions:
        for types in (
            [],
            [TOPIC],
            [BROKER],
            [LOGGER],
            [CLIENT_METRICS],
            [GROUP],
            [TOPIC, TOPIC],
            [1],
            [64],
            [TOPIC, 3],
        ):
            pair.ask(f"types {types}", "list_config_resources", version, {"resource_types": types})


# -- the cluster -------------------------------------------------------------------------------------------------------


def describe_cluster(pair: Pair, versions: list[int]) -> None:
    """Endpoint types and flags."""
    for version in versions:
        for endpoint in (1, 2, 0, 3, -1):
            for flags in range(4):
                body = {
                    "endpoint_type": endpoint,
                    "include_cluster_authorized_operations": bool(flags & 1),
                    "include_fenced_brokers": bool(flags & 2),
                }
                pair.ask(f"endpoint {endpoint} flags {flags}", "describe_cluster", version, body)


def describe_log_dirs(pair: Pair, versions: list[int]) -> None:
    """All, some and unknown partitions."""
    pair.create("sized", partitions=2)
    pair.ask("fill", "produce", 7, produce_body("sized", batch()))
    for version in versions:
        for case, topics in {
            "one": [("sized", [0, 1])],
            "one partition": [("sized", [1])],
            "unknown partition": [("sized", [0, 7, -1])],
            "no partitions": [("sized", [])],
            "unknown topic": [("nowhere", [0])],
            "bad name": [("bad name!", [0])],
            "twice": [("sized", [0, 0])],
            "none": [],
        }.items():
            asked = [{"topic": topic, "partitions": partitions} for topic, partitions in topics]
            pair.ask(case, "describe_log_dirs", version, {"topics": asked})


def describe_acls(pair: Pair, versions: list[int]) -> None:
    """Without an authorizer."""
    for version in versions:
        body = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
        body |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
        pair.ask("everything", "describe_acls", version, body)


def create_acls(pair: Pair, versions: list[int]) -> None:
    """Without an authorizer."""
    entry = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a"}
    entry |= {"host": "*", "operation": 3, "permission_type": 3}
    for version in versions:
        for count in range(3):
            pair.ask(f"{count} entries", "create_acls", version, {"creations": [entry] * count})


def delete_acls(pair: Pair, versions: list[int]) -> None:
    """Without an authorizer."""
    wanted = {"resource_type_filter": 2, "resource_name_filter": "t", "pattern_type_filter": 3}
    wanted |= {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    for version in versions:
        for count in range(3):
            pair.ask(f"{count} filters", "delete_acls", version, {"filters": [wanted] * count})


def describe_producers(pair: Pair, versions: list[int]) -> None:
    """Idempotent producers and missing partitions."""
    pair.create("produced", partitions=2)
    body = produce_body("produced", batch(producer=(7, 0, 0)))
    pair.ask("fill", "produce", 7, body)
    for version in versions:
        for case, topics in {
            "one": [("produced", [0, 1])],
            "unknown partition": [("produced", [7, -1])],
            "unknown topic": [("nowhere", [0])],
            "bad name": [("bad name!", [0])],
            "no partitions": [("produced", [])],
            "none": [],
        }.items():
            asked = [{"name": name, "partition_indexes": indexes} for name, indexes in topics]
            pair.ask(case, "describe_producers", version, {"topics": asked})


def alter_replica_log_dirs(pair: Pair, versions: list[int]) -> None:
    """Directories that the broker does not have; its own directory has a different name on each side."""
    pair.create("placed", partitions=2)
    for version in versions:
        for path in ("/no/such/directory", "relative", ""):
            topics = [{"name": "placed", "partitions": [0, 1, 9]}, {"name": "nowhere", "partitions": [0]}]
            pair.ask(f"{path!r}", "alter_replica_log_dirs", version, {"dirs": [{"path": path, "topics": topics}]})


def find_coordinator(pair: Pair, versions: list[int]) -> None:
    """Coordinator types and keys, once the internal topics exist: Apache Kafka does not wait for them."""
    pair.await_coordinators()
    for version in versions:
        for kind in (0, 1, 2, 3, -1):
            for keys in (["g"], [""], ["g", "h", "g"], []):
                body = {"key_type": kind, "coordinator_keys": keys, "key": keys[0] if keys else ""}
                pair.ask(f"type {kind} keys {keys}", "find_coordinator", version, body)


def update_features(pair: Pair, versions: list[int]) -> None:
    """Invalid levels; no level is changed."""
    for version in versions:

        def ask(case: str, *updates: tuple[str, int, int], version: int = version) -> None:
            rows = [
                {"feature": name, "max_version_level": level, "upgrade_type": how, "allow_downgrade": how > 1}
                for name, level, how in updates
            ]
            body = {"timeout": 10_000, "feature_updates": rows, "validate_only": version > 0}
            pair.ask(case, "update_features", version, body)

        ask("none")
        ask("unknown feature", ("no.such.version", 1, 1))
        ask("unknown feature, level 0", ("no.such.version", 0, 1))
        ask("empty name", ("", 1, 1))
        ask("metadata too high", ("metadata.version", 1_000, 1))
        ask("metadata too low", ("metadata.version", 1, 3))
        ask("metadata 0", ("metadata.version", 0, 3))
        ask("negative", ("metadata.version", -1, 1))
        ask("downgrade as upgrade", ("metadata.version", 7, 1))
        ask("twice", ("no.such.version", 1, 1), ("no.such.version", 2, 1))
        for how in (0, 4, -1):
            ask(f"upgrade type {how}", ("metadata.version", 1_000, how))
