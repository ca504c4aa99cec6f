"""`server.properties` of operators: accepted settings, warnings, and settings that refuse the start."""

from __future__ import annotations

import pytest

from ottla.common.config.broker_configs import BrokerConfig, validate_dynamic
from ottla.common.config.config_def import ConfigType
from ottla.common.config.config_keys_broker import BROKER_CONFIGS
from ottla.common.config.unsupported_configs import INERT_CONFIGS, SECURITY_CONFIGS, STORED_CONFIGS
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.platform.endpoint import Endpoint

MIGRATING = {
    "broker.id": "1",
    "zookeeper.connect": "h:2181",
    "zookeeper.metadata.migration.enable": "true",
    "controller.quorum.voters": "9@h:9093",
    "controller.listener.names": "CONTROLLER",
}

KAFKAS_OWN_EXAMPLE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


def test_the_example_that_kafka_ships_starts() -> None:
    config, warnings = BrokerConfig.parse(KAFKAS_OWN_EXAMPLE)
    assert config.listeners == (Endpoint("PLAINTEXT", "PLAINTEXT", "", 9092),)
    assert config.advertised_listeners == (Endpoint("PLAINTEXT", "PLAINTEXT", "localhost", 9092),)
    assert config.log_dirs == ("/tmp/kraft-combined-logs",)
    inert = {name for name in KAFKAS_OWN_EXAMPLE if name in INERT_CONFIGS or name in STORED_CONFIGS}
    assert config.clustered, "its controller listens, so that others may join"
    assert len(warnings) == len(inert)
    assert all(any(warning.startswith(f"{name} ") for warning in warnings) for name in inert)


def test_empty_config_is_valid() -> None:
    config, warnings = BrokerConfig.parse({})
    assert warnings == []
    assert config.node_id == 1
    assert config.listeners == (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 9092),)
    assert config.log_dirs == ("./ottla-data",)
    assert config.get_int("socket.request.max.bytes") == 104857600
    assert config.get_bool("auto.create.topics.enable") is True
    assert config.rack is None


def test_unknown_and_inert_settings_warn_once_each() -> None:
    _, warnings = BrokerConfig.parse(
        {
            "num.io.threads": "4",
            "my.setting": "x",
            "listener.name.plaintext.max.connections": "3",
            "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
        }
    )
    assert [warning.split(" ")[0] for warning in warnings] == [
        "num.io.threads",
        "my.setting",
        "listener.name.plaintext.max.connections",
        "sasl.kerberos.kinit.cmd",
    ]


