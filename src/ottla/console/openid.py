"""Sign-in with OpenID Connect: the authorization code flow with PKCE, and the tokens of a user.

The issuer authenticates the user. The console sends the user's own access token to the brokers (SASL OAUTHBEARER), and
they check it as the token of any other client. Sources: OpenID Connect Core 1.0 and Discovery 1.0, RFC 6749, RFC 7636
(PKCE) and RFC 9207 (`iss` of the response).

Invariants: addresses come from the settings and from the issuer's discovery document, never from a browser. A code is
redeemed once, by the session that started the sign-in. The ID token has the nonce of that sign-in.

Not supported: clients without a secret, encrypted tokens, sign-out at the issuer.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import math
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus, urlencode
from urllib.request import HTTPSHandler

from ottla.client.wire.security import ClientSecurity
from ottla.common.errors import OperatorError, OttlaError
from ottla.common.platform.clock import Clock
from ottla.common.platform.https import IssuerStatusError, fetch, is_private
from ottla.console.openid_settings import OpenIdSettings
from ottla.console.sessions import PendingSignIn, SessionEnded
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.security.sasl.oauthbearer import OAuthBearerClient, TokenRules, TokenValidator
from ottla.security.sasl.refresh import renewal_s
from ottla.security.sasl.token_source import LIFE_S, MAX_ANSWER_BYTES, checked_token, expires_s

logger = logging.getLogger(__name__)

DISCOVERY_PATH = "/.well-known/openid-configuration"
DISCOVERY_S = 3600.0
"""Age up to which the discovery document and the keys are reused."""
RETRY_S = 10.0
"""Pause after a failed renewal of a token that is still valid."""
MAX_DOCUMENT_BYTES = 256 * 1024
MAX_CODE_CHARS = 4_096
BASIC, POST = "client_secret_basic", "client_secret_post"


class IssuerError(OttlaError):
    """The issuer does not respond, or not as an OpenID provider; the message names the setting."""


class SignInRefused(OttlaError):
    """The issuer refused a code or a token, or its tokens are not for this sign-in."""


class Grant(NamedTuple):
    """Tokens of a user. `ends_s` is the expiry of the access token on the monotonic clock."""

    access_token: str
    refresh_token: str
    id_token: str
    received_s: float
    ends_s: float


class _Discovered(NamedTuple):
    """The issuer's addresses and keys."""

    authorization_endpoint: str
    token_endpoint: str
    authentication: str
    validator: TokenValidator
    read_s: float


class OpenIdProvider:
    """Requests of the console to the issuer. Used by several threads."""

    def __init__(self, settings: OpenIdSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._tls = HTTPSHandler(context=settings.tls)
        self._found: _Discovered | None = None
        self._lock = threading.Lock()

    def authorization_url(self, sign_in: PendingSignIn, redirect_uri: str) -> str:
        """The address at the issuer that authenticates the user. Raises IssuerError."""
        challenge = hashlib.sha256(sign_in.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_uri,
            "scope": self._settings.scope,
            "state": sign_in.state,
            "nonce": sign_in.nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        endpoint = self._discovered().authorization_endpoint
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def redeem(self, code: str, issuer: str | None, sign_in: PendingSignIn, redirect_uri: str) -> tuple[str, Grant]:
        """The user and the tokens for a code; `issuer` is `iss` of the response. Raises IssuerError, SignInRefused."""
        if issuer not in (None, self._settings.issuer):
            raise SignInRefused("the response is of another issuer")
        if not 0 < len(code) <= MAX_CODE_CHARS:
            raise SignInRefused("the response has no code")
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": sign_in.verifier,
        }
        grant = self._request(fields)
        return self._user(grant.id_token, sign_in.nonce), grant

    def refresh(self, refresh_token: str) -> Grant:
        """New tokens. Raises IssuerError, and SignInRefused when the issuer no longer accepts the token."""
        return self._request({"grant_type": "refresh_token", "refresh_token": refresh_token})

    def _user(self, id_token: str, nonce: str) -> str:
        """The user of the ID token (OpenID Connect Core 1.0, 3.1.3.7)."""
        try:
            claims = self._claims(id_token)
            if claims.get("nonce") != nonce:
                raise AuthenticationFailed("the ID token is of another sign-in")
            if claims.get("azp", self._settings.client_id) != self._settings.client_id:
                raise AuthenticationFailed("the ID token is for another client")
            user = self._discovered().validator.user_of(claims)
            if not user.isprintable():
                raise AuthenticationFailed("the name of the user has characters that cannot be shown")
            return user
        except AuthenticationFailed as error:
            raise SignInRefused(str(error)) from error

    def _claims(self, id_token: str) -> Mapping[str, Any]:
        """The claims of a valid ID token; a key that is unknown is looked up once more."""
        validator = self._discovered().validator
        try:
            return validator.claims(id_token, self._clock.time_ms())
        except AuthenticationFailed:
            newer = self._discovered().validator
            if newer is validator:
                raise
            return newer.claims(id_token, self._clock.time_ms())

    def _forget(self) -> None:
        with self._lock:
            self._found = None

    def _request(self, fields: Mapping[str, str]) -> Grant:
        """Send a request to the token endpoint (RFC 6749, 4.1.3 and 6)."""
        settings, found = self._settings, self._discovered()
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if found.authentication == BASIC:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.client_secret)}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            fields = {**fields, "client_id": settings.client_id, "client_secret": settings.client_secret}
        what = f"the token endpoint of {settings.setting}"
        try:
            answer = fetch(found.token_endpoint, what, MAX_ANSWER_BYTES, self._tls, headers, urlencode(fields).encode())
        except IssuerStatusError as error:
            if error.status < 500:
                raise SignInRefused(str(error)) from error
            raise IssuerError(str(error)) from error
        except OperatorError as error:
            raise IssuerError(str(error)) from error
        return _grant(answer, what, self._clock)

    def _discovered(self) -> _Discovered:
        """The addresses and keys, at most DISCOVERY_S old. Raises IssuerError."""
        with self._lock:
            now_s = self._clock.monotonic()
            if self._found is None or now_s - self._found.read_s >= DISCOVERY_S:
                try:
                    self._found = self._discover(now_s)
                except OperatorError as error:
                    if self._found is None:
                        raise IssuerError(str(error)) from error
                    logger.warning("the issuer's addresses and keys are reused: %s", error)
                    self._found = self._found._replace(read_s=now_s)
            return self._found

    def _discover(self, now_s: float) -> _Discovered:
        settings = self._settings
        url = settings.issuer.rstrip("/") + DISCOVERY_PATH
        document = _document(fetch(url, settings.setting, MAX_DOCUMENT_BYTES, self._tls), settings.setting)
        if document.get("issuer") != settings.issuer:
            raise OperatorError(f"{settings.setting} is not the name that the issuer has for itself")
        if "S256" not in _names(document, "code_challenge_methods_supported", "S256"):
            raise OperatorError(f"{settings.setting} does not support PKCE with S256")
        offered = _names(document, "token_endpoint_auth_methods_supported", BASIC)
        chosen = next((each for each in (BASIC, POST) if each in offered), None)
        if chosen is None:
            raise OperatorError(f"{settings.setting} supports neither {BASIC} nor {POST} at its token endpoint")
        authorization, token, keys = (
            _endpoint(document, name, settings.setting)
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
        )
        what = f"the key set of {settings.setting}"
        rules = TokenRules(
            settings.issuer, (settings.client_id,), sub_claim_name=settings.user_claim, keys_setting=what
        )
        validator = TokenValidator(rules, fetch(keys, what, MAX_DOCUMENT_BYTES, self._tls))
        validator.unknown_key = self._forget
        return _Discovered(authorization, token, chosen, validator, now_s)


