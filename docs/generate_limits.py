"""Writes the tables of `docs/operations/limits.md` from the constants and settings of the code.

A row names constants (`net.listener.MAX_LEAVING`) and settings (`max.connections`), whose values come from the code. A
limit without a constant has a written value. The text around the tables belongs to the page. `make docs` runs it. With
`--check`, as in `make check`, it writes nothing and fails if the page is outdated.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ottla.common.config.config_keys_broker import BROKER_CONFIGS
from ottla.common.config.topic_configs import TOPIC_CONFIGS

PAGE = Path(__file__).parent / "operations/limits.md"
TABLE = re.compile(r"(?<=\n)(?:\|.*\n)+")
HEAD = "| limit | setting or constant | value | enforced in |\n| --- | --- | --- | --- |\n"
UNLIMITED = {2**31 - 1, 2**63 - 1}
KIB, MIB = 1 << 10, 1 << 20


class Row(NamedTuple):
    """One limit: text, names of constants and settings, modules if they are not those of the constants, other value."""

    text: str
    names: tuple[str, ...] = ()
    where: str = ""
    value: str = ""


def row(text: str, *names: str, where: str = "", value: str = "") -> Row:
    """A row; `value` is for limits that no constant or setting has."""
    return Row(text, names, where, value)


CONNECTIONS = [
    row(
        "connections of a broker, within the limit on open files; above it the oldest connection that has sent no "
        "request is closed for a new one, others wait",
        "max.connections",
        where="app/process.py, net/connection_set.py",
    ),
    row("connections of one address", "max.connections.per.ip", where="net/connection_set.py"),
    row("idle connection", "connections.max.idle.ms", where="net/connection_set.py"),
    row("half-closed peer with a parked request", "net.connection.HALF_CLOSED_GRACE_S"),
    row("peer that does not read the last response", "net.connection.CLOSING_GRACE_S"),
    row(
        "connections above the rate of their address that a listener keeps for up to a quota window",
        "net.listener.MAX_LEAVING",
    ),
    row("connections accepted by a listener per tick", "net.listener.MAX_ACCEPTS_PER_TICK"),
    row("TLS handshake", "net.tls.HANDSHAKE_TIMEOUT_S", "net.tls.MAX_HANDSHAKE_BYTES"),
    row("concurrent handshakes of a listener; above it the oldest one is closed", "net.tls.MAX_HANDSHAKES"),
    row("handshakes and accepted TLS connections per tick", "net.wire.MAX_HANDSHAKES_PER_TICK"),
]
REQUESTS = [
    row("size of a request", "socket.request.max.bytes", where="net/connection.py"),
    row(
        "size of a request before authentication",
        "sasl.server.max.receive.size",
        where="net/connection.py, app/sasl.py",
    ),
    row(
        "first memory for an announced request; it doubles as bytes arrive",
        "net.connection.INITIAL_OWN_BYTES",
    ),
    row("requests in progress per connection", where="net/connection.py", value="1"),
    row(
        "bytes read ahead; with TLS, the second one behind a large frame",
        "net.connection_set.RECEIVE_BYTES",
        "net.tls.LARGE_CIPHERTEXT_BYTES",
    ),
    row(
        "requests of one connection before others are served, of one read or the rest of one frame",
        "net.connection.MAX_REQUESTS_PER_TICK",
    ),
    row(
        "time per tick for connections with several requests, accepts and large responses; the same for the queued",
        "common.platform.shares.TICK_S",
        where="common/platform/shares.py, net/connection.py",
    ),
    row(
        "time for one step of a long response; its items (configs 8, groups 16)",
        "common.platform.shares.SHARE_S",
        "server.requests.stepped.PART_ITEMS",
    ),
    row("request body that is read in one step", "server.requests.dispatch.LARGE_BODY_BYTES"),
    row(
        "elements and tagged fields of a request: the second one, eight per existing partition and 8,000; at most the "
        "first one",
        "protocol.codec.MAX_REQUEST_ELEMENTS",
        "server.requests.request_limits.REQUEST_ELEMENTS",
    ),
    row("elements of a response that a node reads", "protocol.codec.MAX_RESPONSE_ELEMENTS"),
    row("tagged fields of a struct", "protocol.reader.MAX_STRUCT_TAGGED_FIELDS"),
    row("tagged fields of a header, Produce or Fetch section", "protocol.tags.MAX_TAGGED_FIELDS"),
    row("length or count in a message", where="protocol/reader.py", value="the bytes that remain"),
    row(
        "partitions in one Fetch, Produce, ListOffsets, OffsetForLeaderEpoch or DeleteRecords request, beside the "
        "existing partitions",
        "server.requests.request_limits.UNKNOWN_PARTITIONS_PER_REQUEST",
    ),
    row("cached responses per API", "server.requests.response_cache.MAX_BYTES"),
    row("log lines that a client can cause, per place and window", "app.logging.BURST", "app.logging.WINDOW_S"),
    row("window in which a defect is logged once per place", "server.requests.failures.INTERVAL_S"),
]
RESPONSES = [
    row(
        "records of a fetch response; the first batch is always complete",
        "fetch.max.bytes",
        where="server/handlers/data/consumer_fetch.py",
    ),
    row(
        "bytes copied for a peer that does not read; above it the peer is not served",
        "net.sender.MAX_COPIED_BYTES",
    ),
    row(
        "bytes sent before others are served, from the loop and from the pool",
        "net.outbound.MAX_BYTES_PER_TICK",
        "net.outbound.MAX_BYTES_PER_JOB",
    ),
    row("concurrent cold reads per listener; memory of each", "net.sender.MAX_JOBS", "net.sender.READ_BYTES"),
    row("fetch sessions", "max.incremental.fetch.session.cache.slots", where="replica/fetch_session.py"),
    row(
        "partitions in all fetch sessions; above it fetches have no session",
        "replica.fetch_session.MAX_CACHED_PARTITIONS",
    ),
    row(
        "records converted by a Fetch below version 4, beside one batch; one such request at a time",
        "server.handlers.data.old_fetch.MAX_CONVERTED_BYTES",
    ),
    row(
        "records of one converted batch; more is MESSAGE_TOO_LARGE",
        "record.legacy.down_conversion.MAX_CONVERTED_RECORDS",
    ),
    row(
        "batches that one lookup in a partition opens because their header was wrong",
        "storage.log.lookup.MAX_MISLEADING",
    ),
]
BATCHES = [
    row("batch as sent", "max.message.bytes", where="storage/log/log_writer.py"),
    row("batch decompressed", "record.compression.DEFAULT_MAX_BYTES"),
    row(
        "record in a compressed batch; with the default batches are not opened for this",
        "max.decompressed.message.bytes",
        where="storage/log/append_rules.py",
    ),
    row(
        "batches decompressed for one Produce request; above it the rest must be sent again",
        "storage.log.append_rules.MAX_BYTES_PER_REQUEST",
    ),
    row("records of a batch, beside the limits of its bytes and its codec", "record.validate._MAX_RECORDS"),
    row(
        "refused records listed per batch and per request",
        "storage.log.append_rules.MAX_NAMED_RECORDS",
        "server.handlers.data.produce.MAX_NAMED_RECORDS_PER_REQUEST",
    ),
    row(
        "pool threads that decompress; all but one of them for long batches",
        "server.requests.pool_share.COMPUTE_THREADS",
    ),
    row("decompressed bytes of a short task", "storage.files.off_loop.BYTES_PER_TURN"),
    row(
        "transaction verifications in progress per partition; above it the oldest is refused with INVALID_TXN_STATE",
        "storage.log.verification.MAX_VERIFICATIONS",
    ),
]
GROUPS = [
    row(
        "metadata, subscription or assignment of a member",
        "group.coordinator.member.max.bytes",
        where="coordinator/group/coordinator.py, coordinator/group/modern/consumer/heartbeat.py",
    ),
    row("the same of a group", "group.coordinator.group.max.bytes", where="coordinator/group/member_memory.py"),
    row("the same of a broker", "group.coordinator.max.bytes", where="coordinator/group/member_memory.py"),
    row(
        "size above which a member uses only one half of the broker's limit",
        "coordinator.group.member_memory.SMALL_MEMBER_BYTES",
    ),
    row("metadata of a committed offset", "offset.metadata.max.bytes", where="coordinator/group/offsets/offsets.py"),
    row(
        "ids of groups, members and instances; protocol names",
        "coordinator.group.operations.MAX_STORED_STRING_BYTES",
    ),
    row(
        "transactional ids and their open partitions, half each (350,000 ids); above it new ids get "
        "COORDINATOR_NOT_AVAILABLE",
        "transaction.coordinator.max.bytes",
        where="coordinator/transaction/memory.py",
    ),
    row(
        "state of share partitions; above it new and larger states get COORDINATOR_NOT_AVAILABLE",
        "share.coordinator.max.bytes",
        where="coordinator/share/memory.py",
    ),
    row("state batches of a share partition", "coordinator.share.shard.MAX_BATCHES"),
    row(
        "dead letters of a share partition in progress, and their copied bytes",
        "server.coordination.dead_letter_writer.CHUNK",
        "server.coordination.dead_letter_source.MAX_BYTES",
    ),
    row("producer ids of the dead letters of a share partition", "share.dead_letters.SLOTS"),
    row(
        "transactional id; pattern that lists ids",
        "coordinator.transaction.records.MAX_ID_BYTES",
        "common.kafka.patterns.MAX_PATTERN_BYTES",
    ),
    row(
        "ids examined and records written per step of a sweep",
        "coordinator.transaction.sweeps.EXAMINED_PER_STEP",
        "coordinator.transaction.sweeps.WRITTEN_PER_STEP",
    ),
    row("ids filtered per step of a listing", "coordinator.transaction.listing.EXAMINED_PER_STEP"),
    row(
        "records of one coordinator request, by the internal topic's limit; above it UNKNOWN_SERVER_ERROR, for "
        "OffsetCommit INVALID_COMMIT_OFFSET_SIZE",
        "max.message.bytes",
        where="coordinator/runtime/context.py",
    ),
    row("space reserved for the records that end a transaction", "coordinator.transaction.records.ENDING_BYTES"),
]
CLIENT_METRICS = [
    row(
        "metrics of a push, as sent and decompressed; above it TELEMETRY_TOO_LARGE",
        "telemetry.max.bytes",
        where="server/handlers/telemetry/push_telemetry.py, telemetry/receiver.py",
    ),
    row(
        "resources, scopes and metrics of a push; size of a metric; of a resource; above it TELEMETRY_TOO_LARGE",
        "telemetry.bounds.MAX_MESSAGES",
        "telemetry.bounds.MAX_METRIC_BYTES",
        "telemetry.bounds.MAX_RESOURCE_BYTES",
        where="telemetry/otlp.py",
    ),
    row(
        "points of a metric; attributes of a point; the rest is omitted",
        "telemetry.bounds.MAX_POINTS",
        "telemetry.bounds.MAX_ATTRIBUTES",
        where="telemetry/otlp.py",
    ),
    row(
        "buckets of a histogram; one with more is omitted",
        "telemetry.bounds.MAX_BUCKETS",
        where="telemetry/otlp.py",
    ),
    row(
        "client instances; above it the least recently used one is removed",
        "telemetry.bounds.MAX_INSTANCES",
        where="telemetry/instances.py",
    ),
    row("client instances of a connection", where="telemetry/instances.py", value="1"),
    row(
        "series of a client; of all clients; the rest is omitted",
        "telemetry.bounds.MAX_CLIENT_SERIES",
        "telemetry.bounds.MAX_SERIES",
        where="telemetry/receiver.py",
    ),
    row(
        "name of a metric, longer ones are omitted; labels of a point; characters of a label",
        "telemetry.bounds.MAX_NAME_CHARACTERS",
        "telemetry.bounds.MAX_LABELS",
        "telemetry.bounds.MAX_LABEL_CHARACTERS",
        where="telemetry/receiver.py",
    ),
    row("subscriptions", "metadata.max.client.metrics", where="controller/configs.py"),
    row(
        "time without a request, or three push intervals, after which a client expires",
        "telemetry.instances.MIN_EXPIRY_S",
    ),
]
METADATA = [
    row("topics being auto-created", "server.metadata.topic_creation.MAX_ON_DEMAND"),
    row("metadata records of one admin request or part", "controller.result.MAX_RECORDS_PER_USER_OP"),
    row(
        "metadata records that a controller prepares, or a follower decodes or replays, in one turn of the event loop",
        "controller.result.RECORDS_PER_TURN",
        "quorum.fetcher.RECORDS_PER_FETCH_TURN",
        "quorum.replay.MESSAGES_PER_TURN",
    ),
    row(
        "batch of the metadata log or of a snapshot; larger requests get RECORD_LIST_TOO_LARGE",
        "metadata.bounds.MAX_BATCH_BYTES",
    ),
    row(
        "names of principals, users, client ids, groups, resources; host of an ACL",
        "metadata.bounds.MAX_NAME_BYTES",
        "metadata.bounds.MAX_HOST_BYTES",
    ),
    row(
        "salt and salted password of a SCRAM credential; above it UNACCEPTABLE_CREDENTIAL",
        "metadata.bounds.MAX_SALT_BYTES",
        "metadata.bounds.MAX_SALTED_PASSWORD_BYTES",
    ),
    row(
        "renewers of a delegation token; their names; above it POLICY_VIOLATION",
        "metadata.bounds.MAX_RENEWERS",
        "metadata.bounds.MAX_RENEWERS_BYTES",
    ),
    row(
        "delegation tokens per owner; per cluster",
        "metadata.max.delegation.tokens.per.owner",
        "metadata.max.delegation.tokens",
        where="controller/delegation_tokens.py",
    ),
    row("ACLs", "metadata.max.acls", where="controller/acls.py"),
    row("SCRAM credentials", "metadata.max.scram.credentials", where="controller/scram_credentials.py"),
    row("quota entities", "metadata.max.client.quotas", where="controller/client_quotas.py"),
    row("groups with configs", "metadata.max.group.configs", where="controller/configs.py"),
    row(
        "configs of one broker, topic or group; above it INVALID_CONFIG",
        "metadata.bounds.MAX_SETTINGS",
        "metadata.bounds.MAX_SETTINGS_BYTES",
    ),
    row("characters of one config", "common.config.config_def.MAX_VALUE_LENGTH"),
    row(
        "changed ACLs shown in the audit log; characters of a name",
        "security.authorizer.MAX_LOGGED_CHANGES",
        "security.authorizer.MAX_SHOWN_CHARACTERS",
    ),
    row(
        "one change on ZooKeeper, half of `jute.maxbuffer`; above it POLICY_VIOLATION",
        "zookeeper.batches.MAX_BATCH_BYTES",
    ),
    row("leader epochs that one request may skip", "quorum.raft_requests.MAX_EPOCH_STEP"),
    row("observers of the metadata log", "quorum.raft_leader.MAX_OBSERVERS"),
    row("response with records or a snapshot of the metadata log", "quorum.service.MAX_ANSWER_BYTES"),
    row("endpoints of a voter; length of a host", "quorum.service.MAX_ENDPOINTS", "quorum.service.MAX_HOST_LENGTH"),
]
PROCESS = [
    row(
        "open segment and index files: a quarter of the limit on open files, at most this",
        "storage.directory.log_manager.DEFAULT_OPEN_FILES",
        where="app/process.py",
    ),
    row("threads of the pool", "app.pool.MAX_THREADS"),
    row(
        "quota groups in memory; addresses; above it the least recently used are dropped",
        "quota.groups.MAX_GROUPS",
        "quota.connection_rate.MAX_ADDRESSES",
    ),
    row("quota groups with metrics", "server.requests.client_quotas.MAX_SHOWN_GROUPS"),
    row("metric series", "metrics.registry.MAX_SERIES"),
    row(
        "series of connections by client software; characters of a client's software that are kept",
        "app.scraping.MAX_CLIENT_SOFTWARE",
        "server.handlers.admin.api_versions.MAX_SOFTWARE_LENGTH",
    ),
    row(
        "partitions, groups, committed offsets and share partitions with series of a scrape; the rest is counted",
        "server.wiring.partition_series.MAX_PARTITIONS",
        "server.wiring.group_series.MAX_GROUPS",
        "server.wiring.group_series.MAX_OFFSETS",
        "server.coordination.share_series.MAX_SHARE_PARTITIONS",
    ),
    row(
        "concurrent scrapes; size and time of a scrape request",
        "net.metrics_endpoint.MAX_CONNECTIONS",
        "net.metrics_endpoint.MAX_REQUEST_BYTES",
        "net.metrics_endpoint.MAX_LIFE_S",
    ),
]
TABLES = {
    "Connections": CONNECTIONS,
    "Requests": REQUESTS,
    "Responses and disk reads": RESPONSES,
    "Batches": BATCHES,
    "Groups and transactions": GROUPS,
    "Client metrics": CLIENT_METRICS,
    "Metadata": METADATA,
    "Process": PROCESS,
}
"""Rows by the heading of the page."""


def is_constant(name: str) -> bool:
    """Whether a name is a constant of a module, and not a setting."""
    return name.rpartition(".")[2].isupper()


def value_of(name: str) -> object:
    """The value of a constant, or the default of a setting. Raises AttributeError or KeyError for unknown names."""
    if is_constant(name):
        module, _, constant = name.rpartition(".")
        return getattr(importlib.import_module(f"ottla.{module}"), constant)
    return (BROKER_CONFIGS if name in BROKER_CONFIGS else TOPIC_CONFIGS)[name].default


def formatted(name: str, value: object) -> str:
    """A value with the unit that its name ends with."""
    assert isinstance(value, int | float), name
    unit = re.split(r"[._]", name.lower())[-1]
    if value in UNLIMITED:
        return "no limit"
    if unit == "s" and value < 1:
        return f"{value * 1000:g} ms"
    if unit in {"s", "ms"}:
        return f"{value:,g} {unit}" if value < 1e6 else f"{value:,} {unit}"
    if "bytes" in name.lower() or unit == "size":
        for size, symbol in ((MIB, "MiB"), (KIB, "KiB")):
            if value % size == 0 and value >= size:
                return f"{value // size:,} {symbol}"
        return f"{value:,} bytes"
    return f"{value:,}"


def modules(names: tuple[str, ...]) -> Iterator[str]:
    """The files of the constants, each once."""
    paths = (name.rpartition(".")[0].replace(".", "/") + ".py" for name in names if is_constant(name))
    yield from dict.fromkeys(paths)


def line(each: Row) -> str:
    """One line of a table."""
    shown = [name.rpartition(".")[2] if is_constant(name) else name for name in each.names]
    names = ", ".join(f"`{name}`" for name in shown if not name.startswith("_"))
    value = each.value or "; ".join(formatted(name, value_of(name)) for name in each.names)
    where = each.where.split(", ") if each.where else modules(each.names)
    files = ", ".join(f"`{path}`" for path in where)
    return f"| {each.text} | {names} | {value} | {files} |\n"


def limits_page(text: str) -> str:
    """The page with its tables replaced."""
    for heading, rows in TABLES.items():
        before, mark, after = text.partition(f"\n## {heading}\n")
        if not mark:
            raise ValueError(f"{PAGE} has no heading {heading}")
        table = HEAD + "".join(line(each) for each in rows)
        text = before + mark + TABLE.sub(lambda _, table=table: table, after, count=1)
    return text


def main(arguments: list[str]) -> int:
    """Write the page, or with `--check` compares it. Returns the exit code."""
    written = PAGE.read_text(encoding="utf-8")
    page = limits_page(written)
    if arguments != ["--check"]:
        PAGE.write_text(page, encoding="utf-8")
        return 0
    if page == written:
        return 0
    print("docs/operations/limits.md is outdated: run `make docs`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
