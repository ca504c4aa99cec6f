"""Compares Ottla's responses with those of Apache Kafka to the same bytes.

The cases (`differential_data`, `differential_admin`) cover every supported API in every version, with valid and invalid
requests. They use a third codec (`differential_wire`) and brokers on fresh directories (`differential_pair`). ACCEPTED
is a ratchet: a difference outside of it fails the test, and so does an entry that no response needs any more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import differential_admin as admin
import differential_data as data
import differential_quotas as quotas
import differential_transactions as transactions
import pytest
from differential_pair import Difference, Pair
from differential_wire import KEYS, versions_of


class Field(NamedTuple):
    """The field that differs, and both values; all three patterns match in full."""

    path: str
    kafka: str
    ottla: str

    def covers(self, difference: Difference) -> bool:
        texts = (difference.path, str(difference.kafka), str(difference.ottla))
        return all(re.fullmatch(pattern, text, re.DOTALL) for pattern, text in zip(self, texts, strict=True))


class Accepted(NamedTuple):
    """Intended differences, by field."""

    reason: str
    api: str
    case: str
    fields: tuple[Field, ...]

    def covering(self, difference: Difference) -> list[tuple[Accepted, Field]]:
        if re.fullmatch(self.api, difference.api) and re.fullmatch(self.case, difference.case, re.DOTALL):
            return [(self, field) for field in self.fields if field.covers(difference)]
        return []


def accepted(reason: str, api: str, case: str, *fields: tuple[str, str, str]) -> Accepted:
    return Accepted(reason, api, case, tuple(Field(*field) for field in fields))


NOTHING = "(None|missing|)"
TEXT = ".+"
"""Free text, in fields that only people read."""
ROW = r"\{.*\}"
PARTITION = r"responses\[.*\]\.partition_responses\[.*\]"
OUT_OF_RANGE = r"Timestamp -?\d+ of message with offset \d+ is out of range\. .* should be within \[-?\d+, \d+\]"
FETCHED = r"responses\[.*\]\.partitions\[.*\]"
MESSAGE = ".*error_message"
CONFIGS = r"results\[.*\]\.configs"
GENERAL = "This most likely occurs.*"
NOT_DYNAMIC = "Cannot update these configs dynamically: .*"


def row(code: str) -> str:
    """A partition's response that only one broker returned, because its base offset differs."""
    return rf"\{{.*'error_code': '{code}'.*\}}"


def setting(names: str, kafka: str, ottla: str, *, source: int = 5) -> tuple[tuple[str, str, str], ...]:
    """The value of a config: the effective one, and a synonym of `source`."""
    return (
        (rf"{CONFIGS}\[({names})\]\.value", kafka, ottla),
        (rf"{CONFIGS}\[({names})\]\.synonyms\[.* {source}\]\.value", kafka, ottla),
    )


REFUSED_FETCH = (
    (rf"{FETCHED}\.error_code", "unknown_server_error", "none"),
    (rf"{FETCHED}\.(high_watermark|last_stable_offset|log_start_offset)", "-1", r"\d+"),
    (rf"{FETCHED}\.records\[.*\]", "missing", ROW),
)

