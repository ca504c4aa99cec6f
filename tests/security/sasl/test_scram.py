"""SCRAM between our two sides, against the RFC's example, and against cheating peers."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest

from ottla.security.sasl.credentials import (
    BY_NAME,
    ScramCredential,
    ScramMechanism,
    credential_of,
    salted_password,
)
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.security.sasl.scram import ScramClient, ScramServer
from ottla.security.sasl.tokens import TokenLogin

SECRET = b"of this process"
MECHANISMS = pytest.mark.parametrize("mechanism", ScramMechanism, ids=BY_NAME)


def no_token(_token_id: str) -> TokenLogin | None:
    return None


class Bytes:
    """Random bytes given by the test, else counting up."""

    def __init__(self, *given: bytes) -> None:
        self._given = list(given)
        self._count = 0

    def random_bytes(self, count: int) -> bytes:
        if self._given:
            return self._given.pop(0)
        self._count += 1
        return self._count.to_bytes(count, "big")

    def randrange(self, stop: int) -> int:
        raise NotImplementedError


def credential(mechanism: ScramMechanism, password: str, iterations: int = 4096) -> ScramCredential:
    salt = b"salt of a user"
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def server(mechanism: ScramMechanism, **users: ScramCredential) -> ScramServer:
    return ScramServer(mechanism, users.get, no_token, Bytes(), SECRET)


def converse(client: ScramClient, served: ScramServer) -> None:
    """The whole exchange; either side raises on an error."""
    message: bytes | None = client.first()
    while message is not None:
        message = client.evaluate(served.evaluate(message))


def test_the_example_of_the_rfc() -> None:
    """RFC 7677, section 3."""
    mechanism = ScramMechanism.SHA_256
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    user = credential_of(mechanism, salted_password(mechanism, "pencil", salt, 4096), salt, 4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    client = ScramClient(mechanism, "user", "pencil", Bytes().random_bytes)
    client._nonce, client._bare = "rOprNGfwEbeRWgbNEkqO", "n=user,r=rOprNGfwEbeRWgbNEkqO"
    first = f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final = f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert client.evaluate(first.encode()) == final.encode()
    assert client.evaluate(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None

    served = ScramServer(mechanism, {"user": user}.get, no_token, Bytes(), SECRET)
    served.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    served._nonce = nonce
    served._messages = f"n=user,r=rOprNGfwEbeRWgbNEkqO,{first}"
    assert served.evaluate(final.encode()) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert (served.name, served.complete) == ("user", True)


@MECHANISMS
@pytest.mark.parametrize("name", ["ann", "a,b=c", "ännä,=2C"])
def test_correct_password_authenticates(mechanism: ScramMechanism, name: str) -> None:
    served = ScramServer(mechanism, {name: credential(mechanism, "sécret=,")}.get, no_token, Bytes(), SECRET)
    converse(ScramClient(mechanism, name, "sécret=,", Bytes().random_bytes), served)
    assert (served.name, served.complete) == (name, True)


@MECHANISMS
def test_wrong_password_is_rejected(mechanism: ScramMechanism) -> None:
    served = server(mechanism, ann=credential(mechanism, "right"))
    with pytest.raises(AuthenticationFailed, match="unknown name or wrong password"):
        converse(ScramClient(mechanism, "ann", "wrong", Bytes().random_bytes), served)
    assert not served.complete
    assert served.name == ""


@MECHANISMS
def test_an_unknown_user_is_answered_as_a_known_one(mechanism: ScramMechanism) -> None:
    def answer(name: str, *users: str) -> list[bytes]:
        served = ScramServer(
            mechanism, {each: credential(mechanism, "p") for each in users}.get, no_token, Bytes(), SECRET
        )
        return served.evaluate(f"n,,n={name},r=abc".encode()).split(b",")

    assert answer("absent")[1] == answer("absent")[1] != answer("other")[1], "the salt is constant for a name"
    assert answer("absent")[0] == answer("ann", "ann")[0]
    assert answer("absent")[2] == answer("ann", "ann")[2] == b"i=4096"
    served = server(mechanism, ann=credential(mechanism, "p"))
    with pytest.raises(AuthenticationFailed, match="unknown name or wrong password"):
        converse(ScramClient(mechanism, "absent", "p", Bytes().random_bytes), served)


@MECHANISMS
def test_first_answer_derives_the_same_for_any_user(mechanism: ScramMechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    digests: list[tuple[bytes, bytes]] = []
    digest = hmac.digest

    def counted(key: bytes, message: bytes, algorithm: str) -> bytes:
        digests.append((key, message))
        return digest(key, message, algorithm)

    users = {"ann": credential(mechanism, "p"), "strong": credential(mechanism, "p", 16385)}
    monkeypatch.setattr("ottla.security.sasl.scram.hmac.digest", counted)
    for name in ("ann", "bob", "strong"):
        digests.clear()
        served = ScramServer(mechanism, users.get, no_token, Bytes(), SECRET)
        answer = served.evaluate(f"n,,n={name},r=abc".encode())
        assert digests == [(SECRET, name.encode())]
        assert answer.endswith(b",i=4096")


@pytest.mark.parametrize("iterations", [0, 1, 4095, 16385, 2**31, 10**9])
def test_absurd_iterations_are_not_computed(iterations: int) -> None:
    client = ScramClient(ScramMechanism.SHA_512, "ann", "p", Bytes().random_bytes)
    nonce = client.first().decode().rpartition("r=")[2]
    with pytest.raises(AuthenticationFailed):
        client.evaluate(f"r={nonce}x,s=c2FsdA==,i={iterations}".encode())


@pytest.mark.parametrize("iterations", [4095, 16385])
def test_credential_with_iterations_out_of_bounds_is_rejected(iterations: int) -> None:
    mechanism = ScramMechanism.SHA_256
    served = server(mechanism, ann=credential(mechanism, "p", iterations))
    with pytest.raises(AuthenticationFailed):
        converse(ScramClient(mechanism, "ann", "p", Bytes().random_bytes), served)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\xff\xfe",
        b"\0ann\0p",
        b"n,,n=ann",
        b"n,,n=,r=abc",
        b"n,,n=a=b,r=abc",
        b"p=tls-unique,,n=ann,r=abc",
        b"y,,n=ann,r=abc",
        b"n,a=bob,n=ann,r=abc",
        b"n,,m=x,n=ann,r=abc",
        b"n,,n=ann,r=a\0c",
        b"n,,n=ann,r=" + b"a" * 10 + b",=",
    ],
)
def test_invalid_first_message_is_rejected(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        server(ScramMechanism.SHA_256, ann=credential(ScramMechanism.SHA_256, "p")).evaluate(message)


def final_message(served: ScramServer, mechanism: ScramMechanism) -> str:
    client = ScramClient(mechanism, "ann", "p", Bytes().random_bytes)
    final = client.evaluate(served.evaluate(client.first()))
    assert final is not None
    return final.decode()


@pytest.mark.parametrize(
    ("wanted", "instead"),
    [
        ("c=biws", "c=eSws"),
        ("c=biws", "c="),
        (",r=", ",r=x"),
        (",p=", ",p=A"),
        (",p=", ",p=!"),
        (",p=", ",q="),
        ("c=biws,", ""),
    ],
)
def test_modified_last_message_is_rejected(wanted: str, instead: str) -> None:
    mechanism = ScramMechanism.SHA_256
    served = server(mechanism, ann=credential(mechanism, "p"))
    changed = final_message(served, mechanism).replace(wanted, instead, 1)
    with pytest.raises(AuthenticationFailed):
        served.evaluate(changed.encode())
    assert not served.complete


@pytest.mark.parametrize("header", ["y,,", "n,a=eve,", "p=tls-unique,,"])
def test_proof_over_another_channel_header_is_refused(header: str) -> None:
    """The client signs its channel binding, so a correct proof alone does not show that nothing was changed."""
    mechanism = ScramMechanism.SHA_256
    served = server(mechanism, ann=credential(mechanism, "p"))
    client = ScramClient(mechanism, "ann", "p", Bytes().random_bytes)
    challenge = served.evaluate(client.first()).decode()
    salt, iterations = (part.partition("=")[2] for part in challenge.split(",")[1:3])
    without_proof = f"c={b64encode(header.encode()).decode()},{challenge.split(',')[0]}"
    salted = salted_password(mechanism, "p", b64decode(salt), int(iterations))
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signed = f"{client._bare},{challenge},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    with pytest.raises(AuthenticationFailed, match="channel"):
        served.evaluate(f"{without_proof},p={b64encode(proof).decode()}".encode())
    assert not served.complete


def test_a_last_message_is_taken_once() -> None:
    mechanism = ScramMechanism.SHA_256
    served = server(mechanism, ann=credential(mechanism, "p"))
    final = final_message(served, mechanism).encode()
    served.evaluate(final)
    with pytest.raises(AuthenticationFailed):
        served.evaluate(final)
    again = server(mechanism, ann=credential(mechanism, "p"))
    again._rng = Bytes(b"another nonce of it")
    again.evaluate(ScramClient(mechanism, "ann", "p", Bytes().random_bytes).first())
    with pytest.raises(AuthenticationFailed, match="another nonce"):
        again.evaluate(final)


@pytest.mark.parametrize(
    "challenge",
    [b"", b"e=unknown-user", b"r=other,s=c2FsdA==,i=4096", b"r=NONCE,s=c2FsdA==,i=4096", b"r=NONCEx,s=!,i=4096"],
)
def test_invalid_first_server_message_is_rejected(challenge: bytes) -> None:
    client = ScramClient(ScramMechanism.SHA_256, "ann", "p", Bytes().random_bytes)
    nonce = client.first().rpartition(b"r=")[2]
    with pytest.raises(AuthenticationFailed):
        client.evaluate(challenge.replace(b"NONCE", nonce))


@pytest.mark.parametrize("last", [b"", b"e=other-error", b"v=AAAA", b"v=" + b64encode(bytes(32))])
def test_server_without_the_credential_is_rejected(last: bytes) -> None:
    client = ScramClient(ScramMechanism.SHA_256, "ann", "p", Bytes().random_bytes)
    nonce = client.first().rpartition(b"r=")[2]
    assert client.evaluate(b"r=" + nonce + b"x,s=c2FsdA==,i=4096")
    with pytest.raises(AuthenticationFailed):
        client.evaluate(last)


def test_nothing_secret_is_shown() -> None:
    shown = repr(credential(ScramMechanism.SHA_256, "p"))
    assert "salt" not in shown
    assert "x" not in shown