def test_misspelled_setting_gets_a_suggestion() -> None:
    _, warnings = BrokerConfig.parse({"log.retention.hour": "4", "my.setting": "x"})
    assert warnings == [
        "log.retention.hour is not a known setting and has no effect; did you mean log.retention.hours?",
        "my.setting is not a known setting and has no effect",
    ]


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"num.partitions": "0"}, "num.partitions"),
        ({"num.partitions": "many"}, "num.partitions"),
        ({"node.id": "-1"}, "node.id"),
        ({"node.id": "1", "broker.id": "2"}, "broker.id"),
        ({"log.dirs": "/a,/b,/a"}, "log.dirs"),
        ({"log.dirs": "/a,,/b"}, "log.dirs"),
        ({"log.dirs": "", "log.dir": ""}, "log.dirs"),
        ({"log.retention.ms": "0"}, "log.retention.ms"),
        ({"listeners": "9092"}, "listeners"),
        ({"listeners": ""}, "listeners"),
        ({"listeners": "PLAINTEXT://h:70000"}, "listeners"),
        ({"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"}, "listeners"),
        ({"listeners": "PLAINTEXT://h:1,INTERNAL://h:1"}, "listener.security.protocol.map"),
        ({"listeners": "A://h:1,B://h:1", "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT"}, "listeners"),
        ({"listener.security.protocol.map": "X:ROT13"}, "listener.security.protocol.map"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners"),
        (
            {"advertised.listeners": "X://h:1", "listener.security.protocol.map": "X:PLAINTEXT,PLAINTEXT:PLAINTEXT"},
            "advertised.listeners",
        ),
        ({"process.roles": "broker"}, "process.roles"),
        ({"process.roles": "cook"}, "process.roles"),
        ({"controller.quorum.voters": "1@a:1,2@b:1"}, "controller.listener.names"),
        ({"controller.quorum.bootstrap.servers": "a:1"}, "controller.listener.names"),
        ({"controller.quorum.bootstrap.servers": "a"}, "controller.quorum.bootstrap.servers"),
        ({"process.roles": "controller"}, "process.roles"),
        ({"inter.broker.listener.name": "INTERNAL"}, "inter.broker.listener.name"),
        ({"security.inter.broker.protocol": "SSL"}, "security.inter.broker.protocol"),
        ({"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}, "authorizer.class.name"),
        ({"super.users": "User:a;bob"}, "super.users"),
        ({"super.users": "User:a"}, "authorizer.class.name"),
        ({"allow.everyone.if.no.acl.found": "false"}, "authorizer.class.name"),
        ({"super.users": "User:"}, "super.users"),
        ({"ssl.engine.factory.class": "a.B"}, "ssl.engine.factory.class"),
        ({"ssl.client.auth": "perhaps"}, "ssl.client.auth"),
        ({"listener.name.x.ssl.client.auth": "perhaps"}, "listener.name.x.ssl.client.auth"),
        (
            {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"},
            "security.inter.broker.protocol",
        ),
        (
            {
                "listeners": "A://h:1,B://h:2",
                "advertised.listeners": "A://h:1",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
                "inter.broker.listener.name": "B",
            },
            "advertised.listeners",
        ),
        (
            {
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
            },
            "listener.security.protocol.map",
        ),
        ({"allow.everyone.if.no.acl.found": "perhaps"}, "allow.everyone.if.no.acl.found"),
        ({"password.encoder.secret": "s"}, "password.encoder.secret"),
        ({"zookeeper.connect": "h:2181"}, "broker.id"),
        ({"zookeeper.connect": "h:2181", "broker.id": "-1"}, "broker.id"),
        ({"zookeeper.connect": "h:2181", "broker.id": "1", "metadata.log.dir": "/m"}, "metadata.log.dir"),
        ({"zookeeper.connect": "h", "broker.id": "1", "controller.quorum.voters": "1@h:1"}, "controller.quorum.voters"),
        ({"zookeeper.metadata.migration.enable": "true"}, "process.roles"),
        ({"zookeeper.metadata.migration.enable": "perhaps"}, "zookeeper.metadata.migration.enable"),
        (
            {"zookeeper.metadata.migration.enable": "true", "zookeeper.connect": "h", "process.roles": "broker"},
            "process.roles",
        ),
        ({"zookeeper.metadata.migration.enable": "true", "process.roles": "controller"}, "zookeeper.connect"),
        ({**MIGRATING, "controller.quorum.voters": ""}, "controller.quorum.voters"),
        ({**MIGRATING, "controller.listener.names": ""}, "controller.listener.names"),
        ({**MIGRATING, "broker.id": "9"}, "controller.quorum.voters"),
        ({**MIGRATING, "process.roles": "broker"}, "process.roles"),
    ],
)
def test_operators_mistake_is_named(properties: dict[str, str], named: str) -> None:
    with pytest.raises(OperatorError) as caught:
        BrokerConfig.parse(properties)
    assert named in str(caught.value)
    assert "Traceback" not in str(caught.value)


def test_migrating_broker_uses_zookeeper_and_a_quorum() -> None:
    config, warnings = BrokerConfig.parse(MIGRATING)
    assert not warnings
    assert (config.on_zookeeper, config.migrating_broker, config.clustered) == (True, True, False)
    assert (config.is_broker, config.is_controller) == (True, False)
    assert [each.name for each in config.spoken_listeners] == ["PLAINTEXT", "CONTROLLER"]


def test_cluster_without_roles_uses_zookeeper() -> None:
    properties = {"zookeeper.connect": "h:2181/k", "broker.id": "3"}
    config, warnings = BrokerConfig.parse(properties)
    assert (config.on_zookeeper, config.clustered, config.node_id, warnings) == (True, False, 3, [])
    config, warnings = BrokerConfig.parse({**properties, "process.roles": "broker,controller"})
    assert not config.on_zookeeper
    assert [warning.split()[0] for warning in warnings] == ["zookeeper.connect"]


def test_secret_is_not_repeated() -> None:
    with pytest.raises(OperatorError) as caught:
        BrokerConfig.parse({"ssl.key.password": "hunter2" * 10_000})
    assert "hunter2" not in str(caught.value)


def test_harmless_security_setting_is_accepted() -> None:
    properties = {name: value for name, value in SECURITY_CONFIGS.items() if value is not None}
    assert BrokerConfig.parse(properties)[1] == []


@pytest.mark.parametrize("kind", ["create.topic.policy.class.name", "client.quota.callback.class"])
def test_unimplemented_security_setting_refuses_start(kind: str) -> None:
    with pytest.raises(OperatorError, match=kind):
        BrokerConfig.parse({kind: "com.example.Policy"})


def test_tables_do_not_overlap() -> None:
    names = [*BROKER_CONFIGS, *INERT_CONFIGS, *SECURITY_CONFIGS]
    assert len(names) == len(set(names))


def test_listeners_of_all_shapes() -> None:
    config, _ = BrokerConfig.parse(
        {
            "listeners": "plaintext://[::1]:0, Outside://0.0.0.0:19092",
            "advertised.listeners": "OUTSIDE://kafka.example.org:443",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
        }
    )
    assert config.listeners == (
        Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 0),
        Endpoint("OUTSIDE", "PLAINTEXT", "0.0.0.0", 19092),
    )
    bound = [config.listeners[0]._replace(port=4711), config.listeners[1]]
    assert config.advertise(bound, "box") == [
        Endpoint("PLAINTEXT", "PLAINTEXT", "::1", 4711),
        Endpoint("OUTSIDE", "PLAINTEXT", "kafka.example.org", 443),
    ]


def test_scoped_addresses_are_taken() -> None:
    scoped = "fe80::fc:ff:fe00:1%eth0"
    config, _ = BrokerConfig.parse(
        {
            "listeners": f"PLAINTEXT://[{scoped}]:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@[{scoped}]:9093",
        }
    )
    assert config.listeners == (Endpoint("PLAINTEXT", "PLAINTEXT", scoped, 9092),)
    assert config.listeners[0].address == f"[{scoped}]:9092"
    assert config.configured_voters == ((1, scoped, 9093),)


@pytest.mark.parametrize(
    ("first", "second", "valid"),
    [
        ("127.0.0.1", "[::1]", True),
        ("0.0.0.0", "[::1]", True),
        ("", "127.0.0.1", False),
        ("0.0.0.0", "[::]", False),
        ("[::1]", "[0:0:0:0:0:0:0:0]", False),
    ],
)
def test_port_beside_a_wildcard_of_both_families_is_refused(first: str, second: str, valid: bool) -> None:
    properties = {
        "listeners": f"A://{first}:9092,B://{second}:9092",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
        "inter.broker.listener.name": "A",
    }
    if valid:
        assert BrokerConfig.parse(properties)
    else:
        with pytest.raises(OperatorError, match="each listener needs its own port"):
            BrokerConfig.parse(properties)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]", "[0:0:0:0:0:0:0:0]"])
