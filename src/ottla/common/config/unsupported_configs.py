"""Settings of Apache Kafka 4.4 without effect here, with the reason that the warning gives.

`INERT_CONFIGS`: the start logs a warning. `SECURITY_CONFIGS`: the operator would believe in a protection that does not
exist, so the start fails unless the value is the harmless one. `STORED_CONFIGS`: validated, stored and described; the
broker's own also log the warning. `PER_BROKER_SECURITY` and `LISTENER_SECURITY`: dynamic in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_REASONS: tuple[tuple[str, str], ...] = (
    (
        "one event loop serves all requests, without thread pools",
        "group.coordinator.background.threads group.coordinator.threads "
        "num.replica.alter.log.dirs.threads "
        "share.coordinator.threads",
    ),
    (
        "requests wait in the socket of their connection, not in a request queue",
        "queued.max.request.bytes queued.max.requests",
    ),
    (
        "completed requests leave the purgatory at once, without purging",
        "delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests "
        "producer.purgatory.purge.interval.requests share.fetch.purgatory.purge.interval.requests",
    ),
    (
        "every shutdown of a clustered broker is controlled, with a time limit of the controller",
        "controlled.shutdown.enable controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms",
    ),
    (
        "metadata records of one event loop tick are written together, without further delay",
        "controller.quorum.append.linger.ms",
    ),
    (
        "requests between nodes have fixed limits",
        "controller.quorum.fetch.snapshot.max.bytes controller.socket.timeout.ms request.timeout.ms "
        "socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms",
    ),
    ("the operating system sizes the buffers of connections between brokers", "replica.socket.receive.buffer.bytes"),
    ("all listeners accept connections from the same point of the start", "early.start.listeners"),
    (
        "versions that are unstable in Apache Kafka are not supported",
        "unstable.api.versions.enable unstable.feature.versions.enable",
    ),
    (
        "the parts of share groups can't be replaced, and share.version enables them",
        "group.share.enable group.share.persister.class.name group.share.dlq.manager.class.name",
    ),
    (
        "streams groups are not supported yet",
        "group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms "
        "group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms group.streams.max.size "
        "group.streams.max.standby.replicas group.streams.min.heartbeat.interval.ms "
        "group.streams.min.session.timeout.ms group.streams.num.standby.replicas group.streams.session.timeout.ms "
        "group.streams.acceptable.recovery.lag group.streams.assignors group.streams.max.assignment.interval.ms "
        "group.streams.max.warmup.replicas group.streams.min.assignment.interval.ms "
        "group.streams.min.task.offset.interval.ms group.streams.num.warmup.replicas "
        "group.streams.rack.aware.assignment.tags group.streams.task.offset.interval.ms "
        "group.streams.topology.description.plugin.class",
    ),
    ("two-phase commit is unstable in Apache Kafka and not supported", "transaction.two.phase.commit.enable"),
    (
        "the replication throttle is a token bucket of one second, without windows",
        "alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds "
        "replication.quota.window.num replication.quota.window.size.seconds",
    ),
    (
        "tiered storage is not supported yet",
        "remote.log.manager.copy.quota.window.num "
        "remote.log.manager.copy.quota.window.size.seconds "
        "remote.log.manager.fetch.quota.window.num "
        "remote.log.manager.fetch.quota.window.size.seconds "
        "remote.log.manager.task.interval.ms "
        "remote.log.manager.thread.pool.size remote.log.metadata.custom.metadata.max.bytes "
        "remote.log.metadata.manager.class.name remote.log.metadata.manager.class.path "
        "remote.log.metadata.manager.impl.prefix remote.log.metadata.manager.listener.name "
        "remote.log.reader.max.pending.tasks remote.log.storage.manager.class.name "
        "remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix "
        "remote.log.storage.system.enable "
        "remote.log.index.file.cache.ttl.ms remote.log.manager.task.retry.backoff.max.ms "
        "remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter",
    ),
    (
        "records of one event loop tick are written together, without further delay",
        "group.coordinator.append.linger.ms share.coordinator.append.linger.ms",
    ),
    (
        "reads while a coordinator loads are limited by time",
        "offsets.load.buffer.size share.coordinator.load.buffer.size transaction.state.log.load.buffer.size",
    ),
    (
        "the active controller writes no no-op records",
        "metadata.max.idle.interval.ms",
    ),
    (
        "a failed data directory is reported to the controller until it responds",
        "log.dir.failure.timeout.ms",
    ),
    ("Ottla does not load Java classes", "auto.include.jmx.reporter"),
    (
        "metrics are exposed for Prometheus by --metrics-port",
        "kafka.metrics.polling.interval.secs kafka.metrics.reporters metrics.num.samples "
        "metrics.recording.level metrics.sample.window.ms",
    ),
    (
        "Ottla has no such component to tune",
        "controller.performance.always.log.threshold.ms controller.performance.sample.period.ms "
        "controller.quorum.fetch.max.bytes internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes "
        "internal.metadata.max.batch.size.in.bytes "
        "server.max.startup.time.ms unclean.leader.election.interval.ms",
    ),
    (
        "keytab tickets are obtained without kinit; the ticket cache is renewed outside of Ottla",
        "sasl.kerberos.kinit.cmd",
    ),
    (
        "the ZooKeeper client has no such limit here",
        "zookeeper.max.in.flight.requests",
    ),
    (
        "Apache Kafka 4 removed it",
        "broker.id.generation.enable control.plane.listener.name group.coordinator.new.enable "
        "inter.broker.protocol.version log.message.downconversion.enable log.message.format.version "
        "log.message.timestamp.difference.max.ms "
        "offsets.commit.required.acks "
        "password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length "
        "password.encoder.keyfactory.algorithm reserved.broker.max.id",
    ),
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _by_name(reasons: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    return {name: reason for reason, names in reasons for name in names.split()}


INERT_CONFIGS: Mapping[str, str] = _by_name(_REASONS)
"""Reason why each of these settings has no effect."""

STORED_CONFIGS: Mapping[str, str] = _by_name(
    (
        (
            "tiered storage is not supported yet",
            "follower.fetch.last.tiered.offset.enable log.local.retention.bytes log.local.retention.ms "
            "log.remote.copy.lag.bytes log.remote.copy.lag.ms remote.fetch.max.wait.ms "
            "remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes "
            "remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second "
            "remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second "
            "remote.log.manager.follower.thread.pool.size remote.log.reader.threads",
        ),
        ("blocks are allocated as a segment grows", "log.preallocate"),
        (
            "one event loop serves all requests, without thread pools",
            "background.threads group.consumer.assignor.offload.enable group.share.assignor.offload.enable "
            "num.io.threads num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers",
        ),
        (
            "streams groups are not supported yet",
            "group.streams.assignment.interval.ms group.streams.assignor.offload.enable",
        ),
        (
            "coordinators do not cache buffers",
            "group.coordinator.cached.buffer.max.bytes share.coordinator.cached.buffer.max.bytes",
        ),
        ("Ottla does not load Java classes", "config.providers"),
        ("metrics are exposed for Prometheus by --metrics-port", "metric.reporters"),
    )
)
"""Reason why each of these settings, and the topic setting that it is the default of, has no effect."""

_OAUTH = "org.apache.kafka.common.security.oauthbearer"
SECURITY_CONFIGS: Mapping[str, str | None] = {
    "alter.config.policy.class.name": None,
    "client.quota.callback.class": None,
    "create.topic.policy.class.name": None,
    "password.encoder.old.secret": None,
    "password.encoder.secret": None,
    "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    "sasl.login.callback.handler.class": f"{_OAUTH}.OAuthBearerLoginCallbackHandler",
    "sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
    "security.providers": None,
}
"""Security settings, with the harmless value of each (None: only an empty one)."""

PER_BROKER_SECURITY = _names(
    "principal.builder.class sasl.enabled.mechanisms sasl.jaas.config sasl.kerberos.kinit.cmd "
    "sasl.kerberos.min.time.before.relogin sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name "
    "sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds "
    "sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter "
    "sasl.mechanism.inter.broker.protocol ssl.cipher.suites ssl.client.auth ssl.enabled.protocols "
    "ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.keymanager.algorithm ssl.protocol "
    "ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm"
)
"""Security settings of one broker that are dynamic in Apache Kafka."""

LISTENER_SECURITY = _names(
    "ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password "
    "ssl.keystore.type ssl.truststore.certificates ssl.truststore.location ssl.truststore.password "
    "ssl.truststore.type"
)
"""Security settings that Apache Kafka changes for one listener only, by `listener.name.<name>.` before the name."""

SECURITY_PREFIXES = ("ssl.", "sasl.", "zookeeper.ssl.")
"""Prefixes of all other security settings, which have no harmless value."""