ACCEPTED = (
    # -- wording
    accepted("Ottla says why where Apache Kafka says nothing", ".*", ".*", (MESSAGE, NOTHING, "..+")),
    accepted("no error has no text", ".*", ".*", (MESSAGE, "(NONE|)", "None")),
    accepted(
        "a list as it was given, not only its wrong item",
        "create_topics|incremental_alter_configs",
        "bad list|replicas throttled|append bad|append empty",
        (MESSAGE, "(Invalid value|Configuration 'cleanup.policy' values must not be empty).*", "Invalid value .*"),
    ),
    accepted(
        "a name that is too long is cut",
        ".*",
        "(name|topic) 'xxx.*",
        (MESSAGE, "Topic name is invalid: the length of 'xxx.*", "Topic name is invalid: the length of 'xxx.*"),
    ),
    accepted(
        "no name of another server's",
        "update_features",
        ".*",
        ("error_message", ".*Local controller 1 .*", "The update failed for all features .*"),
    ),
    accepted(
        "a space that is missing there",
        "alter_client_quotas",
        "address and user, .*",
        (MESSAGE, ".* shouldnot be .*", ".* should not be .*"),
    ),
    accepted("no general words", "describe_configs", "type .*", (MESSAGE, GENERAL, "Unsupported resource type: .*")),
    accepted(
        "no general words",
        "find_coordinator",
        "type (-1|2|3) .*",
        (MESSAGE, GENERAL, "Coordinator type .* is not known."),
    ),
    # -- removed in Apache Kafka 4 -------------------------------------------------------------------------------------
    accepted(
        "clients of 0.8 to 0.10 are served too",
        "api_versions",
        ".*",
        (r"api_keys\[1\]\.min_version", "4", "0"),
        (r"api_keys\[(2|9)\]\.min_version", "1", "0"),
        (r"api_keys\[8\]\.min_version", "2", "0"),
    ),
    # -- not implemented yet -------------------------------------------------------------------------------------------
    accepted("streams groups", "api_versions", ".*", (r"api_keys\[(8[89]|93)\]", ROW, "missing")),
    accepted(
        "share and streams groups",
        "api_versions",
        ".*",
        (r"(finalized|supported)_features\[(share|streams)\.version\]", ROW, "missing"),
    ),
    accepted(
        "formatted to the level that Ottla has",
        "api_versions",
        ".*",
        (r"finalized_features\[metadata\.version\]\.(max|min)_version_level", "33", "25"),
        (r"finalized_features\[kraft\.version\]", "missing", ".*_version_level': 1.*"),
        ("finalized_features_epoch", r"\d+", r"\d+"),
    ),
    accepted(
        "streams groups",
        "describe_configs",
        "broker.*",
        *setting(r"group\.coordinator\.rebalance\.protocols", "classic,consumer,streams", "classic,consumer"),
    ),
    accepted(
        "Apache Kafka keeps the setting to itself",
        "describe_configs",
        "broker.*",
        (
            rf"{CONFIGS}\[((follower|leader)\.replication\.throttled\.rate|leader\.imbalance\.per\.broker\.percentage"
            r"|log\.initial\.task\.delay\.ms)\]",
            "missing",
            ROW,
        ),
    ),
    accepted(
        "a setting of the authorizer's class there",
        "describe_configs",
        "broker.*",
        (rf"{CONFIGS}\[(super\.users|allow\.everyone\.if\.no\.acl\.found)\]", "missing", ROW),
    ),
    accepted(
        "a setting of Ottla alone",
        "describe_configs",
        "broker.*",
        (
            rf"{CONFIGS}\[((group|share|transaction)\.coordinator\.((group|member)\.)?max\.bytes|log\.scrub\.io\.max\.bytes\.per\.second"
            r"|metadata\.max\..+|ssl\.crl\.location)\]",
            "missing",
            ROW,
        ),
    ),
    accepted(
        "a name that Apache Kafka took until 4.0",
        "describe_configs",
        "broker.*",
        (rf"{CONFIGS}\[(delegation\.token\.master\.key|zookeeper\..+)\]", "missing", ROW),
    ),
    accepted("its feature is not built", "describe_configs", "broker.*", (rf"{CONFIGS}\[.*\]", ROW, "missing")),
    accepted(
        "loggers are not configurable",
        "describe_configs",
        "type 8",
        (r"results\[.*\]\.error_code", "none", "invalid_request"),
        (rf"{CONFIGS}\[(root|org\.apache\.kafka\..*)\]", ROW, "missing"),
    ),
    accepted(
        "loggers are not configurable",
        "incremental_alter_configs",
        "type 8",
        (r"responses\[8 1\]\.error_code", "invalid_config", "invalid_request"),
        (MESSAGE, "Logger retention.ms does not exist!", "Unknown resource type 8"),
    ),
    accepted(
        "streams groups",
        "describe_configs",
        "type 32",
        (rf"{CONFIGS}\[streams\..*\]", ROW, "missing"),
    ),
    # -- settings
    accepted("text of its own", "describe_configs", ".*texts", (r".*\.documentation", TEXT, TEXT)),
    accepted("defaults of synonyms too (KIP-226)", "describe_configs", ".*", (r".*synonyms\[.* 5\]", "missing", ROW)),
    accepted(
        "one listener, other defaults",
        "describe_configs",
        "broker.*",
        *setting("listeners", "PLAINTEXT://127.0.0.1:<port>,CONTROLLER://.*", "PLAINTEXT://127.0.0.1:0", source=4),
        (rf"{CONFIGS}\[listeners\]\.synonyms\[listeners 5\]\.value", "PLAINTEXT://:9092", "PLAINTEXT://127.0.0.1:9092"),
        *setting(r"log\.dir", "/tmp/kafka-logs", "./ottla-data"),
        (rf"{CONFIGS}\[log\.dir\]\.config_type", "7", "2"),
    ),
    accepted(
        "sized by the system",
        "describe_configs",
        "broker.*",
        *setting(r"socket\.listen\.backlog\.size", "50", "4096"),
        *setting(r"socket\.(receive|send)\.buffer\.bytes", "102400", "-1"),
    ),
    accepted(
        "no controller listener, roles and ids as given",
        "describe_configs",
        "broker.*",
        (rf"{CONFIGS}\[(controller\..*|process\.roles|broker\.id)\]\.config_source", "4", "5"),
        (rf"{CONFIGS}\[controller\.listener\.names\]\.value", "CONTROLLER", ""),
        (rf"{CONFIGS}\[controller\.quorum\.voters\]\.value", "1@127.0.0.1:.*", ""),
        (rf"{CONFIGS}\[(controller\..*|process\.roles|broker\.id)\]\.synonyms\[.* 4\]", ROW, "missing"),
    ),
    accepted(
        "read at the start only",
        "incremental_alter_configs",
        r"(all brokers|broker) (sasl|ssl|principal)\..* as it is",
        (r"responses\[.*\]\.error_code", "none", "invalid_request"),
        (MESSAGE, "Cannot update these configs at default cluster level.*", NOT_DYNAMIC),
        (
            MESSAGE,
            "Invalid value  for configuration ssl.engine.factory.class.*",
            ".*security feature.*|Cannot update .*",
        ),
    ),
    accepted(
        "listeners are bound at the start only",
        "incremental_alter_configs",
        "(all brokers|broker) (listeners|listener.security.protocol.map)( as it is|=.*)",
        (r"responses\[4 1\]\.error_code", "none", "invalid_request"),
        (
            MESSAGE,
            "(Error creating broker listeners|Cannot update these configs at default|requirement failed).*",
            NOT_DYNAMIC,
        ),
    ),
    accepted(
        "no Java virtual machine",
        "describe_configs",
        ".*",
        *setting(r"metric\.reporters", "org.apache.kafka.common.metrics.JmxReporter", ""),
    ),
    accepted(
        "a resource that is named twice is answered once",
        "describe_configs",
        "twice",
        (r"results\[.*\+\]", ROW, "missing"),
    ),
    accepted(
        "a duplicate name is answered once",
        "find_coordinator",
        r"type .* keys \['g', 'h', 'g'\]",
        (r"coordinators\[g .*\+\]", ROW, "missing"),
    ),
    accepted(
        "a duplicate name is answered once",
        "describe_transactions",
        "names .*",
        (r"transaction_states\[.*\+\]", ROW, "missing"),
    ),
    accepted("read at start only", "describe_configs", "broker.*", (r".*\.read_only", "False", "True")),
    accepted(
        "an unknown operation is the client's error",
        "incremental_alter_configs",
        "operation .*",
        (r"responses\[.*\]\.error_code", "unknown_server_error", "invalid_request"),
    ),
    # -- topics
    accepted(
        "names that collide are refused within a request too",
        "create_topics",
        "collide in one request",
        *(
            (r"topics\[.*\]", *pair)
            for pair in ((r".*'error_code': 'none'.*", "missing"), ("missing", ".*invalid_topic_.*"))
        ),
        (r"topics\[.*\]\.error_code", "none", "invalid_topic_exception"),
        (r"topics\[.*\]\.(num_partitions|replication_factor)", "1", "-1"),
        (r"topics\[.*\]\.configs\[.*\]", ROW, "missing"),
    ),
    accepted(
        "ids are read from version 10 on",
        "metadata",
        "by .*|ids and names mixed",
        (r"brokers\[1 127\.0\.0\.1\]", "missing", ROW),
        ("cluster_id", "None", "cluster id"),
        ("controller_id", "-1", "1"),
        ("error_code", "unknown_server_error", "none"),
        (r"topics\[described id of described\+?\]", "missing", ".*'error_code': 'none'.*"),
        (r"topics\[\]\.error_code", "unknown_server_error", "unknown_topic_id"),
        (r"topics\[\]\.name", "", "None"),
    ),
    accepted(
        "an empty name is a bad name",
        "describe_topic_partitions",
        "name ''",
        (r"topics\[\]\.error_code", "unknown_server_error", "invalid_topic_exception"),
        (r"topics\[\]\.topic_authorized_operations", "-2147483648", "3576"),
    ),
    # -- Produce
    accepted(
        "the field is overwritten anyway",
        "produce|list_offsets",
        ".*non-zero base offset",
        (PARTITION, row("invalid_record"), "missing"),
        (PARTITION, "missing", row("none")),
        (r"topics\[.*\]\.partitions\[.*\]\.offset", "0", "2"),
    ),
    accepted(
        "a broken length is damage",
        "produce",
        "truncated batch|length too long",
        (rf"{PARTITION}\.error_code", "invalid_record", "corrupt_message"),
    ),
    accepted(
        "the error code is more specific",
        "produce",
        "magic [01]",
        (".*error_code", "invalid_record", "unsupported_for_message_format"),
    ),
    accepted(
        "the error code is more specific",
        "produce",
        "unknown codec .",
        (".*error_code", "unknown_server_error", "invalid_record"),
    ),
    accepted(
        "compressed records are not opened (docs/operations/security.md)",
        "produce|list_offsets",
        ".*gzip of nonsense",
        (PARTITION, row("unknown_server_error"), "missing"),
        (PARTITION, "missing", row("none")),
        (r"topics\[.*\]\.partitions\[.*\]\.offset", "0", "1"),
    ),
    accepted(
        "stricter: bits and deltas that no producer sets, bytes that belong to nothing",
        "produce|list_offsets",
        "(after )?(log append time bit|delete horizon bit|record offset.*|bytes behind the batch)",
        (PARTITION, "missing", row("invalid_(record|timestamp)")),
        (PARTITION, row("none"), "missing"),
        (r"topics\[.*\]\.partitions\[.*\]\.offset", "[12]", "0"),
    ),
    accepted(
        "a record without a time is not the latest",
        "list_offsets",
        ".*: (around -1|no time, max timestamp before 1970), at -3",
        (r"topics\[.*\]\.partitions\[.*\]\.(offset|leader_epoch)", "[01]", "-1"),
    ),
    accepted(
        "Apache Kafka can't compress records of before 1970 again",
        "produce",
        "times-zstd: .*",
        (PARTITION, row("unknown_server_error"), "missing"),
        (PARTITION, "missing", row("none")),
    ),
    accepted(
        "Apache Kafka can't compress records of before 1970 again",
        "list_offsets",
        "times-zstd: .*",
        (r"topics\[.*\]\.partitions\[.*\]\.offset", "0", "[23]"),
        (r"topics\[.*\]\.partitions\[.*\]\.(offset|timestamp|leader_epoch)", "-1", "[02]"),
    ),
    accepted("each by its own clock", "produce", ".*", (r".*record_errors\[.*", OUT_OF_RANGE, OUT_OF_RANGE)),
    accepted(
        "found at the log",
        "produce",
        ".*good, then bad|two batches|unknown codec .",
        (rf"{PARTITION}\.log_start_offset", "-1", "0"),
    ),
    accepted("wording of damage", "produce", ".*", (MESSAGE, "(Invalid magic|Record size).*", TEXT)),
    accepted(
        "size before form",
        "produce",
        "small: good, then bad",
        (rf"{PARTITION}\.error_code", "invalid_record", "message_too_large"),
    ),
    accepted(
        "a duplicate name is written twice",
        "produce",
        "(partition|topic) twice",
        (PARTITION, "missing", row("none")),
        (r"responses\[.*\+\]", "missing", row("none")),
    ),
    accepted(
        "a topic that is named is answered",
        "produce",
        "topic without partitions",
        (r"responses\[.*\]", "missing", r".*'partition_responses': \[\]\}"),
    ),
    accepted(
        "a duplicate of a CreateTime topic has no append time",
        "produce",
        ".*",
        (rf"{PARTITION}\.log_append_time", r"\d{13}", "None"),
    ),
    accepted(
        "negative ids are refused",
        "produce",
        "negative (epoch|producer id)",
        (rf"{PARTITION}\.error_code", "invalid_producer_epoch", "invalid_record"),
        (PARTITION, "missing", row("invalid_record")),
        (PARTITION, row("none"), "missing"),
    ),
    # -- transactions
    accepted(
        "each partition is answered once",
        "add_partitions_to_txn",
        "no partitions|twice",
        (r"results_by_.*", ROW, "missing"),
    ),
    accepted(
        "the error code is more specific",
        "write_txn_markers",
        ".*: negative .*",
        (r".*\.error_code", "unknown_server_error", "invalid_.*"),
    ),
    accepted(
        "what needs a producer has one",
        "produce",
        "of no producer|transactional without an id",
        (PARTITION, "missing", row("invalid_record")),
        (PARTITION, row("none"), "missing"),
    ),
    accepted(
        "an empty id names no coordinator",
        "produce",
        ".*: empty transactional id",
        (".*error_code", "invalid_request", "invalid_txn_state"),
    ),
    accepted(
        "found at the log",
        "produce",
        "open: (older epoch|epoch -1)|with the old epoch after the end|after markers|.*late",
        (rf"{PARTITION}\.log_start_offset", "-1", "0"),
    ),
    accepted(
        "as Apache Kafka after 4.4 (KAFKA-20785)",
        "end_txn",
        "abort, then the other|.* late end, True",
        ("error_code", "invalid_txn_state", "producer_fenced"),
    ),
    # -- Fetch and offsets
    accepted(
        "no bytes at all instead of an error",
        "fetch",
        ".*(negative| -1) bytes",
        *REFUSED_FETCH,
        (rf"{FETCHED}\.records\[4\]", ROW, "missing"),
    ),
    accepted(
        "an unknown isolation level reads uncommitted",
        "fetch",
        "isolation .*",
        *REFUSED_FETCH,
        ("error_code", "unknown_server_error", "none"),
        (r"responses\[.*\]", "missing", row("none")),
    ),
    accepted(
        "an unknown isolation level reads uncommitted",
        "list_offsets",
        "isolation .*",
        (r"topics\[.*\]\.partitions\[.*\]\.error_code", "unknown_server_error", "none"),
        (r"topics\[.*\]\.partitions\[.*\]\.(offset|leader_epoch)", "-1", r"\d+"),
    ),
    accepted("null, as under read_uncommitted", "fetch", ".*", (rf"{FETCHED}\.aborted_transactions", r"\[\]", "None")),
    accepted(
        "a follower that is not a replica",
        "fetch",
        "replica 5",
        (rf"{FETCHED}\.current_leader\.leader_(id|epoch)", r"\d", "-1"),
    ),
    accepted(
        "only epochs that can be are looked up",
        "offset_for_leader_epoch",
        ".* -2 at .*",
        (r"topics\[.*\]\.partitions\[0\]\.leader_epoch", "-2", "-1"),
        (r"topics\[.*\]\.partitions\[0\]\.end_offset", "0", "-1"),
    ),
)

