"""What Ottla answers, compared with what Apache Kafka answers to the same bytes.

Every API that is served, in every version, on good requests and on bad ones (`differential_data`,
`differential_admin`), written and read by a codec that is neither's (`differential_wire`), against brokers on fresh
directories (`differential_pair`). ACCEPTED is the ratchet: a difference that is not in it fails the test, and so does
an entry that nothing needs any more.
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


class Accepted(NamedTuple):
    """Differences that are meant; all patterns match from the beginning to the end."""

    reason: str
    api: str
    case: str = ".*"
    path: str = ".*"
    kafka: str = ".*"
    ottla: str = ".*"

    def covers(self, difference: Difference) -> bool:
        texts = (difference.api, difference.case, difference.path, str(difference.kafka), str(difference.ottla))
        patterns = (self.api, self.case, self.path, self.kafka, self.ottla)
        return all(re.fullmatch(pattern, text, re.DOTALL) for pattern, text in zip(patterns, texts, strict=True))


NOTHING = "(None|missing|)"
PARTITION = r"responses\[.*\]\.partition_responses\[.*\]"
OUT_OF_RANGE = r"Timestamp \d+ of message with offset \d+ is out of range\. .* should be within \[-?\d+, \d+\]"
FETCHED = r"responses\[.*\]\.partitions\[.*\]"

ACCEPTED = (
    # -- wording
    Accepted("Ottla says why where Apache Kafka says nothing", ".*", path=".*error_message", kafka=NOTHING),
    Accepted(
        "a list as it was given, not only its wrong item",
        "create_topics|incremental_alter_configs",
        "bad list|replicas throttled|append bad|append empty",
        ".*error_message",
    ),
    Accepted("a name that is too long is cut", ".*", "(name|topic) 'xxx.*", ".*error_message"),
    Accepted("no name of another server's", "update_features", path="error_message", kafka=".*Local controller 1 .*"),
    Accepted("a space that is missing there", "alter_client_quotas", "address and user, .*", ".*error_message"),
    Accepted("no general words", "describe_configs", "type .*", ".*error_message", kafka="This most likely occurs.*"),
    # -- what Apache Kafka 4 no longer has
    Accepted(
        "clients of 0.8 to 0.10 are served too", "api_versions", path=r"api_keys\[(1|2|8|9)\]\.min_version", ottla="0"
    ),
    # -- what is not built yet
    Accepted("its API is not served", "api_versions", path=r"api_keys\[.*\]", ottla="missing"),
    Accepted("only complete features are offered", "api_versions", path=".*_features.*"),
    Accepted("an answer waits for the topic that it needs; no coordinators of shares yet", "find_coordinator"),
    Accepted(
        "no streams groups yet", "describe_configs", "broker.*", r".*\[group\.coordinator\.rebalance\.protocols\].*"
    ),
    Accepted(
        "Apache Kafka keeps the setting to itself",
        "describe_configs",
        "broker.*",
        r".*\[((follower|leader)\.replication\.throttled\.rate|leader\.imbalance\.per\.broker\.percentage"
        r"|log\.initial\.task\.delay\.ms)\].*",
        kafka="missing",
    ),
    Accepted(
        "a setting of the authorizer's class there",
        "describe_configs",
        "broker.*",
        r".*\[(super\.users|allow\.everyone\.if\.no\.acl\.found)\].*",
        kafka="missing",
    ),
    Accepted(
        "little is read of who is not known yet",
        "describe_configs",
        "broker.*",
        r".*\[sasl\.server\.max\.receive\.size.*",
        kafka="524288",
        ottla="16384",
    ),
    Accepted(
        "a setting of Ottla alone",
        "describe_configs",
        "broker.*",
        r".*\[((group|transaction)\.coordinator\.((group|member)\.)?max\.bytes|log\.scrub\.io\.max\.bytes\.per\.second"
        r"|ssl\.crl\.location)\].*",
        kafka="missing",
    ),
    Accepted(
        "a name that Apache Kafka took until 4.0",
        "describe_configs",
        "broker.*",
        r".*\[(delegation\.token\.master\.key|zookeeper\..+)\].*",
        kafka="missing",
    ),
    Accepted("its feature is not built", "describe_configs", "broker.*", r".*configs\[.*\]", ottla="missing"),
    Accepted(
        "loggers, client metrics and groups are not configurable",
        "describe_configs|alter_configs|incremental_alter_configs",
        "type (8|16|32)",
    ),
    # -- settings
    Accepted("bounds of its own", "describe_configs", "broker.*", r".*group\.coordinator\.(.+\.)?max\.bytes.*"),
    Accepted("text of its own", "describe_configs", ".*texts", r".*\.documentation"),
    Accepted("defaults of synonyms too (KIP-226)", "describe_configs", path=r".*synonyms\[.* 5\]", kafka="missing"),
    Accepted("one listener, other defaults", "describe_configs", "broker.*", r".*\[(listeners|log\.dir)\].*"),
    Accepted("sized by the system", "describe_configs", "broker.*", r".*\[socket\.(send|receive|listen)\..*\].*"),
    Accepted(
        "no controller listener, roles and ids as given",
        "describe_configs",
        "broker.*",
        r".*\[(controller\..*|process\.roles|broker\.id)\]\..*",
    ),
    Accepted(
        "security is not built: no setting of it is taken, as it is or otherwise",
        "incremental_alter_configs",
        r"(all brokers|broker) (sasl|ssl|principal)\..* as it is",
        ottla="invalid_request|.*security feature.*|Cannot update .*",
    ),
    Accepted(
        "listeners are bound at the start only",
        "incremental_alter_configs",
        "(all brokers|broker) (listeners|listener.security.protocol.map)( as it is|=.*)",
        ottla=r"invalid_request|Cannot update these configs dynamically: .*",
    ),
    Accepted("no Java virtual machine", "describe_configs", path=r".*\[metric\.reporters\].*"),
    Accepted("read at start only", "describe_configs", "broker.*", r".*\.read_only", kafka="False", ottla="True"),
    Accepted("an unknown operation is the client's error", "incremental_alter_configs", "operation .*", ".*error_code"),
    # -- topics
    Accepted("names that collide are refused within a request too", "create_topics", "collide in one request"),
    Accepted("ids are read from version 10 on", "metadata", "by .*|ids and names mixed"),
    Accepted("an empty name is a bad name", "describe_topic_partitions", "name ''", r"topics\[\]\..*"),
    # -- Produce
    Accepted("the field is overwritten anyway", "produce|list_offsets", ".*non-zero base offset"),
    Accepted("a broken length is damage", "produce", "truncated batch|length too long", ".*error_code"),
    Accepted("the code says what it is", "produce", "magic [01]", ".*error_code", "invalid_record"),
    Accepted("the code says what it is", "produce", "unknown codec .", ".*error_code", "unknown_server_error"),
    Accepted("compressed records are not opened (SAFETY.md)", "produce|list_offsets", ".*gzip of nonsense"),
    Accepted(
        "stricter: bits and deltas that no producer sets, bytes that belong to nothing",
        "produce|list_offsets",
        "(after )?(log append time bit|delete horizon bit|record offset.*|bytes behind the batch)",
    ),
    Accepted("each by its own clock", "produce", path=r".*record_errors\[.*", kafka=OUT_OF_RANGE, ottla=OUT_OF_RANGE),
    Accepted(
        "found at the log",
        "produce",
        ".*good, then bad|two batches|unknown codec .",
        rf"{PARTITION}\.log_start_offset",
        "-1",
        "0",
    ),
    Accepted("wording of damage", "produce", path=".*error_message", kafka="Invalid magic.*|Record size.*"),
    Accepted("size before form", "produce", "small: good, then bad", rf"{PARTITION}\.error_code"),
    Accepted("what is named twice is written twice", "produce", "(partition|topic) twice"),
    Accepted("a topic that is named is answered", "produce", "topic without partitions"),
    Accepted(
        "a duplicate of a CreateTime topic has no append time", "produce", path=r".*\.log_append_time", ottla="None"
    ),
    Accepted("negative ids are refused", "produce", "negative (epoch|producer id)"),
    # -- transactions
    Accepted("each partition is answered once", "add_partitions_to_txn", "no partitions|twice", r"results_by_.*"),
    Accepted(
        "the code says what it is", "write_txn_markers", ".*: negative .*", r".*\.error_code", "unknown_server_error"
    ),
    Accepted(
        "what needs a producer has one", "produce", "of no producer|transactional without an id", rf"{PARTITION}.*"
    ),
    Accepted(
        "an empty id names nobody to ask", "produce", ".*: empty transactional id", ".*error_code", "invalid_request"
    ),
    Accepted(
        "found at the log",
        "produce",
        "open: (older epoch|epoch -1)|with the old epoch after the end|after markers|.*late",
        rf"{PARTITION}\.log_start_offset",
        "-1",
        "0",
    ),
    Accepted(
        "as Apache Kafka after 4.4 (KAFKA-20785)",
        "end_txn",
        "abort, then the other|.* late end, True",
        "error_code",
        "invalid_txn_state",
        "producer_fenced",
    ),
    Accepted("no error has no text", "update_features", ".*: change", r"results\[.*\]\.error_message", "NONE"),
    # -- Fetch and offsets
    Accepted("no bytes at all instead of an error", "fetch", ".*(negative| -1) bytes"),
    Accepted("an unknown isolation level reads uncommitted", "fetch|list_offsets", "isolation .*"),
    Accepted("null, as under read_uncommitted", "fetch", path=rf"{FETCHED}\.aborted_transactions", kafka=r"\[\]"),
    Accepted("a follower that is no replica", "fetch", "replica 5", rf"{FETCHED}\.current_leader\..*"),
    Accepted("only epochs that can be are looked up", "offset_for_leader_epoch", ".* -2 at .*"),
)

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
"""What is asked, by name: the API whose versions it goes through, and the catalogue's function."""


