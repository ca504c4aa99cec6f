"""OAUTHBEARER: valid tokens authenticate; forged, modified and foreign ones are rejected."""

from __future__ import annotations

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from ottla.common.errors import OperatorError
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer, TokenRules, TokenValidator

NOW_S = 1_800_000_000
RULES = TokenRules("https://issuer", ("broker",))
CLAIMS = {"sub": "ann", "iss": "https://issuer", "aud": "broker", "iat": NOW_S - 10, "exp": NOW_S + 600}


@cache
def rsa_key(_: int = 0) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def key_set(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(rows)}).encode()


def rsa_row(number: int = 0, **more: Any) -> dict[str, Any]:
    return {**RSAAlgorithm.to_jwk(rsa_key(number).public_key(), as_dict=True), **more}


def token(claims: dict[str, Any] | None = None, *, number: int = 0, algorithm: str = "RS256", **headers: Any) -> str:
    return jwt.encode(CLAIMS if claims is None else claims, rsa_key(number), algorithm, headers or None)


def checked(text: str, rules: TokenRules = RULES, keys: bytes | None = None, now_s: float = NOW_S) -> str:
    validator = TokenValidator(rules, key_set(rsa_row()) if keys is None else keys)
    return validator.check(text, int(now_s * 1000)).name


def test_valid_token_authenticates() -> None:
    validator = TokenValidator(RULES, key_set(rsa_row(1, kid="old"), rsa_row(kid="new")))
    assert validator.check(token(kid="new"), NOW_S * 1000) == ("ann", (NOW_S + 600) * 1000)
    assert validator.check(token(), NOW_S * 1000).name == "ann"
    assert checked(token({**CLAIMS, "aud": ["other", "broker"]})) == "ann"
    assert checked(token({**CLAIMS, "login": "bob"}), RULES._replace(sub_claim_name="login")) == "bob"


def test_keys_of_other_kinds() -> None:
    curve, edwards = ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()
    rows = (
        {"kty": "unheard of"},
        ECAlgorithm.to_jwk(curve.public_key(), as_dict=True),
        OKPAlgorithm.to_jwk(edwards.public_key(), as_dict=True),
    )
    for key, algorithm in ((curve, "ES256"), (edwards, "EdDSA")):
        assert checked(jwt.encode(CLAIMS, key, algorithm), keys=key_set(*rows)) == "ann"
    assert checked(token(algorithm="PS512")) == "ann"
    with pytest.raises(AuthenticationFailed):
        checked(token(algorithm="PS512"), keys=key_set(rsa_row(alg="RS256")))


def encoded(part: Any) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def by_public_key(algorithm: str) -> str:
    """Signed with the public key as the secret of an HMAC."""
    secret = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{encoded({'alg': algorithm, 'typ': 'JWT'})}.{encoded(CLAIMS)}"
    return f"{text}.{encoded(hmac.digest(secret, text.encode(), hashlib.sha256))}"


ATTACKS: dict[str, Any] = {
    "alg none": lambda: f"{encoded({'alg': 'none'})}.{encoded(CLAIMS)}.",
    "alg None, oddly written": lambda: f"{encoded({'alg': 'nOnE'})}.{encoded(CLAIMS)}.",
    "no alg": lambda: f"{encoded({})}.{encoded(CLAIMS)}.",
    "alg a list": lambda: f"{encoded({'alg': ['RS256']})}.{encoded(CLAIMS)}.",
    "the signature cut off": lambda: token().rpartition(".")[0] + ".",
    "claims that were changed": lambda: ".".join(
        [token().split(".")[0], encoded({**CLAIMS, "sub": "admin"}), token().split(".")[2]]
    ),
    "a foreign key": lambda: token(number=1),
    "a foreign key under our name": lambda: token(number=1, kid="ours"),
    "a key that the token brings": lambda: token(number=1, jwk=rsa_row(1)),
    "the public key as a secret": lambda: by_public_key("HS256"),
    "the public key as a secret, said to be RSA": lambda: by_public_key("RS256"),
    "over": lambda: token({**CLAIMS, "exp": NOW_S - 30}),
    "never over": lambda: token({key: value for key, value in CLAIMS.items() if key != "exp"}),
    "over at a time that is none": lambda: token({**CLAIMS, "exp": 1e300}),
    "not valid yet": lambda: token({**CLAIMS, "nbf": NOW_S + 31}),
    "signed in the future": lambda: token({**CLAIMS, "iat": NOW_S + 31}),
    "another audience": lambda: token({**CLAIMS, "aud": "brokers"}),
    "another audience in a list": lambda: token({**CLAIMS, "aud": ["brokers", ""]}),
    "no audience": lambda: token({key: value for key, value in CLAIMS.items() if key != "aud"}),
    "another issuer": lambda: token({**CLAIMS, "iss": "https://issuer/"}),
    "no issuer": lambda: token({key: value for key, value in CLAIMS.items() if key != "iss"}),
    "blank subject": lambda: token({**CLAIMS, "sub": " "}),
    "a critical extension": lambda: token(crit=["exp"]),
    "no token": lambda: "abc",
    "two dots": lambda: "..",
    "too long": lambda: "a" * 20_000,
}


