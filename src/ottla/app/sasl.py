"""SASL settings of a node's listeners: authentication of clients, and the node's own login to other nodes.

Every enabled mechanism must be configured, or the start fails: PLAIN needs users in its login module, OAUTHBEARER keys,
issuer and audience, GSSAPI a keytab. SCRAM users are in the metadata log. Token keys are refreshed periodically; after
a failure the old ones stay in use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from ssl import SSLContext

from ottla.app.renewal import Backoff, IssuedToken, Renewal
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_keys_tokens import token_secret
from ottla.common.config.listener_configs import of_listener
from ottla.common.errors import OperatorError
from ottla.common.kafka.delegation_token import DelegationToken
from ottla.common.platform.channel import Dispatcher
from ottla.common.platform.clock import BlockingPool
from ottla.common.platform.endpoint import ListenerInfo
from ottla.common.platform.files import read_file
from ottla.common.platform.runtime import NodeRuntime
from ottla.metrics.registry import MetricsRegistry
from ottla.net.peer import Begun, Login, at_once
from ottla.security.sasl.credentials import BY_NAME, ScramCredential, ScramMechanism
from ottla.security.sasl.jaas import KERBEROS_MODULE, OAUTH_MODULE, PLAIN_MODULE, SCRAM_MODULE, LoginModule, parse_jaas
from ottla.security.sasl.mechanism import GSSAPI, ClientMechanism, ServerMechanism
from ottla.security.sasl.plain import PlainClient, PlainServer
from ottla.security.sasl.refresh import RefreshWindow
from ottla.security.sasl.scram import ScramClient, ScramServer
from ottla.security.sasl.session import MechanismOffer
from ottla.security.sasl.tokens import TokenLogins
from ottla.server.requests.authentication import AuthenticationMetrics, ListenerAuthentication
from ottla.server.requests.pool_share import PoolShare

logger = logging.getLogger(__name__)

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
MECHANISMS = (PLAIN, *BY_NAME, OAUTHBEARER, GSSAPI)
MAX_KEY_SET_BYTES = 1024 * 1024
_JAAS = "sasl.jaas.config"
_KEYS_URL = "sasl.oauthbearer.jwks.endpoint.url"

FindCredential = Callable[[str, ScramMechanism], ScramCredential | None]


class SaslOfListeners:
    """SASL of all listeners, created before anything listens. Raises OperatorError."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: NodeRuntime,
        find: FindCredential,
        find_token: Callable[[str], DelegationToken | None],
        salt_key: Callable[[], bytes],
        make_waiters: Callable[[], BlockingPool],
    ) -> None:
        """`find` returns the SCRAM credential of a user, `find_token` the delegation token of an id.

        `salt_key` returns the key for salts of unknown users (`MetadataImage.salt_key`).
        `make_waiters` creates threads for slow work, which must not delay disk work.
        """
        self._config = config
        self._runtime = runtime
        self._find = find
        self._make_waiters = make_waiters
        self._salt_key = salt_key
        # Clients that authenticate may occupy a part of the pool, but must not delay disk work.
        self._pool = PoolShare(runtime.pool)
        self._tokens = TokenLogins(token_secret(config.get_str), find_token, salt_key)
        opened = (*config.listeners, *(config.controller_listeners if config.clustered else ()))
        self._offers = {
            each.listener_name: self._offers_of(each.listener) for each in opened if each.listener.authenticates
        }

    def authentication(
        self, listener: ListenerInfo, dispatcher: Dispatcher, registry: MetricsRegistry
    ) -> ListenerAuthentication | None:
        """The authentication of a listener, in front of `dispatcher`; None for a listener without SASL."""
        offers = self._offers.get(listener.name)
        if offers is None:
            return None
        return ListenerAuthentication(
            offers,
            dispatcher,
            clock=self._runtime.clock,
            scheduler=self._runtime.scheduler,
            pool=self._pool,
            metrics=AuthenticationMetrics(registry),
            failure_delay_ms=self._config.get_int("connection.failed.authentication.delay.ms"),
            max_request_bytes=_whole(self._config.of_listener(listener.name, "sasl.server.max.receive.size")),
        )

    def login(self, listener: ListenerInfo, mechanism_setting: str) -> Login | None:
        """The login of this node on a listener of other nodes; None without SASL. Raises OperatorError."""
        if not listener.authenticates:
            return None
        mechanism = self._config.get_str(mechanism_setting) or ""
        if mechanism not in MECHANISMS:
            raise OperatorError(
                f"{mechanism_setting} is {mechanism}, which nodes can't use to authenticate to each other: set it to "
                f"one of {', '.join(MECHANISMS)}"
            )
        if mechanism == OAUTHBEARER:
            return self._token_login(listener)
        if mechanism == GSSAPI:
            return Login(self._kerberos_login(listener, mechanism_setting), self._runtime.pool)
        module = self._module(listener, mechanism, mechanism_setting)
        name, password = module.options.get("username"), module.options.get("password")
        if not name or not password:
            raise OperatorError(
                f"{of_listener(listener.name, _JAAS, mechanism)} has no username and password, with which this node "
                "authenticates to other nodes"
            )
        rng = self._runtime.rng

        def begin() -> ClientMechanism:
            if mechanism == PLAIN:
                return PlainClient(name, password)
            return ScramClient(BY_NAME[mechanism], name, password, rng.random_bytes)

        return Login(at_once(begin), self._runtime.pool)

    def _kerberos_login(self, listener: ListenerInfo, mechanism_setting: str) -> Callable[[str, Begun], None]:
        """Login with a Kerberos ticket of this node. Waits for the KDC."""
        from ottla.app.kerberos import NodeTickets  # imported here: few nodes use Kerberos
        from ottla.security.sasl.kerberos_login import SERVICE_NAME, login_of
        from ottla.security.sasl.kerberos_tickets import Initiator

        setting = of_listener(listener.name, _JAAS, GSSAPI)
        options = self._module(listener, GSSAPI, mechanism_setting).options
        service = self._config.of_listener(listener.name, SERVICE_NAME, GSSAPI)
        window = RefreshWindow(
            self._number(listener, "sasl.kerberos.ticket.renew.window.factor", GSSAPI),
            self._number(listener, "sasl.kerberos.ticket.renew.jitter", GSSAPI),
            self._number(listener, "sasl.kerberos.min.time.before.relogin", GSSAPI) / 1000,
        )
        login = login_of(setting, options, str(service or ""), SERVICE_NAME)
        initiator = Initiator(login, lambda: self._runtime.clock.time_ms() / 1000)
        return NodeTickets(login, initiator, window, self._runtime._replace(pool=self._make_waiters())).begin

    def _token_login(self, listener: ListenerInfo) -> Login:
        """Login with a token from a file, which is replaced when it is renewed, or from an issuer. Blocks."""
        from ottla.security.sasl.oauthbearer import OAuthBearerClient
        from ottla.security.sasl.token_source import URL, path_of, token_in_file

        url = self._text(listener, URL)
        path = path_of(url)
        if path is None:
            what = of_listener(listener.name, URL, OAUTHBEARER)
            window = RefreshWindow(
                *(
                    self._number(listener, f"sasl.login.refresh.{name}", OAUTHBEARER)
                    for name in ("window.factor", "window.jitter", "min.period.seconds", "buffer.seconds")
                )
            )
            backoff = self._backoff(listener, "sasl.login.retry.backoff")
            issued = IssuedToken(what, self._issuer(listener, url, what), window, backoff, self._runtime)
            return Login(at_once(lambda: OAuthBearerClient(issued.get())), self._runtime.pool)
        token_in_file(path, URL, read_file)  # a missing file is reported at startup

        def begin() -> ClientMechanism:
            try:
                return OAuthBearerClient(token_in_file(path, URL, read_file))
            except OperatorError as error:
                raise ConnectionError(str(error)) from error

        return Login(at_once(begin), self._runtime.pool)

    def _issuer(self, listener: ListenerInfo, url: str, what: str) -> Callable[[], str]:
        """A function that requests a token from an issuer, and blocks."""
        from urllib.request import HTTPSHandler

        from ottla.common.platform.https import fetch, is_private
        from ottla.security.sasl.token_source import (
            MAX_ANSWER_BYTES,
            credentials,
            grant_request,
            granted_token,
            issuer_tls,
        )

        if not is_private(url):
            raise OperatorError(
                f"{what} must be a file: URL of the token with which this node authenticates to other nodes, or the "
                "https: "
                "URL of its issuer"
            )
        options, place = self._token_options(listener)
        request = grant_request(credentials(lambda setting: self._text(listener, setting), options, what))
        tls = HTTPSHandler(context=issuer_tls(options, place, read_file))
        return lambda: granted_token(fetch(url, what, MAX_ANSWER_BYTES, tls, *request), what)

    def _token_options(self, listener: ListenerInfo) -> tuple[Mapping[str, str], str]:
        """Options of the OAUTHBEARER login module, if there is one, and the name of their setting."""
        setting = of_listener(listener.name, _JAAS, OAUTHBEARER)
        text = self._text(listener, _JAAS)
        if not text:
            return {}, setting
        module = parse_jaas(setting, text)
        # The setting for all mechanisms may contain the module of another one.
        return (module.options if module.name == OAUTH_MODULE else {}), setting

    def _text(self, listener: ListenerInfo, setting: str) -> str:
        """An OAUTHBEARER setting of a listener; empty if it is not set."""
        return str(self._config.of_listener(listener.name, setting, OAUTHBEARER) or "")

    def _number(self, listener: ListenerInfo, setting: str, mechanism: str) -> float:
        value = self._config.of_listener(listener.name, setting, mechanism)
        if not isinstance(value, (int, float)):
            raise TypeError(f"{setting} is {value!r}, which is not a number")
        return value

    def _backoff(self, listener: ListenerInfo, setting: str) -> Backoff:
        first, largest = (
            _whole(self._config.of_listener(listener.name, f"{setting}.{end}", OAUTHBEARER)) for end in ("ms", "max.ms")
        )
        return Backoff(first, largest)

    def _offers_of(self, listener: ListenerInfo) -> Mapping[str, MechanismOffer]:
        names = self._config.of_listener(listener.name, "sasl.enabled.mechanisms")
        mechanisms = [name.upper() for name in names] if isinstance(names, tuple) else []
        unknown = [name for name in mechanisms if name not in MECHANISMS]
        if unknown or not mechanisms:
            raise OperatorError(
                f"sasl.enabled.mechanisms of listener {listener.name} is {', '.join(mechanisms) or 'empty'}: set it to "
                f"some of {', '.join(MECHANISMS)}"
            )
        return {
            name: MechanismOffer(
                self._server(listener, name),
                _whole(self._config.of_listener(listener.name, "connections.max.reauth.ms", name)),
                blocks=name == GSSAPI,
            )
            for name in mechanisms
        }

    def _server(self, listener: ListenerInfo, name: str) -> Callable[[], ServerMechanism]:
        """A factory of server-side exchanges of a mechanism."""
        if name == PLAIN:
            users = self._module(listener, name).users()
            if not users:
                raise OperatorError(
                    f'{of_listener(listener.name, _JAAS, name)} has no users: add them as user_<name>="<password>"'
                )
            return lambda: PlainServer(users)
        if name == OAUTHBEARER:
            return self._oauthbearer(listener)
        if name == GSSAPI:
            return self._gssapi(listener)
        mechanism = BY_NAME[name]
        runtime = self._runtime
        return lambda: ScramServer(
            mechanism,
            lambda user: self._find(user, mechanism),
            lambda token_id: self._tokens.find(token_id, mechanism, runtime.clock.time_ms()),
            runtime.rng,
            self._salt_key(),
        )

    def _module(self, listener: ListenerInfo, mechanism: str, asking: str = "") -> LoginModule:
        """The login module of a mechanism, which the setting `asking` enables, by default `sasl.enabled.mechanisms`."""
        setting = of_listener(listener.name, _JAAS, mechanism)
        text = self._config.of_listener(listener.name, _JAAS, mechanism)
        wanted = {PLAIN: PLAIN_MODULE, GSSAPI: KERBEROS_MODULE}.get(mechanism, SCRAM_MODULE)
        otherwise = ""
        if mechanism == GSSAPI:  # which may be enabled by default only
            asking = asking or f"sasl.enabled.mechanisms of listener {listener.name}"
            otherwise = f" (or {asking}, where GSSAPI is the default, to some of {', '.join(MECHANISMS[:-1])})"
        if not isinstance(text, str) or not text.strip():
            raise OperatorError(f"{mechanism} needs {setting}: set it to {wanted} required ...;{otherwise}")
        module = parse_jaas(setting, text)
        if module.name != wanted:
            raise OperatorError(f"{setting} has the wrong login module for {mechanism}: set it to {wanted}{otherwise}")
        return module

    def _gssapi(self, listener: ListenerInfo) -> Callable[[], ServerMechanism]:
        from ottla.security.sasl.kerberos import GssapiServer  # imported here: few nodes use Kerberos
        from ottla.security.sasl.kerberos_login import SERVICE_NAME, keys_of_service
        from ottla.security.sasl.kerberos_names import SETTING, PrincipalRules
        from ottla.security.sasl.kerberos_tickets import Acceptor

        setting = of_listener(listener.name, _JAAS, GSSAPI)
        service = self._config.of_listener(listener.name, SERVICE_NAME, GSSAPI)
        principal, keytab = keys_of_service(setting, self._module(listener, GSSAPI).options, str(service or ""))
        acceptor = Acceptor(setting, principal, keytab)
        rules = self._config.of_listener(listener.name, SETTING, GSSAPI)
        named = PrincipalRules(rules if isinstance(rules, tuple) else (), acceptor.default_realm)
        return lambda: GssapiServer(acceptor.context(), named)

    def _oauthbearer(self, listener: ListenerInfo) -> Callable[[], ServerMechanism]:
        try:
            from ottla.security.sasl.oauthbearer import OAuthBearerServer, TokenRules, TokenValidator
            from ottla.security.sasl.token_source import issuer_tls
        except ImportError as error:
            raise OperatorError(
                "OAUTHBEARER needs a library that is not installed: pip install 'ottla[oauth]'"
            ) from error

        def get(setting: str) -> object:
            return self._config.of_listener(listener.name, setting, OAUTHBEARER)

        url = self._text(listener, _KEYS_URL)
        if not url:
            raise OperatorError(
                f"OAUTHBEARER needs the keys that verify tokens: set {_KEYS_URL} to a file: or https: URL"
            )
        audience = get("sasl.oauthbearer.expected.audience")
        rules = TokenRules(
            expected_issuer=self._text(listener, "sasl.oauthbearer.expected.issuer"),
            expected_audience=audience if isinstance(audience, tuple) else (),
            clock_skew_ms=1000 * _whole(get("sasl.oauthbearer.clock.skew.seconds")),
            sub_claim_name=self._text(listener, "sasl.oauthbearer.sub.claim.name"),
        )
        tls = issuer_tls(*self._token_options(listener), read_file)
        validator = TokenValidator(rules, read_key_set(url, tls))
        refresh_s = _whole(get("sasl.oauthbearer.jwks.endpoint.refresh.ms")) / 1000

        def use(key_set: bytes) -> float:
            validator.use_keys(key_set)
            return refresh_s

        backoff = self._backoff(listener, "sasl.oauthbearer.jwks.endpoint.retry.backoff")
        renewal = Renewal("the set of keys", lambda: read_key_set(url, tls), use, backoff, self._runtime)
        renewal.begin_in(refresh_s)
        validator.unknown_key = renewal.hasten
        return lambda: OAuthBearerServer(validator, self._runtime.clock)


def read_key_set(url: str, tls: SSLContext | None = None) -> bytes:
    """The content of a URL; `tls` or the system's authorities verify the server. Blocks. Raises OperatorError."""
    from urllib.request import HTTPSHandler

    from ottla.common.platform.https import fetch
    from ottla.security.sasl.token_source import path_of

    path = path_of(url)
    if path is None:
        if not url.lower().startswith("https:"):  # a manipulated http: response could contain keys of an attacker
            raise OperatorError(f"{_KEYS_URL} must start with file: or https:")
        return fetch(url, _KEYS_URL, MAX_KEY_SET_BYTES, HTTPSHandler(context=tls))
    try:
        return read_file(path, MAX_KEY_SET_BYTES)
    except OSError as error:
        raise OperatorError(f"{_KEYS_URL} can't be read: {error.strerror}") from error


def _whole(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not an integer")
    return value