class UserTokens:
    """The access token of a signed-in user, which is renewed while the issuer permits it."""

    def __init__(self, provider: OpenIdProvider, grant: Grant, clock: Clock) -> None:
        self._provider = provider
        self._clock = clock
        self._lock = threading.Lock()
        self._use(grant)

    def security(self, transport: ClientSecurity) -> ClientSecurity:
        """The security of connections as this user."""
        return transport._replace(login=lambda _: OAuthBearerClient(self.access_token()))

    def access_token(self) -> str:
        """A valid token; blocks while it is renewed. Raises SessionEnded, IssuerError."""
        with self._lock:
            now_s = self._clock.monotonic()
            if self._refresh_token and now_s >= self._renew_s:
                self._renew(now_s)
            if now_s >= self._ends_s:
                raise SessionEnded("the access token has expired")
            return self._token

    def ends_s(self) -> float:
        """End of the session on the monotonic clock: infinite while the token can be renewed."""
        return math.inf if self._refresh_token else self._ends_s

    def _use(self, grant: Grant) -> None:
        self._token, self._refresh_token, self._ends_s = grant.access_token, grant.refresh_token, grant.ends_s
        self._renew_s = renewal_s(grant.received_s, grant.ends_s)

    def _renew(self, now_s: float) -> None:
        try:
            grant = self._provider.refresh(self._refresh_token)
        except SignInRefused as error:
            logger.warning("a session ends with its token, which the issuer does not renew: %s", error)
            self._refresh_token = ""
        except IssuerError as error:
            if now_s >= self._ends_s:
                raise
            logger.warning("a token was not renewed, and is used until it expires: %s", error)
            self._renew_s = now_s + RETRY_S
        else:
            self._use(grant if grant.refresh_token else grant._replace(refresh_token=self._refresh_token))


def _document(data: bytes, what: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise OperatorError(f"{what} did not return a JSON object; check the URL")
    return document


def _names(document: Mapping[str, Any], name: str, otherwise: str) -> list[Any]:
    found = document.get(name)
    return found if isinstance(found, list) else [otherwise]


def _endpoint(document: Mapping[str, Any], name: str, what: str) -> str:
    url = document.get(name)
    if not isinstance(url, str) or not url.isprintable() or not is_private(url):
        raise OperatorError(f"{what} has no {name} with an https: URL")
    return url


def _grant(answer: bytes, what: str, clock: Clock) -> Grant:
    """The tokens of a response (RFC 6749, 5.1). Raises IssuerError."""
    try:
        document = _document(answer, what)
        access, refresh, identity = (document.get(name, "") for name in ("access_token", "refresh_token", "id_token"))
        if not all(isinstance(each, str) for each in (access, refresh, identity)):
            raise OperatorError(f"{what} returned a token that is not a text")
        if str(document.get("token_type")).lower() != "bearer":
            raise OperatorError(f"{what} returned no token of the type Bearer")
        access = checked_token(access, what)
        if refresh:
            checked_token(refresh, what)
    except OperatorError as error:
        raise IssuerError(str(error)) from error
    now_s = clock.monotonic()
    return Grant(access, refresh, identity, now_s, now_s + _life_s(document.get("expires_in"), access, clock))


def _life_s(expires_in: object, access_token: str, clock: Clock) -> float:
    """Seconds until the access token expires, by the response and by the token, if it is a JWT."""
    end_s = expires_s(access_token)
    known = [] if end_s is None else [end_s - clock.time_ms() / 1000]
    if isinstance(expires_in, int | float) and not isinstance(expires_in, bool) and 0 <= expires_in < 2**40:
        known.append(float(expires_in))
    return max(0.0, min(known, default=LIFE_S))