@pytest.mark.parametrize("name", ATTACKS)
def test_invalid_tokens_are_rejected(name: str) -> None:
    text = ATTACKS[name]()
    with pytest.raises(AuthenticationFailed) as caught:
        checked(text, keys=key_set(rsa_row(kid="ours")))
    assert text not in str(caught.value)


def test_clock_skew_is_tolerated() -> None:
    late = token({**CLAIMS, "exp": NOW_S})
    assert checked(late, now_s=NOW_S + 29.9) == "ann"
    early = token({**CLAIMS, "nbf": NOW_S + 30})
    assert checked(early) == "ann"
    with pytest.raises(AuthenticationFailed):
        checked(early, RULES._replace(clock_skew_ms=29_000))


@pytest.mark.parametrize(
    ("rules", "keys", "setting"),
    [
        (RULES._replace(expected_issuer=""), key_set(rsa_row()), "sasl.oauthbearer.expected.issuer"),
        (RULES._replace(expected_audience=()), key_set(rsa_row()), "sasl.oauthbearer.expected.audience"),
        (RULES._replace(expected_audience=("",)), key_set(rsa_row()), "sasl.oauthbearer.expected.audience"),
        (RULES, key_set(), "sasl.oauthbearer.jwks.endpoint.url"),
        (RULES, b"", "sasl.oauthbearer.jwks.endpoint.url"),
        (RULES, b"[" * 100_000, "sasl.oauthbearer.jwks.endpoint.url"),
        (RULES, b'{"keys":[1]}', "sasl.oauthbearer.jwks.endpoint.url"),
        (RULES, key_set({"kty": "oct", "k": "c2VjcmV0"}), "sasl.oauthbearer.jwks.endpoint.url"),
        (RULES, key_set(rsa_row(use="enc")), "sasl.oauthbearer.jwks.endpoint.url"),
    ],
)
def test_missing_keys_issuer_or_audience_are_refused(rules: TokenRules, keys: bytes, setting: str) -> None:
    with pytest.raises(OperatorError, match=setting):
        TokenValidator(rules, keys)


def test_keys_are_replaced() -> None:
    validator = TokenValidator(RULES, key_set(rsa_row()))
    validator.use_keys(key_set(rsa_row(1)))
    assert validator.check(token(number=1), NOW_S * 1000).name == "ann"
    with pytest.raises(AuthenticationFailed):
        validator.check(token(), NOW_S * 1000)
    with pytest.raises(OperatorError):
        validator.use_keys(b"{}")
    assert validator.check(token(number=1), NOW_S * 1000).name == "ann"


class Now:
    def time_ms(self) -> int:
        return NOW_S * 1000

    def monotonic(self) -> float:
        return 0.0


def server() -> OAuthBearerServer:
    return OAuthBearerServer(TokenValidator(RULES, key_set(rsa_row())), Now())


def test_the_exchange() -> None:
    served, client = server(), OAuthBearerClient(token())
    assert served.evaluate(client.first()) == b""
    assert (served.name, served.complete, served.expires_ms) == ("ann", True, (NOW_S + 600) * 1000)
    assert client.evaluate(b"") is None


def test_a_bad_token_is_answered_and_then_refused() -> None:
    served, client = server(), OAuthBearerClient(token(number=1))
    challenge = served.evaluate(client.first())
    assert json.loads(challenge) == {"status": "invalid_token"}
    answer = client.evaluate(challenge)
    assert answer == b"\x01"
    with pytest.raises(AuthenticationFailed, match="none of the configured keys"):
        served.evaluate(answer)
    with pytest.raises(AuthenticationFailed):
        served.evaluate(OAuthBearerClient(token()).first())
    assert not served.complete


@pytest.mark.parametrize(
    "form",
    ["", "T", "n,,T", "n,,\x01auth=T\x01\x01", "n,,\x01auth=Basic T\x01\x01", "n,,\x01auth=Bearer \x01\x01",
     "p,,\x01auth=Bearer T\x01\x01", "n,a=bob,\x01auth=Bearer T\x01\x01", "n,,\x01auth=Bearer T\x01", "\x01"],
)  # fmt: skip
def test_invalid_first_message_is_rejected(form: str) -> None:
    served = server()
    with pytest.raises(AuthenticationFailed):
        served.evaluate(form.replace("T", token()).encode())
    assert not served.complete