Needed = tuple[Accepted, Field]
ANYTHING = re.compile(r"\.[*+]")

GROUPS: dict[str, tuple[str, Callable[[Pair, list[int]], None]]] = {
    **{
        case.__name__: (case.__name__, case)
        for case in (
            admin.api_versions,
            admin.metadata,
            admin.create_topics,
            admin.delete_topics,
            admin.create_partitions,
            admin.describe_topic_partitions,
            admin.describe_configs,
            admin.incremental_alter_configs,
            admin.alter_configs,
            admin.list_config_resources,
            admin.describe_cluster,
            admin.describe_log_dirs,
            admin.describe_acls,
            admin.create_acls,
            admin.delete_acls,
            admin.alter_replica_log_dirs,
            admin.describe_producers,
            admin.find_coordinator,
            admin.update_features,
            quotas.alter_client_quotas,
            quotas.describe_client_quotas,
            quotas.describe_user_scram_credentials,
            data.list_offsets,
            data.offset_for_leader_epoch,
            data.delete_records,
            data.init_producer_id,
        )
    },
    "produce_forms": ("produce", data.produce_forms),
    "produce_times": ("produce", data.produce_times),
    "produce_targets": ("produce", data.produce_targets),
    "produce_configs": ("produce", data.produce_configs),
    "produce_sequences": ("produce", data.produce_sequences),
    "fetch_reads": ("fetch", data.fetch_reads),
    "fetch_sessions": ("fetch", data.fetch_sessions),
    "transactional_ids": ("init_producer_id", transactions.transactional_ids),
    "transactional_partitions": ("add_partitions_to_txn", transactions.transactional_partitions),
    "transactional_groups": ("add_offsets_to_txn", transactions.transactional_groups),
    "transactional_ends": ("end_txn", transactions.transactional_ends),
    "transactional_offsets": ("txn_offset_commit", transactions.transactional_offsets),
    "transactional_markers": ("write_txn_markers", transactions.transactional_markers),
    "transactional_records": ("produce", transactions.transactional_records),
    "transactional_reads": ("fetch", transactions.transactional_reads),
    "transactional_offsets_of_time": ("list_offsets", transactions.transactional_offsets_of_time),
    "transactional_descriptions": ("describe_transactions", transactions.transactional_descriptions),
    "transactional_lists": ("list_transactions", transactions.transactional_lists),
    "transactional_timeouts": ("end_txn", transactions.transactional_timeouts),
    "transactional_levels": ("update_features", transactions.transactional_levels),
    "transactional_level_1": ("end_txn", transactions.transactional_level_1),
}
"""Cases by name: the API that provides the versions, and the function that runs the cases."""


