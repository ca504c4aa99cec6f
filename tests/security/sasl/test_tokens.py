"""Delegation tokens by SCRAM (KIP-48): a token authenticates as its owner until expiry, and nothing else does."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from ottla.common.kafka.delegation_token import DelegationToken
from ottla.security.sasl.credentials import BY_NAME, ScramMechanism
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.security.sasl.scram import ScramClient, ScramServer
from ottla.security.sasl.tokens import TokenIndex, TokenLogins, hmac_of

from .test_scram import Bytes, converse

SECRET = "of-all-nodes"
TOKEN = DelegationToken("t1", "User:ann", "User:eve", ("User:bob",), 1000, 9000, 5000)
PASSWORD = b64encode(hmac_of(SECRET, "t1")).decode()


def login(
    mechanism: ScramMechanism,
    now_ms: int,
    *,
    token_id: str = "t1",
    password: str = PASSWORD,
    by_token: bool = True,
    secret: str = SECRET,
) -> ScramServer:
    logins = TokenLogins(secret, {"t1": TOKEN}.get, lambda: b"of the cluster")
    served = ScramServer(
        mechanism, lambda name: None, lambda asked: logins.find(asked, mechanism, now_ms), Bytes(), b"of the cluster"
    )
    converse(ScramClient(mechanism, token_id, password, Bytes().random_bytes, by_token=by_token), served)
    return served


@pytest.mark.parametrize("mechanism", ScramMechanism, ids=BY_NAME)
def test_token_authenticates_as_its_owner_until_expiry(mechanism: ScramMechanism) -> None:
    served = login(mechanism, 5000)
    assert (served.name, served.by_token, served.expires_ms) == ("ann", True, 5000)
    with pytest.raises(AuthenticationFailed):
        login(mechanism, 5001)


@pytest.mark.parametrize(
    "wrong",
    [
        {"by_token": False},
        {"token_id": "t2"},
        {"password": PASSWORD[::-1]},
        {"secret": "of-another-cluster"},
        {"secret": ""},
    ],
)
def test_other_token_credentials_are_rejected(wrong: dict[str, Any]) -> None:
    with pytest.raises(AuthenticationFailed, match="unknown name or wrong password"):
        login(ScramMechanism.SHA_256, 2000, **wrong)


def test_token_salt_follows_a_changed_salt_key() -> None:
    key = [b"first"]
    logins = TokenLogins(SECRET, {"t1": TOKEN}.get, lambda: key[0])

    def salt(token_id: str, *, known: bool) -> bytes:
        served = ScramServer(
            ScramMechanism.SHA_256,
            lambda name: None,
            lambda asked: logins.find(asked, ScramMechanism.SHA_256, 2000) if known else None,
            Bytes(),
            key[0],
        )
        return served.evaluate(f"n,,n={token_id},r=abc,tokenauth=true".encode()).split(b",")[1]

    before = salt("t1", known=True)
    assert before == salt("t1", known=False)
    key[0] = b"second"
    assert before != salt("t1", known=True) == salt("t1", known=False)


def test_tokens_are_found_by_their_hmacs_as_images_have_them() -> None:
    index = TokenIndex(SECRET)
    tokens = {"t1": TOKEN}
    assert index.find(tokens, hmac_of(SECRET, "t1")) is TOKEN
    assert index.find(tokens, hmac_of(SECRET, "t2")) is None
    later = {"t2": TOKEN._replace(token_id="t2")}
    assert index.find(later, hmac_of(SECRET, "t1")) is None
    assert index.find(later, hmac_of(SECRET, "t2")) is later["t2"]
