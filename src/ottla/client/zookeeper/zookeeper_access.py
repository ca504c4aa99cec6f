"""Security of a ZooKeeper session: TLS with `zookeeper.ssl.*`, and authentication with a JAAS file, as in Kafka 3.9.

Like Apache Kafka's programs, the file is found by `-Djava.security.auth.login.config` in KAFKA_OPTS. Its section
`Client` (or that of `-Dzookeeper.sasl.clientconfig`) has user and password of SASL DIGEST-MD5. A file without the
section disables authentication. A client certificate (`zookeeper.ssl.keystore.location`) also authenticates.

Left out: Kerberos for ZooKeeper, and its revocation lists and OCSP.
"""

from __future__ import annotations

import shlex
import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.common.config.config_def import ConfigValue
from ottla.common.config.config_keys_zookeeper import SSL_PREFIX, SSL_SETTINGS, ZOOKEEPER_CONFIGS
from ottla.common.errors import KafkaError, OperatorError
from ottla.security.contexts import ReadFile, TlsSettings, client_context, read_material
from ottla.security.sasl.jaas import parse_jaas_file

DIGEST_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"
MAX_FILE_BYTES = 1024 * 1024

_KEYS = {key.name: key for key in ZOOKEEPER_CONFIGS}
_LOGIN_FILE = "-Djava.security.auth.login.config="
_SECTION = "-Dzookeeper.sasl.clientconfig="
_DISABLED = "-Dzookeeper.sasl.client=false"


class DigestLogin(NamedTuple):
    """User and password of SASL DIGEST-MD5."""

    user: str
    password: str

    def __repr__(self) -> str:
        return f"DigestLogin({self.user})"


class ZooKeeperAccess(NamedTuple):
    """Security of a session."""

    context: ssl.SSLContext | None = None
    """TLS context; None without TLS."""
    login: DigestLogin | None = None
    secures: bool = False
    """True if new znodes get ACLs for their creator only (`zookeeper.set.acl`)."""


def zookeeper_access(
    get: Callable[[str], ConfigValue], environment: Mapping[str, str], read: ReadFile
) -> ZooKeeperAccess:
    """The access from `zookeeper.*` settings, read with `get`, and KAFKA_OPTS. Raises OperatorError."""
    context, shows_itself = _context(get, read)
    login = read_login(environment, read)
    secures = get("zookeeper.set.acl") is True
    if secures and login is None and not shows_itself:
        raise OperatorError(
            "zookeeper.set.acl is true, but this broker does not authenticate to ZooKeeper: give a JAAS file with a "
            "Client section "
            "with -Djava.security.auth.login.config in KAFKA_OPTS, or set zookeeper.ssl.client.enable and "
            "zookeeper.ssl.keystore.location"
        )
    return ZooKeeperAccess(context, login, secures)


def access_of_client(properties: Mapping[str, str], environment: Mapping[str, str], read: ReadFile) -> ZooKeeperAccess:
    """The access of a client that only reads, or writes below `/consumers`, from `zookeeper.ssl.*` in `properties`.

    Raises OperatorError.
    """

    def get(name: str) -> ConfigValue:
        text = properties.get(name)
        try:
            return _KEYS[name].default if text is None else _KEYS[name].parse(text)
        except KafkaError as error:
            raise OperatorError(error.message) from error

    context, _shows_itself = _context(get, read)
    return ZooKeeperAccess(context, read_login(environment, read))


def _context(get: Callable[[str], ConfigValue], read: ReadFile) -> tuple[ssl.SSLContext | None, bool]:
    """The TLS context, and whether it has a client certificate."""
    if get("zookeeper.ssl.client.enable") is not True:
        return None, False
    for name in ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable"):
        if get(name) is True:
            raise OperatorError(
                f"{name} is true, but revocation checks of ZooKeeper's certificates are not supported: remove it"
            )
    values = {name: get(SSL_PREFIX + name) for name in SSL_SETTINGS}
    given = {f"ssl.{name}": _text(value) for name, value in values.items() if value is not None}
    if "ssl.keystore.password" in given:
        given["ssl.key.password"] = given["ssl.keystore.password"]  # ZooKeeper has only one password
    try:
        settings = TlsSettings.parse(given, "zookeeper.ssl")
        return client_context(settings, read_material(settings, read)), settings.keystore is not None
    except OperatorError as error:
        raise OperatorError(f"TLS for ZooKeeper (zookeeper.ssl.*) can't be set up: {error}") from error


def _text(value: ConfigValue) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def read_login(environment: Mapping[str, str], read: ReadFile) -> DigestLogin | None:
    """The login from the file in KAFKA_OPTS; None without a file, or without the section.

    Raises OperatorError."""
    try:
        options = shlex.split(environment.get("KAFKA_OPTS", ""))
    except ValueError as error:
        raise OperatorError(f"KAFKA_OPTS can't be parsed: {error}; correct its quotes") from error
    files = [each.removeprefix(_LOGIN_FILE) for each in options if each.startswith(_LOGIN_FILE)]
    if not files or _DISABLED in options:
        return None
    path = files[-1].removeprefix("=").removeprefix("file:")
    what = f"{path} (-Djava.security.auth.login.config in KAFKA_OPTS)"
    try:
        data = read(path, MAX_FILE_BYTES)
    except OSError as error:
        raise OperatorError(f"{what} can't be read: {(error.strerror or str(error)).lower()}") from error
    section = next((each.removeprefix(_SECTION) for each in reversed(options) if each.startswith(_SECTION)), "Client")
    module = parse_jaas_file(what, data.decode("utf-8", "replace"), section)
    if module is None:
        return None
    if module.name != DIGEST_MODULE:
        raise OperatorError(
            f"the section {section} of {what} has {module.name}, but only {DIGEST_MODULE} is supported for ZooKeeper"
        )
    user, password = module.options.get("username"), module.options.get("password")
    if not user or not password:
        raise OperatorError(f"the section {section} of {what} lacks username or password")
    return DigestLogin(user, password)