@pytest.fixture(scope="module")
def pair(java_classpath: str) -> Iterator[Pair]:
    with Pair(java_classpath) as running:
        yield running


@pytest.fixture(scope="module")
def needed() -> set[Needed]:
    """The fields of ACCEPTED that a response needed."""
    return set()


@pytest.fixture(scope="module")
def served(pair: Pair) -> dict[str, list[int]]:
    """Returns the versions that Ottla advertises and kio supports, by API."""
    answer = pair.request_one(pair.ottla, "api_versions", 0, {})
    ranges = {row["api_key"]: range(row["min_version"], row["max_version"] + 1) for row in answer["api_keys"]}
    return {
        api: [version for version in versions_of(api) if version in ranges[key]]
        for api, key in KEYS.items()
        if key in ranges
    }


def unexpected(pair: Pair, needed: set[Needed]) -> str:
    """Returns the differences outside of ACCEPTED, one per line."""
    lines: dict[str, list[int]] = {}
    for difference in pair.differences:
        covering = [each for entry in ACCEPTED for each in entry.covering(difference)]
        needed.update(covering)
        if not covering:
            line = f"{difference.api} [{difference.case}] {difference.path}: Apache Kafka {difference.kafka!r}, "
            lines.setdefault(line + f"Ottla {difference.ottla!r}", []).append(difference.version)
    pair.differences.clear()
    return "\n".join(f"{line} (versions {sorted(set(versions))})" for line, versions in lines.items())