@pytest.fixture(scope="module")
def pair(java_classpath: str) -> Iterator[Pair]:
    with Pair(java_classpath) as running:
        yield running


@pytest.fixture(scope="module")
def needed() -> set[Accepted]:
    """The entries of ACCEPTED that something needed."""
    return set()


@pytest.fixture(scope="module")
def served(pair: Pair) -> dict[str, list[int]]:
    """By API the versions that Ottla advertises and kio knows."""
    answer = pair.tell(pair.ottla, "api_versions", 0, {})
    ranges = {row["api_key"]: range(row["min_version"], row["max_version"] + 1) for row in answer["api_keys"]}
    return {
        api: [version for version in versions_of(api) if version in ranges[key]]
        for api, key in KEYS.items()
        if key in ranges
    }


def unexpected(pair: Pair, needed: set[Accepted]) -> str:
    """The differences that ACCEPTED does not cover, one a line."""
    lines: dict[str, list[int]] = {}
    for difference in pair.differences:
        covering = [entry for entry in ACCEPTED if entry.covers(difference)]
        needed.update(covering)
        if not covering:
            line = f"{difference.api} [{difference.case}] {difference.path}: Apache Kafka {difference.kafka!r}, "
            lines.setdefault(line + f"Ottla {difference.ottla!r}", []).append(difference.version)
    pair.differences.clear()
    return "\n".join(f"{line} (versions {sorted(set(versions))})" for line, versions in lines.items())