def test_wildcard_is_advertised_as_the_host(host: str) -> None:
    config, _ = BrokerConfig.parse({"listeners": f"PLAINTEXT://{host}:0"})
    bound = [config.listeners[0]._replace(port=4711)]
    assert config.advertise(bound, "box")[0].address == "box:4711"


def test_broker_id_is_node_id() -> None:
    config, _ = BrokerConfig.parse({"broker.id": "7"})
    assert config.node_id == 7
    assert config.get_int("node.id") == 7


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"node.id": "2"}, "Cannot update these configs dynamically: [node.id]"),
        ({"num.io.threads": "0"}, "Value must be at least 1"),
        ({"log.cleaner.enable": "true"}, "Cannot update these configs dynamically: [log.cleaner.enable]"),
        ({"listeners": "PLAINTEXT://:1"}, "Cannot update these configs dynamically: [listeners]"),
        ({"log.retention.ms": "soon"}, "Not a number of type LONG"),
        ({"ssl.engine.factory.class": "x"}, "enables a security feature that is not implemented yet"),
        ({"listener.name.a.ssl.client.auth": "perhaps"}, "String must be one of"),
        (
            {"listener.name.a.ssl.principal.mapping.rules": "DEFAULT"},
            "Cannot update these configs dynamically: [listener.name.a.ssl.principal.mapping.rules]",
        ),
        ({"ssl.keystore.location": "/k"}, "only per-listener using the listener prefix: [ssl.keystore.location]"),
    ],
)
@pytest.mark.parametrize("cluster_default", [False, True])
def test_invalid_dynamic_update_is_rejected(overrides: dict[str, str], message: str, cluster_default: bool) -> None:
    if cluster_default and ("sasl" in message or "security feature" in message or "String" in message):
        message = "Cannot update these configs at default cluster level, broker id must be specified"
    with pytest.raises(KafkaError) as caught:
        validate_dynamic(overrides, cluster_default=cluster_default)
    assert caught.value.code == ErrorCode.INVALID_REQUEST
    assert message in caught.value.message


