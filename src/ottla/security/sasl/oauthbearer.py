"""OAUTHBEARER (RFC 7628, KIP-255, KIP-768): a client presents a token signed by an issuer.

A token is a signed JWT (RFC 7519). It is accepted when one of the configured keys signed it with an asymmetric
algorithm of `ALGORITHMS`, its audience and issuer are the expected ones, and it is valid now, allowing for clock skew.
Keys, issuer and audience are mandatory: without them any token for any service would be accepted.

Not supported: encrypted tokens, and introspection of opaque ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.common.errors import OperatorError
from ottla.common.platform.clock import Clock
from ottla.security.sasl.mechanism import AuthenticationFailed

if TYPE_CHECKING:
    from jwt import PyJWK
    from jwt.types import Options

MECHANISM = "OAUTHBEARER"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""By name, asymmetric only: with a symmetric one the public key would be the secret."""
MAX_KEYS = 64
MAX_TOKEN_CHARS = 16 * 1024

_FIRST = re.compile(r"n,(?:a=([^,\x00\x01]*))?,\x01((?:[A-Za-z]+=[^\x00\x01]*\x01)+)\x01")
_ABORT = b"\x01"
_INVALID = b'{"status":"invalid_token"}'


class TokenRules(NamedTuple):
    """Required claims of a token, named after Kafka's settings `sasl.oauthbearer.*`."""

    expected_issuer: str
    expected_audience: tuple[str, ...]
    clock_skew_ms: int = 30_000
    sub_claim_name: str = "sub"
    keys_setting: str = "sasl.oauthbearer.jwks.endpoint.url"
    """Name of the source of the keys, for messages."""


class Token(NamedTuple):
    """User of a valid token, and its expiry in milliseconds since the Unix epoch."""

    name: str
    expires_ms: int


class TokenValidator:
    """Checks tokens against a set of keys, which `use_keys` may replace."""

    def __init__(self, rules: TokenRules, key_set: bytes) -> None:
        """`key_set` is a JWKS document (RFC 7517). Raises OperatorError, also without issuer or audience."""
        if not rules.expected_issuer or not any(rules.expected_audience):
            raise OperatorError(
                "OAUTHBEARER needs the expected issuer and audience of tokens: set "
                "sasl.oauthbearer.expected.issuer and sasl.oauthbearer.expected.audience"
            )
        self._rules = rules
        self.unknown_key: Callable[[], object] = _nothing
        """Called when a token names a missing key: the issuer may have a new one."""
        self._keys: Sequence[PyJWK] = ()
        self.use_keys(key_set)

    def use_keys(self, key_set: bytes) -> None:
        """Replace the keys. Raises OperatorError if none of them is usable."""
        self._keys = _public_keys(key_set, self._rules.keys_setting)

    def check(self, token: str, now_ms: int) -> Token:
        """Validate a token. Raises AuthenticationFailed."""
        claims = self.claims(token, now_ms)
        return Token(self.user_of(claims), int(claims["exp"] * 1000))

    def claims(self, token: str, now_ms: int) -> Mapping[str, Any]:
        """The claims of a token with a valid signature, issuer, audience and time. Raises AuthenticationFailed."""
        claims = self._signed_claims(token)
        rules = self._rules
        if claims.get("iss") != rules.expected_issuer:
            raise AuthenticationFailed("the token has another issuer")
        audience = claims.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if not any(each in rules.expected_audience for each in audiences if isinstance(each, str)):
            raise AuthenticationFailed("the token has another audience")
        expires_ms = _time_ms(claims, "exp")
        if expires_ms is None:
            raise AuthenticationFailed("the token has no expiry")
        if now_ms >= expires_ms + rules.clock_skew_ms:
            raise AuthenticationFailed("the token has expired")
        for claim in ("nbf", "iat"):
            begins_ms = _time_ms(claims, claim)
            if begins_ms is not None and begins_ms > now_ms + rules.clock_skew_ms:
                raise AuthenticationFailed("the token is not valid yet")
        return claims

    def user_of(self, claims: Mapping[str, Any]) -> str:
        """The user of a token with these claims. Raises AuthenticationFailed."""
        name = claims.get(self._rules.sub_claim_name)
        if not isinstance(name, str) or not name.strip():
            raise AuthenticationFailed(f"the token has no user (claim {self._rules.sub_claim_name})")
        return name.strip()

    def _signed_claims(self, token: str) -> Mapping[str, Any]:
        import jwt

        if len(token) > MAX_TOKEN_CHARS:
            raise AuthenticationFailed(f"the token has more than {MAX_TOKEN_CHARS} characters")
        try:
            header = jwt.get_unverified_header(token)
        except jwt.PyJWTError:
            raise AuthenticationFailed("the token is not a signed JWT") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise AuthenticationFailed("the token's signature algorithm is not supported")
        for key in self._keys:
            if key.algorithm_name != algorithm or (key_id is not None and key.key_id not in (None, key_id)):
                continue
            try:
                # Times are checked with this node's clock, and the other claims with them.
                claims: Mapping[str, Any] = jwt.decode(token, key.key, algorithms=[algorithm], options=_SIGNATURE_ALONE)
                return claims
            except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
                continue
        if key_id is not None and all(key.key_id != key_id for key in self._keys):
            self.unknown_key()
        raise AuthenticationFailed("the token's signature matches none of the configured keys")


