"""`BrokerConfig`: the broker's settings, validated, with the layers they came from.

Layers, best first: dynamic for this broker, dynamic for the cluster (both from the metadata log), static (file and
command line), default. A `BrokerConfig` never changes: dynamic updates create a new one with `with_dynamic`, and the
settings that shape the process (identity, listeners, directories) come from the static layer only.

An invalid static setting is an operator error: OperatorError names the setting and the fix. An invalid dynamic setting
is a client error: KafkaError INVALID_REQUEST, as in Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.common.config.config_def import (
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    UpdateMode,
    render,
)
from ottla.common.config.config_keys_authorizer import STANDARD_AUTHORIZER
from ottla.common.config.config_keys_broker import BROKER_CONFIGS, SYNONYM_CHAINS
from ottla.common.config.config_keys_share_groups import ORDERED_SHARE_SETTINGS
from ottla.common.config.config_keys_zookeeper import MIGRATION, ZOOKEEPER_CONNECT
from ottla.common.config.controller_addresses import parse_servers, parse_voters
from ottla.common.config.group_configs import GROUP_CONFIGS, describe_group_config, validate_group_configs
from ottla.common.config.listener_configs import (
    CONNECTION_RATE,
    LISTENER_CONFIGS,
    canonical,
    check_advertised,
    check_distinct_addresses,
    implied_controllers,
    of_listener,
    parse_endpoints,
    parse_protocols,
    protocol_of,
    without_listener,
)
from ottla.common.config.lockouts import QUOTAS, is_ignored, shuts_out
from ottla.common.config.topic_configs import TOPIC_CONFIGS, describe_topic_config, topic_defaults, topic_properties
from ottla.common.config.unsupported_configs import (
    INERT_CONFIGS,
    LISTENER_SECURITY,
    PER_BROKER_SECURITY,
    SECURITY_CONFIGS,
    SECURITY_PREFIXES,
    STORED_CONFIGS,
)
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.platform.endpoint import Endpoint, ListenerInfo
from ottla.common.suggestion import did_you_mean

METRICS_LISTENER = "METRICS"
"""Listener name of the metrics endpoint in listener settings."""
MAX_REPORTED = 100
"""Stored lockouts that are remembered as logged; more of them reset the memory."""
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_WILDCARDS = ("", "0.0.0.0", "::")

_CHAIN_OF: Mapping[str, tuple[str, ...]] = {
    name: chain[index:] for chain in SYNONYM_CHAINS for index, name in enumerate(chain)
}

logger = logging.getLogger(__name__)


class BrokerConfig:
    """The effective settings of one broker; immutable."""

    __slots__ = (
        "_advertised",
        "_dynamic_broker",
        "_dynamic_default",
        "_ignored",
        "_of_listeners",
        "_reported",
        "_static",
        "_topic_defaults",
        "_values",
        "advertised_listeners",
        "bootstrap_controllers",
        "configured_voters",
        "controller_listeners",
        "listeners",
        "log_dirs",
        "metadata_log_dir",
        "node_id",
    )

    def __init__(
        self,
        static: Mapping[str, str],
        dynamic_default: Mapping[str, str] | None = None,
        dynamic_broker: Mapping[str, str] | None = None,
    ) -> None:
        """Build the config from validated settings; use `parse` for unvalidated ones."""
        self._static = dict(static)
        self._ignored: frozenset[str] = frozenset()
        self._reported: set[tuple[str, str]] = set()
        self._dynamic_default = dict(dynamic_default or {})
        self._dynamic_broker = dict(dynamic_broker or {})
        merged = self._static | self._dynamic_default | self._dynamic_broker
        self._values: dict[str, ConfigValue] = {
            name: key.parse(merged[name]) if name in merged else key.default for name, key in BROKER_CONFIGS.items()
        }
        self._of_listeners = {name: text for name, text in merged.items() if name not in BROKER_CONFIGS}
        self._topic_defaults = topic_defaults(self._values, frozenset(merged))
        self.node_id = _node_id(self._static)
        self._values["node.id"] = self._values["broker.id"] = self.node_id
        self.log_dirs = self._distinct_log_dirs()
        self.metadata_log_dir = self.get_str("metadata.log.dir") or self.log_dirs[0]
        self.listeners, self.controller_listeners = _bound_listeners(self)
        self._advertised = _advertised_listeners(self)
        self.advertised_listeners = tuple(
            item for item in self._advertised if item.listener_name not in self.controller_listener_names
        )
        self.bootstrap_controllers = parse_servers(self.get_list("controller.quorum.bootstrap.servers"))
        self.configured_voters = parse_voters(self.get_list("controller.quorum.voters"))

    @classmethod
    def parse(cls, properties: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
        """Parse a `server.properties`; returns the config and one warning for each setting without effect.

        Raises OperatorError with the name of the setting for an invalid value, a contradiction, or a security setting
        that is not implemented.
        """
        known: dict[str, str] = {}
        warnings: list[str] = []
        of_listeners: list[str] = []
        for name, text in properties.items():
            if name in BROKER_CONFIGS:
                _check_static_value(BROKER_CONFIGS[name], text, name)
                known[name] = text
                if name in STORED_CONFIGS:
                    warnings.append(f"{name} has no effect: {STORED_CONFIGS[name]}")
                continue
            base = without_listener(name)
            if base in LISTENER_CONFIGS:
                _check_static_value(BROKER_CONFIGS[base], text, name)
                known[canonical(name)] = text
                if base != CONNECTION_RATE:
                    of_listeners.append(name)
                continue
            _refuse_security(name, base, text)
            if base in SECURITY_CONFIGS:
                continue
            reason = INERT_CONFIGS.get(base)
            if base in BROKER_CONFIGS:
                reason = "it can't be set for one listener"
            if reason is not None:
                warnings.append(f"{name} has no effect: {reason}")
            else:
                hint = did_you_mean(base, BROKER_CONFIGS)
                warnings.append(f"{name} is not a known setting and has no effect{hint}")
        config = cls(known)
        _check_migration(config)
        if config.on_zookeeper:
            _check_zookeeper(config, known)
        elif config.get_str(ZOOKEEPER_CONNECT) and not config.leads_migration:
            warnings.append(f"{ZOOKEEPER_CONNECT} has no effect: process.roles is set, so the metadata is in a quorum")
        _check_roles(config)
        _check_group_timeouts(config)
        _check_authorizer(config, known)
        spoken = (*config.spoken_listeners, config.metrics_listener)
        if not any(listener.security_protocol != "PLAINTEXT" for listener in spoken):
            warnings.extend(f"{name} has no effect: no listener uses TLS or SASL" for name in of_listeners)
        if not (config.clustered or config.migrating_broker):
            warnings.extend(
                f"listener {endpoint.listener_name} is not opened: the only controller is in this process"
                for endpoint in config.controller_listeners
            )
        return config, warnings

    def with_dynamic(
        self, default: Mapping[str, str], broker: Mapping[str, str], *, report: bool = True
    ) -> BrokerConfig:
        """Return the same static settings combined with the dynamic ones of the cluster and of this broker.

        Read-only names are dropped: a metadata log of Apache Kafka may contain settings without effect here. A stored
        value that blocks all clients is ignored and logged, so that the operator can remove it; without `report` (for
        proposed settings) it is not logged.
        """
        defaults, own = _only_dynamic(default), _only_dynamic(broker)
        for layer in (defaults, own):
            for name in [each for each in layer if is_ignored(each, self._ignored)]:
                del layer[name]
        given = self._static | defaults | own
        for layer in (defaults, own):
            for name in [each for each, text in layer.items() if shuts_out(each, text, given)]:
                text = layer.pop(name)
                if report:
                    self._report(name, text)
        result = BrokerConfig(self._static, defaults, own)
        result._ignored, result._reported = self._ignored, self._reported
        return result

    def _report(self, name: str, text: str) -> None:
        """Log a stored lockout once for each value: the config is rebuilt at every metadata change."""
        if (name, text) not in self._reported:
            if len(self._reported) >= MAX_REPORTED:
                self._reported.clear()
            self._reported.add((name, text))
            logger.error("%s=%s is ignored because no client could connect: remove the setting", name, text)

    def ignoring(self, names: frozenset[str]) -> BrokerConfig:
        """Return the same settings, with these names excluded in `with_dynamic` (`ottla config recover`)."""
        result = BrokerConfig(self._static, self._dynamic_default, self._dynamic_broker)
        result._ignored = names
        return result

    @property
    def ignores_quotas(self) -> bool:
        """Return whether client quotas are disabled, regardless of the metadata."""
        return is_ignored(QUOTAS, self._ignored)

    def get(self, name: str) -> ConfigValue:
        """Return the effective value; raises KeyError for an unknown name."""
        return self._values[name]

    def get_int(self, name: str) -> int:
        value = self._values[name]
        if type(value) is not int:
            raise TypeError(f"{name} is not a whole number that is always set")
        return value

    def get_float(self, name: str) -> float:
        value = self._values[name]
        if not isinstance(value, float):
            raise TypeError(f"{name} is not a number that is always set")
        return value

    def get_bool(self, name: str) -> bool:
        value = self._values[name]
        if not isinstance(value, bool):
            raise TypeError(f"{name} is not a boolean")
        return value

    def get_str(self, name: str) -> str | None:
        value = self._values[name]
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} is not a string")
        return value

    def get_list(self, name: str) -> tuple[str, ...]:
        """Return the list, empty if not set."""
        value = self._values[name]
        if value is None:
            return ()
        if not isinstance(value, tuple):
            raise TypeError(f"{name} is not a list")
        return value

    def is_set(self, name: str) -> bool:
        """Return whether any layer sets this setting, even to its default value."""
        return any(name in layer for layer in (self._static, self._dynamic_default, self._dynamic_broker))

    @property
    def rack(self) -> str | None:
        return self.get_str("broker.rack")

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in self.get_list("controller.listener.names"))

    @property
    def controller_listener(self) -> ListenerInfo:
        """Listener on which nodes connect to a controller, including this one. Raises OperatorError without a
        protocol.
        """
        for name in self.controller_listener_names:
            return ListenerInfo(name, protocol_of("controller.listener.names", name, _security_protocols(self)))
        return ListenerInfo("CONTROLLER", "PLAINTEXT")

    @property
    def metrics_listener(self) -> ListenerInfo:
        """Listener of the metrics endpoint: the protocol mapped to METRICS, else PLAINTEXT. Raises OperatorError."""
        protocol = _security_protocols(self).get(METRICS_LISTENER, "PLAINTEXT")
        if protocol not in ("PLAINTEXT", "SSL"):
            raise OperatorError(
                f"listener.security.protocol.map maps {METRICS_LISTENER} to {protocol}, and metrics are served over "
                "HTTP, which has no SASL: map it to SSL or PLAINTEXT"
            )
        return ListenerInfo(METRICS_LISTENER, protocol)

    def of_listener(self, listener_name: str, setting: str, mechanism: str = "") -> ConfigValue:
        """Return a setting of `LISTENER_CONFIGS` for one listener, and for one SASL mechanism of it."""
        text = self._of_listeners.get(of_listener(listener_name, setting))
        if mechanism:
            text = self._of_listeners.get(of_listener(listener_name, setting, mechanism), text)
        return self._values[setting] if text is None else BROKER_CONFIGS[setting].parse(text)

    @property
    def connection_rates(self) -> dict[str, int]:
        """New connections per second of the listeners with their own limit."""
        texts = {
            each.listener_name: self._of_listeners.get(of_listener(each.listener_name, CONNECTION_RATE))
            for each in self.listeners
        }
        return {name: int(text) for name, text in texts.items() if text is not None}

    @property
    def spoken_listeners(self) -> tuple[ListenerInfo, ...]:
        """Listeners that this node opens, and the controller listener that it connects to. Raises OperatorError."""
        opened = (*self.listeners, *(self.controller_listeners if self.clustered else ()))
        controller = self.controller_listener
        connects = self.clustered or self.migrating_broker
        return tuple(dict.fromkeys([each.listener for each in opened] + [controller] * connects))

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener for connections between brokers; empty on a node without the broker role."""
        name = self.get_str("inter.broker.listener.name")
        if name:
            return name.upper()
        names = [each.listener_name for each in self.listeners]
        protocol = self.get_str("security.inter.broker.protocol") or ""
        return protocol if protocol in names else next(iter(names), "")

    @property
    def is_broker(self) -> bool:
        """Return whether this node has the broker role: it stores partitions and serves clients."""
        return "broker" in self._roles

    @property
    def is_controller(self) -> bool:
        """Return whether this node has the controller role: it may vote and become the active controller."""
        return "controller" in self._roles

    @property
    def _roles(self) -> tuple[str, ...]:
        if self.migrating_broker:
            return ("broker",)
        return self.get_list("process.roles") or ("broker", "controller")

    @property
    def on_zookeeper(self) -> bool:
        """Return whether the cluster's metadata is in ZooKeeper; with process.roles set, the setting is a remainder."""
        return bool(self.get_str(ZOOKEEPER_CONNECT)) and not (
            self.is_set("process.roles") and self.get_list("process.roles")
        )

    @property
    def leads_migration(self) -> bool:
        """Return whether this is a controller of a quorum that the cluster migrates to from ZooKeeper (KIP-866)."""
        return self.get_bool(MIGRATION) and not self.on_zookeeper

    @property
    def migrating_broker(self) -> bool:
        """Return whether this is a ZooKeeper broker that also registers with the quorum and migrates to it
        (KIP-866).
        """
        return self.on_zookeeper and self.get_bool(MIGRATION)

    @property
    def names_other_controllers(self) -> bool:
        """Return whether the settings name a controller other than this node's own."""
        if any(voter.node_id != self.node_id for voter in self.configured_voters):
            return True
        own = [(name, item.port) for item in self.controller_listeners for name in (item.host, *_LOOPBACK)]
        return any(address not in own for address in self.bootstrap_controllers)

    @property
    def clustered(self) -> bool:
        """Return whether this node may be one of several; if not, it is the broker and the only controller.

        It is true if the node names other controllers, has only one role, or names itself as a controller that
        listens. A ZooKeeper broker is a separate case (`on_zookeeper`).
        """
        if self.on_zookeeper:
            return False
        if self.names_other_controllers or not (self.is_broker and self.is_controller):
            return True
        return bool(self.controller_listeners) and bool(self.configured_voters or self.bootstrap_controllers)

    @property
    def topic_defaults(self) -> Mapping[str, ConfigValue]:
        """Values of topic settings without overrides."""
        return self._topic_defaults

    def topic_properties(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """Return the effective settings of a topic with these overrides, for `LogConfig.from_properties`."""
        return topic_properties(self._topic_defaults, overrides)

    def advertise(self, bound: Sequence[Endpoint], hostname: str) -> list[Endpoint]:
        """Return the endpoints that clients get, from the bound ones (real ports).

        Port 0 in `advertised.listeners` is replaced by the bound port, an empty or wildcard host by `hostname`.
        """
        configured = {endpoint.listener_name: endpoint for endpoint in self._advertised}
        result = []
        for endpoint in bound:
            advertised = configured.get(endpoint.listener_name, endpoint)
            host = hostname if advertised.host in _WILDCARDS else advertised.host
            result.append(
                Endpoint(endpoint.listener_name, endpoint.security_protocol, host, advertised.port or endpoint.port)
            )
        return result

    def _distinct_log_dirs(self) -> tuple[str, ...]:
        dirs = self.get_list("log.dirs")
        if self.get("log.dirs") is None:
            dirs = tuple(item.strip() for item in (self.get_str("log.dir") or "").split(","))
        if not dirs or not all(dirs):
            raise OperatorError("log.dirs names an empty directory; list the data directories")
        for number, path in enumerate(dirs):
            if path in dirs[:number]:
                raise OperatorError(f"log.dirs names {path} twice: name each directory once")
        return dirs

    # -- description ---------------------------------------------------------------------------------------------

    def synonyms(self, name: str) -> tuple[ConfigSynonym, ...]:
        """Candidates for the value of `name`, the one in effect first and the default last (KIP-226)."""
        chain = _CHAIN_OF.get(name, (name,))
        layers: Iterable[tuple[Mapping[str, str], ConfigSource]] = (
            (self._dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self._dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        found = [
            ConfigSynonym(synonym, None if BROKER_CONFIGS[synonym].sensitive else values[synonym], source)
            for values, source in layers
            for synonym in chain
            if synonym in values
        ]
        for synonym in chain:
            default = render(BROKER_CONFIGS[synonym].default)
            if default is not None:
                found.append(ConfigSynonym(synonym, default, ConfigSource.DEFAULT_CONFIG))
        return tuple(found)

    def describe(self) -> list[ConfigEntry]:
        """Return every effective broker setting, by name, for DescribeConfigs of this broker."""
        entries = []
        for name in sorted(BROKER_CONFIGS):
            key = BROKER_CONFIGS[name]
            if key.internal:
                continue
            synonyms = self.synonyms(name)
            own = [synonym for synonym in synonyms if synonym.name == name]
            source = own[0].source if own else ConfigSource.DEFAULT_CONFIG
            entries.append(self._entry(key, render(self._values[name]), source, synonyms))
        layers = (
            (self._dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self._dynamic_broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
        )
        further = {
            name: (layer[name], source) for layer, source in layers for name in layer if name not in BROKER_CONFIGS
        }
        return entries + [self._further_entry(name, *found) for name, found in sorted(further.items())]

    def describe_cluster_default(self) -> list[ConfigEntry]:
        """Return the dynamic settings of the whole cluster, for DescribeConfigs of the broker with the empty name."""
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        return [
            self._entry(BROKER_CONFIGS[name], text, source, (ConfigSynonym(name, text, source),))
            if name in BROKER_CONFIGS
            else self._further_entry(name, text, source)
            for name, text in sorted(self._dynamic_default.items())
        ]

    def describe_topic(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """Return every setting of a topic with these overrides, by name, for DescribeConfigs."""
        chains = {
            name: self.synonyms(name) for key in TOPIC_CONFIGS.values() for name, _factor in key.server_synonyms[:1]
        }
        return [
            describe_topic_config(TOPIC_CONFIGS[name], overrides, self._topic_defaults, chains)
            for name in sorted(TOPIC_CONFIGS)
            if not TOPIC_CONFIGS[name].internal
        ]

    def describe_group(self, overrides: Mapping[str, str]) -> list[ConfigEntry]:
        """Return every setting of a group with these overrides, by name, for DescribeConfigs."""
        return [
            describe_group_config(
                GROUP_CONFIGS[name],
                overrides,
                tuple(
                    synonym
                    for broker, _factor in GROUP_CONFIGS[name].server_synonyms
                    for synonym in self.synonyms(broker)
                ),
            )
            for name in sorted(GROUP_CONFIGS)
        ]

    def validate_group(self, overrides: Mapping[str, str]) -> None:
        """Check the settings of a group; raises KafkaError INVALID_CONFIG."""
        validate_group_configs(overrides, self._values)

    def _entry(
        self, key: ConfigKey, value: str | None, source: ConfigSource, synonyms: tuple[ConfigSynonym, ...]
    ) -> ConfigEntry:
        read_only = key.update_mode is UpdateMode.READ_ONLY
        shown = None if key.sensitive else value
        return ConfigEntry(key.name, shown, key.type, source, key.sensitive, read_only, key.doc, synonyms)

    def _further_entry(self, name: str, text: str, source: ConfigSource) -> ConfigEntry:
        """Return the entry of a listener setting, or of a name unknown to Kafka with a possibly secret value."""
        key = BROKER_CONFIGS.get(without_listener(name))
        if key is None:
            return ConfigEntry(
                name, None, ConfigType.UNKNOWN, source, True, True, "", (ConfigSynonym(name, None, source),)
            )
        shown = None if key.sensitive else text
        return self._entry(key._replace(name=name), shown, source, (ConfigSynonym(name, shown, source),))


def validate_dynamic(overrides: Mapping[str, str], *, cluster_default: bool) -> None:
    """Check dynamic settings of one broker or of all; raises KafkaError INVALID_REQUEST (KAFKA-13609: Kafka's choice).

    A name unknown to Apache Kafka may belong to a plugin and is accepted unchecked. An unsupported security setting
    is rejected: the operator would believe in a protection that does not exist.
    """
    _refuse_names("Cannot update these configs dynamically", overrides, _is_fixed)
    _refuse_names(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        overrides,
        LISTENER_SECURITY.__contains__,
    )
    if cluster_default:
        problem = "Cannot update these configs at default cluster level, broker id must be specified"
        _refuse_names(problem, overrides, _is_of_one_broker)
    for name, text in overrides.items():
        base = without_listener(name)
        try:
            _refuse_security(name, base, text)
            if name in BROKER_CONFIGS or base in LISTENER_CONFIGS:
                BROKER_CONFIGS[base].parse(text)
        except (KafkaError, OperatorError) as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _refuse_names(problem: str, names: Iterable[str], refused: Callable[[str], bool]) -> None:
    found = sorted(filter(refused, names))
    if found:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{problem}: [{', '.join(found)}]")


def _is_fixed(name: str) -> bool:
    """Return whether the setting is read only at the start."""
    if name in BROKER_CONFIGS or without_listener(name) in LISTENER_CONFIGS:
        return BROKER_CONFIGS[without_listener(name)].update_mode is UpdateMode.READ_ONLY
    if name in PER_BROKER_SECURITY or name in LISTENER_SECURITY:
        return False
    return name in INERT_CONFIGS or name in SECURITY_CONFIGS or name.startswith(SECURITY_PREFIXES)


def unknown_settings(names: Iterable[str]) -> set[str]:
    """The names that are neither settings of a broker or listener nor listed as unsupported."""
    listed = (BROKER_CONFIGS, LISTENER_CONFIGS, PER_BROKER_SECURITY, LISTENER_SECURITY, INERT_CONFIGS, SECURITY_CONFIGS)
    return {name for name in names if not any(without_listener(name) in each for each in listed)}


def _is_of_one_broker(name: str) -> bool:
    """Return whether the setting cannot be a cluster-wide default; listener settings cannot either."""
    if name in PER_BROKER_SECURITY or without_listener(name) != name:
        return True
    return name in BROKER_CONFIGS and BROKER_CONFIGS[name].update_mode is UpdateMode.PER_BROKER


def _only_dynamic(values: Mapping[str, str]) -> dict[str, str]:
    return {canonical(name): text for name, text in values.items() if not _is_fixed(name)}


def _check_static_value(key: ConfigKey, text: str, name: str) -> None:
    try:
        key.parse(text)
    except KafkaError as error:
        raise OperatorError(f"{error.message} (setting {name})") from error


_ORDERED_GROUP_SETTINGS = (
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.min.assignment.interval.ms", "group.consumer.assignment.interval.ms"),
    ("group.consumer.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
    *ORDERED_SHARE_SETTINGS,
)
"""Pairs of settings: the first must not be larger than the second, as Apache Kafka requires."""


def _check_group_timeouts(config: BrokerConfig) -> None:
    for low, high in _ORDERED_GROUP_SETTINGS:
        if config.get_int(low) > config.get_int(high):
            raise OperatorError(
                f"{low} is {config.get_int(low)} and {high} is {config.get_int(high)}; "
                f"{low} must be less than or equal to {high}"
            )
    for kind in ("consumer", "share"):
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if config.get_int(heartbeat) >= config.get_int(session):
            raise OperatorError(
                f"{heartbeat} is {config.get_int(heartbeat)} and {session} is {config.get_int(session)}; "
                f"{heartbeat} must be less than {session}"
            )


def _check_migration(config: BrokerConfig) -> None:
    """Check the settings of a migration from ZooKeeper. Raises OperatorError for a node with an invalid role."""
    if not config.leads_migration:
        return
    if not config.get_list("process.roles"):
        raise OperatorError(
            f"{MIGRATION} is set, but neither {ZOOKEEPER_CONNECT} nor process.roles is: name the ZooKeeper servers, or "
            "remove it"
        )
    if config.is_broker:
        raise OperatorError(
            f"{MIGRATION} is set and process.roles contains broker: it is only for controllers, and for brokers "
            "on ZooKeeper; remove it, or set process.roles=controller"
        )
    if not config.get_str(ZOOKEEPER_CONNECT):
        raise OperatorError(
            f"{MIGRATION} is set and {ZOOKEEPER_CONNECT} is not: name the ZooKeeper servers from which the cluster "
            "comes, or remove it"
        )


def _check_zookeeper(config: BrokerConfig, given: Mapping[str, str]) -> None:
    """Check the remaining settings of a ZooKeeper broker."""
    if "node.id" not in given and int(given.get("broker.id", -1)) < 0:
        raise OperatorError(
            f"{ZOOKEEPER_CONNECT} is set and broker.id is not: set the id with which this broker is registered"
        )
    quorum = "controller.quorum.bootstrap.servers or controller.quorum.voters"
    named = bool(config.configured_voters or config.bootstrap_controllers)
    if named and not config.migrating_broker:
        raise OperatorError(
            f"{ZOOKEEPER_CONNECT} and {quorum} are both set; remove one, and with a quorum "
            f"set process.roles; or set {MIGRATION} to migrate from ZooKeeper to the quorum"
        )
    if config.migrating_broker and not named:
        raise OperatorError(f"{MIGRATION} is set without a quorum to migrate to: name its controllers in {quorum}")
    if config.migrating_broker and not config.controller_listener_names:
        raise OperatorError(
            f"{MIGRATION} is set and controller.listener.names is not: name the listener by which the controllers of "
            "the quorum are reached"
        )
    if config.metadata_log_dir != config.log_dirs[0]:
        raise OperatorError(
            f"metadata.log.dir is not supported with {ZOOKEEPER_CONNECT}: remove it. A broker that migrates stores the "
            "metadata log in the first of log.dirs"
        )


def _check_authorizer(config: BrokerConfig, given: Mapping[str, str]) -> None:
    """Reject settings that restrict access if no authorizer enforces them."""
    restricts = {
        "super.users": bool(config.get_str("super.users")),
        "allow.everyone.if.no.acl.found": not config.get_bool("allow.everyone.if.no.acl.found"),
    }
    for name, does in restricts.items():
        if does and name in given and not config.get_str("authorizer.class.name"):
            raise OperatorError(
                f"{name} is set without authorizer.class.name, so every client has full access: set it to "
                f"{STANDARD_AUTHORIZER}, or remove {name}"
            )


def _refuse_security(name: str, base: str, text: str) -> None:
    if base in BROKER_CONFIGS or base in INERT_CONFIGS:
        return
    if base in SECURITY_CONFIGS:
        if text.strip() == (SECURITY_CONFIGS[base] or ""):
            return
    elif not base.startswith(SECURITY_PREFIXES) and ".sasl." not in base:
        return
    raise OperatorError(
        f"{name} enables a security feature that is not implemented yet; remove it, and run the broker on a network "
        "where every client is trusted"
    )


def _node_id(static: Mapping[str, str]) -> int:
    node_id = static.get("node.id")
    broker_id = static.get("broker.id")
    if broker_id is not None and int(broker_id) < 0:
        broker_id = None
    if node_id is not None and broker_id is not None and int(node_id) != int(broker_id):
        raise OperatorError(
            f"node.id is {node_id} and broker.id is {broker_id}; set only one of them, or both to the same id"
        )
    chosen = node_id if node_id is not None else broker_id
    default = BROKER_CONFIGS["node.id"].default
    return int(chosen) if chosen is not None else int(str(default))


def _security_protocols(config: BrokerConfig) -> dict[str, str]:
    protocols = parse_protocols(config.get_str("listener.security.protocol.map") or "")
    if not config.is_set("listener.security.protocol.map"):
        protocols |= implied_controllers(config.get_list("listeners"), config.controller_listener_names)
    return protocols


def _bound_listeners(config: BrokerConfig) -> tuple[tuple[Endpoint, ...], tuple[Endpoint, ...]]:
    """Return (listeners of the broker, listeners of the controller)."""
    everything = parse_endpoints("listeners", config.get_list("listeners"), _security_protocols(config))
    endpoints = [item for item in everything if item.listener_name not in config.controller_listener_names]
    controllers = [item for item in everything if item.listener_name in config.controller_listener_names]
    if not endpoints and config.is_broker:
        raise OperatorError("listeners has no listener for clients; add one such as PLAINTEXT://127.0.0.1:9092")
    check_distinct_addresses(everything)
    return tuple(endpoints), tuple(controllers)


def _advertised_listeners(config: BrokerConfig) -> tuple[Endpoint, ...]:
    items = config.get_list("advertised.listeners")
    endpoints = parse_endpoints("advertised.listeners", items, _security_protocols(config))
    check_advertised(endpoints, (*config.listeners, *config.controller_listeners))
    return tuple(endpoints)


def _check_roles(config: BrokerConfig) -> None:
    """Check that each role has its listeners and that brokers and controllers can find each other."""
    _check_voters(config)
    named = bool(config.configured_voters or config.bootstrap_controllers)
    if not named and not (config.is_broker and config.is_controller):
        raise OperatorError(
            "process.roles must be broker,controller if no other controller is named; set both, or name the "
            "controllers in controller.quorum.bootstrap.servers"
        )
    if config.is_controller and not config.is_broker and config.listeners:
        raise OperatorError(
            f"process.roles is controller and listeners has {config.listeners[0].listener_name}, which is not in "
            "controller.listener.names; a controller serves no clients: remove that listener"
        )
    if not config.is_controller and config.controller_listeners:
        raise OperatorError(
            f"process.roles is broker and listeners has {config.controller_listeners[0].listener_name}, which is in "
            "controller.listener.names; remove that listener, or add controller to process.roles"
        )
    if config.clustered and config.is_controller and not config.controller_listeners:
        raise OperatorError(
            "no listener of controller.listener.names is in listeners, so other controllers could not connect to this "
            "one; add a listener such as CONTROLLER://127.0.0.1:9093 and set controller.listener.names=CONTROLLER"
        )
    if config.is_broker:
        _check_inter_broker_listener(config)


def _check_voters(config: BrokerConfig) -> None:
    """Check that `controller.quorum.voters` lists exactly the nodes with the controller role."""
    voters = {voter.node_id for voter in config.configured_voters}
    if not voters:
        return
    if config.get_bool("controller.quorum.auto.join.enable"):
        raise OperatorError(
            "controller.quorum.auto.join.enable and controller.quorum.voters are both set; remove one of them"
        )
    if config.is_controller and config.node_id not in voters:
        raise OperatorError(
            f"process.roles has controller and controller.quorum.voters does not have node {config.node_id}; add it "
            "there, or use controller.quorum.bootstrap.servers for a quorum with dynamic voters"
        )
    if not config.is_controller and config.node_id in voters:
        raise OperatorError(
            f"process.roles is broker and controller.quorum.voters has node {config.node_id}; give this node another "
            "node.id, or add controller to process.roles"
        )


def _check_inter_broker_listener(config: BrokerConfig) -> None:
    """Check that the inter-broker listener exists and that only one setting names it (KIP-103)."""
    name, protocol = config.get_str("inter.broker.listener.name"), "security.inter.broker.protocol"
    if name and config.is_set(protocol):
        raise OperatorError(f"inter.broker.listener.name and {protocol} are both set; remove one of them")
    listeners = {each.listener_name for each in config.advertised_listeners or config.listeners}
    if name and name.upper() not in listeners:
        raise OperatorError(
            f"inter.broker.listener.name is {name}, which is not in listeners or advertised.listeners; use one "
            f"of them ({', '.join(sorted(listeners))})"
        )
    if config.is_set(protocol) and config.get_str(protocol) not in listeners:
        raise OperatorError(
            f"{protocol} is {config.get_str(protocol)}, and no listener has this name; name the listener of other "
            "brokers by inter.broker.listener.name instead"
        )