@pytest.mark.parametrize("group", GROUPS)
def test_answers(group: str, pair: Pair, served: dict[str, list[int]], needed: set[Needed]) -> None:
    api, ask = GROUPS[group]
    asked = pair.asked
    ask(pair, served[api])
    assert pair.asked > asked
    found = unexpected(pair, needed)
    assert not found, f"\n{found}"


def test_unsupported_versions_and_api_keys(pair: Pair, served: dict[str, list[int]], needed: set[Needed]) -> None:
    admin.unknown_versions(pair, served)
    found = unexpected(pair, needed)
    assert not found, f"\n{found}"


# Responses of group APIs depend on the group's state over several requests: tests/clients/test_group_errors.py and
# compat/java/test_groups.py compare them with those of Apache Kafka 4.3.1.
GROUP_APIS = {
    *("join_group", "sync_group", "heartbeat", "leave_group", "describe_groups", "list_groups", "delete_groups"),
    *("offset_commit", "offset_fetch", "offset_delete", "consumer_group_heartbeat", "consumer_group_describe"),
}


# Responses of cluster APIs depend on leaders and voters: Apache Kafka's own tools check them
# (compat/java/test_cluster.py).
CLUSTER_APIS = {
    *("elect_leaders", "alter_partition_reassignments", "list_partition_reassignments"),
    *("describe_quorum", "unregister_broker", "add_raft_voter", "remove_raft_voter"),
}