@pytest.mark.parametrize("group", GROUPS)
def test_answers(group: str, pair: Pair, served: dict[str, list[int]], needed: set[Accepted]) -> None:
    api, ask = GROUPS[group]
    asked = pair.asked
    ask(pair, served[api])
    assert pair.asked > asked
    found = unexpected(pair, needed)
    assert not found, f"\n{found}"


def test_versions_and_keys_that_do_not_exist(pair: Pair, served: dict[str, list[int]], needed: set[Accepted]) -> None:
    admin.unknown_versions(pair, served)
    found = unexpected(pair, needed)
    assert not found, f"\n{found}"


# A group API answers by the state of a group, over several requests: tests/clients/test_group_errors.py and
# compat/java/test_groups.py hold them to what Apache Kafka 4.3.1 answers.
GROUP_APIS = {
    *("join_group", "sync_group", "heartbeat", "leave_group", "describe_groups", "list_groups", "delete_groups"),
    *("offset_commit", "offset_fetch", "offset_delete", "consumer_group_heartbeat", "consumer_group_describe"),
}


# A cluster's API answers by who leads and votes: Apache Kafka's own tools judge those (compat/java/test_cluster.py).
CLUSTER_APIS = {
    *("elect_leaders", "alter_partition_reassignments", "list_partition_reassignments"),
    *("describe_quorum", "unregister_broker", "add_raft_voter", "remove_raft_voter"),
}


# Who users are, and what they may do, is asked of both with an authorizer (compat/java/test_differential_rights.py);
# the rest is judged by Apache Kafka's tools and clients (test_security.py, test_tools.py, tests/clients/test_sasl.py).
JUDGED_BY_TOOLS = {
    *("create_acls", "describe_acls", "delete_acls", "sasl_handshake", "sasl_authenticate"),
    *("describe_user_scram_credentials", "alter_user_scram_credentials", "alter_replica_log_dirs"),
    *(f"{each}_delegation_token" for each in ("create", "renew", "expire", "describe")),
}


def test_every_api_has_a_group(served: dict[str, list[int]]) -> None:
    assert set(served) == {api for api, _ in GROUPS.values()} | GROUP_APIS | CLUSTER_APIS | JUDGED_BY_TOOLS


def test_every_accepted_difference_is_still_there(request: pytest.FixtureRequest, needed: set[Accepted]) -> None:
    if request.session.testsfailed or len(request.session.items) < len(GROUPS):
        pytest.skip("only after a whole run without failures")
    assert [entry for entry in ACCEPTED if entry not in needed] == []