def test_accessors_refuse_the_wrong_type() -> None:
    config, _ = BrokerConfig.parse({})
    with pytest.raises(TypeError):
        config.get_int("listeners")
    with pytest.raises(TypeError):
        config.get_bool("node.id")
    with pytest.raises(TypeError):
        config.get_str("node.id")
    with pytest.raises(TypeError):
        config.get_list("node.id")
    with pytest.raises(KeyError):
        config.get("no.such.setting")


@pytest.mark.parametrize("name", sorted(STORED_CONFIGS))
def test_stored_setting_without_effect_warns(name: str) -> None:
    key = BROKER_CONFIGS[name]
    text = "true" if key.type is ConfigType.BOOLEAN else "1048588"
    if name.endswith((".factor", ".ratio")):
        text = "1"
    config, warnings = BrokerConfig.parse({name: text})
    assert config.get(name) == key.parse(text)
    assert warnings == [f"{name} has no effect: {STORED_CONFIGS[name]}"]


def test_node_with_other_controllers_is_clustered() -> None:
    both = {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}
    servers = "controller.quorum.bootstrap.servers"
    alone, warnings = BrokerConfig.parse(both)
    assert not alone.clustered
    assert len(warnings) == 1
    for own in ({servers: "localhost:9093"}, {"controller.quorum.voters": "1@a:9093"}):
        first, warnings = BrokerConfig.parse(both | own)
        assert first.clustered, "others may come"
        assert not first.names_other_controllers
        assert warnings == []
    for others in ({servers: "localhost:9093,localhost:9094"}, {"controller.quorum.voters": "1@a:9093,2@b:9093"}):
        config, warnings = BrokerConfig.parse(both | others)
        assert config.clustered
        assert [endpoint.port for endpoint in config.controller_listeners] == [9093]
        assert warnings == []
    broker, _ = BrokerConfig.parse(
        {"process.roles": "broker", "controller.listener.names": "CONTROLLER", servers: "a:9093"}
    )
    assert broker.clustered
    assert not broker.is_controller
    controller, _ = BrokerConfig.parse(
        {
            "process.roles": "controller",
            "controller.listener.names": "CONTROLLER",
            "listeners": "CONTROLLER://:9093",
            servers: "localhost:9093",
        }
    )
    assert controller.clustered
    assert not controller.is_broker


def test_a_controller_leads_a_migration_from_zookeeper() -> None:
    named = {
        "process.roles": "controller",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://:9093",
        "controller.quorum.voters": "1@localhost:9093",
        "zookeeper.connect": "h:2181",
    }
    config, warnings = BrokerConfig.parse({**named, "zookeeper.metadata.migration.enable": "true"})
    assert config.leads_migration
    assert config.clustered
    assert warnings == []
    config, warnings = BrokerConfig.parse(named)
    assert not config.leads_migration
    assert len(warnings) == 1


def test_configured_voters() -> None:
    config, _ = BrokerConfig.parse(
        {
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@a:9093, 2@[::1]:9094",
        }
    )
    assert config.configured_voters == ((1, "a", 9093), (2, "::1", 9094))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_controller_on_loopback_is_the_node_itself(host: str) -> None:
    settings = {
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"{host}:9093",
    }
    assert not BrokerConfig.parse(settings)[0].names_other_controllers


def test_configured_voters_exclude_auto_join() -> None:
    with pytest.raises(OperatorError, match=r"auto\.join\.enable"):
        BrokerConfig.parse(
            {
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": "1@a:9093",
                "controller.quorum.auto.join.enable": "true",
            }
        )


@pytest.mark.parametrize("voters", ["1@a", "a:1", "1@a:0", "1@a:70000", "9999999999@a:1", "1@a:1,1@b:1", "2@a:1"])
def test_invalid_configured_voters_are_rejected(voters: str) -> None:
    roles = {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}
    with pytest.raises(OperatorError, match=r"controller\.quorum\.voters"):
        BrokerConfig.parse(roles | {"controller.quorum.voters": voters})