# Authentication and authorization are compared with an authorizer (compat/java/test_differential_rights.py); Apache
# Kafka's tools and clients check the rest (test_security.py, test_tools.py, tests/clients/test_sasl.py).
JUDGED_BY_TOOLS = {
    *("create_acls", "describe_acls", "delete_acls", "sasl_handshake", "sasl_authenticate"),
    *("describe_user_scram_credentials", "alter_user_scram_credentials", "alter_replica_log_dirs"),
    *(f"{each}_delegation_token" for each in ("create", "renew", "expire", "describe")),
}


# Their feature is off unless it is raised by name: clients check them (tests/clients/test_share_consumers.py).
SHARE_APIS = {
    *("share_group_heartbeat", "share_group_describe", "share_fetch", "share_acknowledge"),
    *(f"{each}_share_group_offsets" for each in ("describe", "alter", "delete")),
    *(f"{each}_share_group_state" for each in ("initialize", "read", "write", "delete")),
    "read_share_group_state_summary",
}


def test_every_api_has_a_group(served: dict[str, list[int]]) -> None:
    judged_elsewhere = GROUP_APIS | CLUSTER_APIS | JUDGED_BY_TOOLS | SHARE_APIS
    assert set(served) == {api for api, _ in GROUPS.values()} | judged_elsewhere


def test_every_accepted_difference_still_occurs(request: pytest.FixtureRequest, needed: set[Needed]) -> None:
    if request.session.testsfailed or len(request.session.items) < len(GROUPS):
        pytest.skip("only after a whole run without failures")
    unneeded = [(entry.reason, field) for entry in ACCEPTED for field in entry.fields if (entry, field) not in needed]
    assert unneeded == []


def test_accepted_differences_name_path_and_values() -> None:
    """A pattern that matches anything would hide a wrong response; free text is the exception."""
    for entry in ACCEPTED:
        assert entry.fields, entry.reason
        for field in entry.fields:
            assert not ANYTHING.fullmatch(field.path), entry.reason
            if field.path.endswith(("error_message", "documentation", "record_errors\\[.*")):
                continue
            for value in (field.kafka, field.ottla):
                assert not ANYTHING.fullmatch(value), entry.reason