def _nothing() -> None:
    """Default callback: no other keys to load."""


_SIGNATURE_ALONE: Options = {
    "verify_signature": True,
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
    "verify_iss": False,
    "verify_sub": False,
    "verify_jti": False,
}


def _public_keys(key_set: bytes, setting: str) -> list[PyJWK]:
    import jwt

    try:
        document = json.loads(key_set)
        rows = document["keys"]
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise OperatorError(f"{setting} is not a key set: it has to return a JSON object with a list `keys`") from None
    keys: list[PyJWK] = []
    for row in rows[:MAX_KEYS]:
        if row.get("kty") == "oct" or row.get("use", "sig") != "sig":
            continue
        try:
            keys += [jwt.PyJWK({**row, "alg": algorithm}) for algorithm in _algorithms(row)]
        except (jwt.PyJWTError, ValueError, TypeError):
            continue  # of an unsupported kind: other keys may be usable
    if not keys:
        raise OperatorError(f"{setting} has no usable public key: supported are {', '.join(ALGORITHMS)}")
    return keys


_CURVES = {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}


def _algorithms(row: Mapping[str, Any]) -> Sequence[str]:
    """Algorithms of signatures by this key: its `alg`, else those of its kind."""
    said = row.get("alg")
    if said is not None:
        return [said] if said in ALGORITHMS else []
    kind = row.get("kty")
    if kind == "RSA":
        return [name for name in ALGORITHMS if name[0] in "RP"]
    if kind == "EC":
        return [_CURVES[row["crv"]]] if row.get("crv") in _CURVES else []
    return ["EdDSA"] if kind == "OKP" else []


def _time_ms(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 2**40:
        raise AuthenticationFailed(f"{name} of the token is not a time")
    return int(value * 1000)


class OAuthBearerServer:
    """One exchange on the server. Implements `ServerMechanism`."""

    def __init__(self, validator: TokenValidator, clock: Clock) -> None:
        self._validator = validator
        self._clock = clock
        self._failure: AuthenticationFailed | None = None
        self.name = ""
        self.complete = False
        self.expires_ms: int | None = None
        self.by_token = False

    def evaluate(self, response: bytes) -> bytes:
        """See `ServerMechanism`; as in RFC 7628 a bad token is answered first, and rejected in the next step."""
        if self._failure is not None:
            raise self._failure
        authorization, token = _parse_first(response)
        try:
            valid = self._validator.check(token, self._clock.time_ms())
        except AuthenticationFailed as error:
            self._failure = error
            return _INVALID
        if authorization not in ("", valid.name):
            raise AuthenticationFailed("the client requested another user's authorization id")
        self.name, self.expires_ms, self.complete = valid.name, valid.expires_ms, True
        return b""


def _parse_first(response: bytes) -> tuple[str, str]:
    """Authorization id and token of the first message."""
    try:
        match = _FIRST.fullmatch(response.decode())
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise AuthenticationFailed("the first message is not an OAUTHBEARER message")
    pairs = dict(pair.split("=", 1) for pair in match.group(2).split("\x01") if pair)
    kind, _, token = pairs.get("auth", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise AuthenticationFailed("the first message has no token")
    return match.group(1) or "", token.strip()


class OAuthBearerClient:
    """One exchange on the client, with an existing token. Implements `ClientMechanism`."""

    mechanism = MECHANISM

    def __init__(self, token: str) -> None:
        self._token = token

    def first(self) -> bytes:
        """See `ClientMechanism`."""
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def evaluate(self, challenge: bytes) -> bytes | None:
        """See `ClientMechanism`; a challenge with text is a rejection, which the server completes after this."""
        return _ABORT if challenge else None