@pytest.mark.parametrize(
    "properties",
    [
        {"process.roles": "broker", "controller.quorum.voters": "1@a:1"},
        {"process.roles": "broker", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
        {"process.roles": "controller", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
        {"process.roles": "controller", "listeners": "PLAINTEXT://:9092"},
    ],
)
def test_listeners_and_voters_are_those_of_the_roles(properties: dict[str, str]) -> None:
    named = {"controller.listener.names": "CONTROLLER", "controller.quorum.bootstrap.servers": "b:9093"}
    with pytest.raises(OperatorError, match=r"process\.roles"):
        BrokerConfig.parse(named | properties)


def test_listener_setting_takes_precedence() -> None:
    config, warnings = BrokerConfig.parse(
        {"ssl.client.auth": "required", "listener.name.Inside.ssl.client.auth": "none", "ssl.key.password": "hunter2"}
    )
    assert all(warning.endswith("has no effect: no listener uses TLS or SASL") for warning in warnings)
    assert [config.of_listener(name, "ssl.client.auth") for name in ("INSIDE", "OUTSIDE")] == ["none", "required"]
    later = config.with_dynamic({}, {"ssl.client.auth": "requested", "listener.name.outside.ssl.key.password": "xyzzy"})
    assert [later.of_listener(name, "ssl.client.auth") for name in ("INSIDE", "OUTSIDE")] == ["none", "requested"]
    assert [later.of_listener(name, "ssl.key.password") for name in ("INSIDE", "OUTSIDE")] == ["hunter2", "xyzzy"]
    described = {entry.name: entry for entry in later.describe()}
    assert described["ssl.client.auth"].value == "requested"
    for name in ("ssl.key.password", "listener.name.outside.ssl.key.password"):
        assert described[name].sensitive
    assert "hunter2" not in repr(described)
    assert "xyzzy" not in repr(described)


@pytest.mark.parametrize(
    ("properties", "protocol"),
    [
        ({}, "PLAINTEXT"),
        ({"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"}, "PLAINTEXT"),
        ({"controller.listener.names": "PLAINTEXT2"}, "PLAINTEXT"),
    ],
)
def test_the_protocol_of_a_controller(properties: dict[str, str], protocol: str) -> None:
    config, _ = BrokerConfig.parse({"controller.listener.names": "CONTROLLER", **properties})
    assert config.controller_listener.security_protocol == protocol


def test_no_default_plaintext_next_to_secured_listener() -> None:
    with pytest.raises(OperatorError, match=r"CONTROLLER, which listener\.security\.protocol\.map does not map"):
        BrokerConfig.parse({"listeners": "SSL://h:1", "controller.listener.names": "CONTROLLER"})


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({}, "OUTSIDE"),
        ({"inter.broker.listener.name": "inside"}, "INSIDE"),
        ({"listeners": "OUTSIDE://h:1,PLAINTEXT://h:2"}, "PLAINTEXT"),
    ],
)
def test_inter_broker_listener_is_chosen(properties: dict[str, str], name: str) -> None:
    listeners = {
        "listeners": "OUTSIDE://h:1,INSIDE://h:2",
        "listener.security.protocol.map": "OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }
    assert BrokerConfig.parse(listeners | properties)[0].inter_broker_listener == name


def test_listener_may_have_its_own_connection_rate() -> None:
    settings = {
        "listeners": "A://127.0.0.1:1,B://127.0.0.1:2",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
    }
    settings |= {"inter.broker.listener.name": "A", "listener.name.b.max.connection.creation.rate": "20"}
    config, warnings = BrokerConfig.parse(settings)
    assert (config.connection_rates, warnings) == ({"B": 20}, [])
    changed = config.with_dynamic({}, {"listener.name.b.max.connection.creation.rate": "30"})
    assert changed.connection_rates == {"B": 30}


def test_stored_lockout_is_ignored_at_start() -> None:
    config, _ = BrokerConfig.parse({})
    dynamic = config.with_dynamic({"max.connections": "0", "max.connections.per.ip": "0"}, {"max.connections": "0"})
    assert dynamic.get_int("max.connections") == dynamic.get_int("max.connections.per.ip") == 2**31 - 1
    override = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"}
    assert config.with_dynamic(override, {}).get_int("max.connections.per.ip") == 0


def test_stored_lockout_is_logged_once_for_each_value(caplog: pytest.LogCaptureFixture) -> None:
    config, _ = BrokerConfig.parse({})
    for text in ("0", "0", "00", "0"):
        config.with_dynamic({"max.connections": text}, {}).with_dynamic({"max.connections": text}, {})
        config.with_dynamic({"max.connections.per.ip": "0"}, {}, report=False)
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == [
        "max.connections=0",
        "max.connections=00",
    ]


@pytest.mark.parametrize("text", ["1_0", "nan", "\u0661", "1\n", "\u00a01"])
def test_double_that_only_python_reads_is_refused(text: str) -> None:
    key = next(key for key in BROKER_CONFIGS.values() if key.type is ConfigType.DOUBLE)
    with pytest.raises(KafkaError):
        key.parse(text)
