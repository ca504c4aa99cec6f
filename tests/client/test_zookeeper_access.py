"""Authentication and TLS for ZooKeeper: settings and KAFKA_OPTS; tests with real servers are in `compat/java/`."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from ottla.client.zookeeper.zookeeper_access import (
    DIGEST_MODULE,
    DigestLogin,
    ZooKeeperAccess,
    access_of_client,
    zookeeper_access,
)
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.errors import OperatorError
from ottla.common.platform.files import read_file
from ottla.protocol.znodes import paths
from ottla.protocol.znodes.rights import Rights, rights_of
from ottla.security.authority import Authority

FILE = f"""/* of all brokers */
KafkaServer {{
  org.apache.kafka.common.security.plain.PlainLoginModule required
  user_a="}} // no end";
}};
Client {{ {DIGEST_MODULE} required // a comment
  username="kafka" password="a \\"b\\" /* no comment */";
}};
Other {{ {DIGEST_MODULE} required username=other password=secret; }};
"""


def access(kafka_opts: str = "", **settings: str) -> ZooKeeperAccess:
    own = {name.replace("_", "."): value for name, value in settings.items()}
    config, _ = BrokerConfig.parse({"zookeeper.connect": "h:2181", "broker.id": "1", **own})
    return zookeeper_access(config.get, {"KAFKA_OPTS": kafka_opts}, read_file)


@pytest.fixture
def jaas(tmp_path: Path) -> Path:
    path = tmp_path / "a file"
    path.write_text(FILE)
    return path


def test_access_without_settings_is_anonymous() -> None:
    assert access() == ZooKeeperAccess()


@pytest.mark.parametrize(
    ("options", "login"),
    [
        ("-Xmx1g '-Djava.security.auth.login.config=PATH'", DigestLogin("kafka", 'a "b" /* no comment */')),
        (
            "'-Djava.security.auth.login.config==file:PATH' -Dzookeeper.sasl.clientconfig=Other",
            DigestLogin("other", "secret"),
        ),
        ("'-Djava.security.auth.login.config=PATH' -Dzookeeper.sasl.clientconfig=None", None),
        ("'-Djava.security.auth.login.config=PATH' -Dzookeeper.sasl.client=false", None),
        ("-Djava.security.krb5.conf=PATH", None),
    ],
)
def test_jaas_file_sets_the_login(jaas: Path, options: str, login: DigestLogin | None) -> None:
    found = access(options.replace("PATH", str(jaas)))
    assert found.login == login
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Client { com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; };", "Krb5LoginModule"),
        (f'Client {{ {DIGEST_MODULE} required username="kafka"; }};', "lacks username or password"),
        ("Client { }; ", "not a login module"),
        ("Client { of secrets", "not a JAAS file"),
        ("{}", "not a JAAS file"),
    ],
)
def test_a_file_that_says_nothing_of_use_is_refused(tmp_path: Path, content: str, expected: str) -> None:
    path = tmp_path / "jaas"
    path.write_text(content)
    with pytest.raises(OperatorError, match=expected) as caught:
        access(f"-Djava.security.auth.login.config={path}")
    assert str(path) in str(caught.value)
    assert "of secrets" not in str(caught.value)


def test_a_file_that_is_too_large_is_not_read_in_part(tmp_path: Path) -> None:
    path = tmp_path / "jaas"
    path.write_text(f"/* {' ' * (1 << 20)} */ {FILE}")
    with pytest.raises(OperatorError, match="larger than 1048576 bytes"):
        access(f"-Djava.security.auth.login.config={path}")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(OperatorError, match=r"/not/there .*KAFKA_OPTS.* can't be read"):
        access("-Djava.security.auth.login.config=/not/there")
    with pytest.raises(OperatorError, match=r"KAFKA_OPTS can't be parsed"):
        access("'")


def test_set_acl_without_login_is_rejected(jaas: Path) -> None:
    with pytest.raises(OperatorError, match=r"zookeeper\.set\.acl is true, but this broker does not authenticate"):
        access(zookeeper_set_acl="true")
    assert access(f"'-Djava.security.auth.login.config={jaas}'", zookeeper_set_acl="true").secures


class TestTls:
    @pytest.fixture
    def files(self, tmp_path: Path) -> dict[str, str]:
        authority = Authority.make("test", datetime.now(UTC))
        (tmp_path / "own.pem").write_bytes(authority.issue("broker", [], datetime.now(UTC)))
        (tmp_path / "trusted.pem").write_bytes(authority.pem)
        return {
            "zookeeper_ssl_client_enable": "true",
            "zookeeper_ssl_keystore_location": str(tmp_path / "own.pem"),
            "zookeeper_ssl_truststore_location": str(tmp_path / "trusted.pem"),
        }

    def test_it_is_spoken_where_it_is_enabled(self, files: dict[str, str]) -> None:
        assert access(**{**files, "zookeeper_ssl_client_enable": "false"}).context is None
        context = access(**files, zookeeper_set_acl="true").context
        assert context is not None
        assert context.check_hostname

    def test_names_of_hosts_need_not_fit(self, files: dict[str, str]) -> None:
        context = access(**files, zookeeper_ssl_endpoint_identification_algorithm="").context
        assert context is not None
        assert not context.check_hostname

    def test_client_certificate_permits_set_acl(self, files: dict[str, str]) -> None:
        del files["zookeeper_ssl_keystore_location"]
        with pytest.raises(OperatorError, match=r"this broker does not authenticate"):
            access(**files, zookeeper_set_acl="true")

    @pytest.mark.parametrize(
        ("name", "value", "expected"),
        [
            ("zookeeper_ssl_truststore_location", "/not/there", "/not/there"),
            ("zookeeper_ssl_enabled_protocols", "SSLv3", "SSLv3"),
            ("zookeeper_ssl_crl_enable", "true", "zookeeper.ssl.crl.enable"),
            ("zookeeper_ssl_ocsp_enable", "true", "zookeeper.ssl.ocsp.enable"),
        ],
    )
    def test_what_can_not_be_is_refused(self, files: dict[str, str], name: str, value: str, expected: str) -> None:
        with pytest.raises(OperatorError, match=r"zookeeper\.ssl") as caught:
            access(**{**files, name: value})
        assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("path", "rights"),
    [
        (paths.CONSUMERS, Rights.OPEN),
        (f"{paths.CONSUMERS}/g", Rights.READABLE),
        (paths.topic("t"), Rights.READABLE),
        (paths.entity(paths.CONFIG_USERS, "u"), Rights.SECRET),
        (paths.CONFIG_BROKERS, Rights.SECRET),
        (f"{paths.TOKENS}/x", Rights.SECRET),
        ("", Rights.READABLE),
    ],
)
def test_rights_of_a_secured_cluster_are_kafkas(path: str, rights: Rights) -> None:
    assert rights_of(path) is rights


class TestOfClients:
    def test_they_say_the_same(self, jaas: Path, tmp_path: Path) -> None:
        (tmp_path / "trusted.pem").write_bytes(Authority.make("test", datetime.now(UTC)).pem)
        given = {
            "group.id": "g",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.truststore.location": str(tmp_path / "trusted.pem"),
        }
        environment = {"KAFKA_OPTS": f"'-Djava.security.auth.login.config={jaas}'"}
        found = access_of_client(given, environment, read_file)
        assert found.context is not None
        assert found.login == DigestLogin("kafka", 'a "b" /* no comment */')
        assert not found.secures
        assert access_of_client({}, {}, read_file) == ZooKeeperAccess()

    def test_what_can_not_be_is_refused(self) -> None:
        with pytest.raises(OperatorError, match=r"zookeeper\.ssl\.client\.enable"):
            access_of_client({"zookeeper.ssl.client.enable": "perhaps"}, {}, read_file)
