"""SASL server session of one connection: message order and session lifetime."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, ProtocolError
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateResponse
from ottla.security.sasl.exchange import REFRESH_SHARE, SaslExchange
from ottla.security.sasl.mechanism import AuthenticationFailed
from ottla.security.sasl.plain import PlainClient, PlainServer
from ottla.security.sasl.session import MIN_SECONDS_BETWEEN, MechanismOffer, Phase, SaslSession

ANN, BOB = PlainClient("ann", "a-secret").first(), PlainClient("bob", "b-secret").first()
WRONG = PlainClient("ann", "wrong").first()
FAILED = "Authentication failed during {} due to invalid credentials with SASL mechanism PLAIN"


class Now:
    """A clock moved by the test."""

    def __init__(self) -> None:
        self.s = 1000.0

    def time_ms(self) -> int:
        return int(self.s * 1000)

    def monotonic(self) -> float:
        return self.s


class Expiring(PlainServer):
    """A mechanism with an expiring credential, like a token."""

    def evaluate(self, response: bytes) -> bytes:
        answer = super().evaluate(response)
        self.expires_ms = 1_005_000
        return answer


@pytest.fixture
def now() -> Now:
    return Now()


def session(now: Now, max_reauth_ms: int = 0, **more: MechanismOffer) -> SaslSession:
    users = {"ann": "a-secret", "bob": "b-secret"}
    return SaslSession({"PLAIN": MechanismOffer(lambda: PlainServer(users), max_reauth_ms), **more}, now)


def logged_in(now: Now, max_reauth_ms: int = 0) -> SaslSession:
    made = session(now, max_reauth_ms)
    made.handshake(1, "PLAIN")
    assert made.authenticate(ANN).error_code == 0
    return made


def test_a_client_logs_in(now: Now) -> None:
    made = session(now)
    made.versions_requested()
    made.versions_known()
    assert made.handshake(1, "PLAIN").mechanisms == ["PLAIN"]
    assert made.authenticating
    answer = made.authenticate(ANN)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert (made.name, made.authenticating, made.expires, made.expired) == ("ann", False, False, False)


def test_tokens_may_be_bare(now: Now) -> None:
    made = session(now)
    made.handshake(0, "PLAIN")
    with pytest.raises(ProtocolError):
        made.authenticate(ANN)
    assert made.bare_token(ANN) == b""
    assert made.name == "ann"
    made = session(now)
    made.handshake(0, "PLAIN")
    assert made.bare_token(WRONG) is None
    assert made.phase is Phase.FAILED


def test_another_mechanism_is_answered_with_those_there_are(now: Now) -> None:
    made = session(now)
    answer = made.handshake(1, "GSSAPI")
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])
    assert made.phase is Phase.FAILED


def test_failure_is_final_and_reveals_nothing_about_the_user(now: Now) -> None:
    for token in (WRONG, PlainClient("nobody", "x").first(), b"\xff"):
        made = session(now)
        made.handshake(1, "PLAIN")
        answer = made.authenticate(token)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == FAILED.format("authentication")
        assert (made.phase, made.name) == (Phase.FAILED, "")
        with pytest.raises(ProtocolError):
            made.authenticate(ANN)
        with pytest.raises(ProtocolError):
            made.handshake(1, "PLAIN")


def test_requests_out_of_order_are_rejected(now: Now) -> None:
    made = session(now)
    with pytest.raises(ProtocolError):
        made.authenticate(ANN)
    made.versions_requested()
    made.versions_known()
    with pytest.raises(ProtocolError):
        made.versions_requested()
    made.handshake(1, "PLAIN")
    with pytest.raises(ProtocolError):
        made.handshake(1, "PLAIN")
    with pytest.raises(ProtocolError):
        made.versions_requested()


def test_session_expires_without_reauthentication(now: Now) -> None:
    made = session(now, 10_000)
    made.handshake(1, "PLAIN")
    assert made.authenticate(ANN).session_lifetime_ms == 10_000
    now.s += 9.9
    assert made.expires
    assert not made.expired
    assert made.begin_again()
    made.handshake(1, "PLAIN")
    assert made.authenticate(ANN).session_lifetime_ms == 10_000
    now.s += 9.9
    assert not made.expired
    now.s += 0.1
    assert made.expired
    assert made.begin_again(), "allowed for a late client, too"


def test_reauthentication_is_limited_to_once_a_second(now: Now) -> None:
    made = logged_in(now, 10_000)
    assert made.begin_again()
    made.handshake(1, "PLAIN")
    made.authenticate(ANN)
    now.s += 0.9
    assert not made.begin_again()
    now.s += 0.1
    assert made.begin_again()
    assert not logged_in(now).begin_again(), "not needed for sessions without expiry"


def test_neither_user_nor_mechanism_changes(now: Now) -> None:
    made = logged_in(now, 10_000)
    made.begin_again()
    made.handshake(1, "PLAIN")
    assert made.authenticate(BOB).error_message == FAILED.format("re-authentication")
    assert (made.phase, made.name) == (Phase.FAILED, "ann")

    other = MechanismOffer(lambda: PlainServer({"ann": "a-secret"}), 0)
    made = session(now, 10_000, OTHER=other)
    made.handshake(1, "PLAIN")
    made.authenticate(ANN)
    made.begin_again()
    assert made.handshake(1, "OTHER").error_code == 0
    assert made.authenticate(ANN).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert made.phase is Phase.FAILED


@pytest.mark.parametrize(("max_reauth_ms", "lifetime_ms"), [(0, 5_000), (10_000, 5_000), (2_000, 2_000)])
def test_credential_expiry_shortens_the_session(now: Now, max_reauth_ms: int, lifetime_ms: int) -> None:
    offer = MechanismOffer(lambda: Expiring({"ann": "a-secret"}), max_reauth_ms)
    made = SaslSession({"PLAIN": offer}, now)
    made.handshake(1, "PLAIN")
    assert made.authenticate(ANN).session_lifetime_ms == lifetime_ms
    now.s += lifetime_ms / 1000
    assert made.expired


def test_expired_credential_is_rejected(now: Now) -> None:
    now.s = 1006.0
    made = SaslSession({"PLAIN": MechanismOffer(lambda: Expiring({"ann": "a-secret"}), 0)}, now)
    made.handshake(1, "PLAIN")
    made.authenticate(ANN)
    assert made.expired


def test_no_failure_is_an_exception_of_a_mechanism(now: Now) -> None:
    made = session(now)
    made.handshake(1, "PLAIN")
    try:
        made.authenticate(b"")
    except AuthenticationFailed:
        pytest.fail("it is an answer")


@pytest.mark.parametrize("lifetime_ms", [0, 1, 900, 1100, 10_000])
def test_client_reauthenticates_in_time_but_not_too_early(lifetime_ms: int) -> None:
    exchange = SaslExchange(PlainClient("ann", "a-secret"))
    assert exchange.answered(SaslAuthenticateResponse(session_lifetime_ms=lifetime_ms)) is None
    if not lifetime_ms:
        assert exchange.again_after_s is None
    else:
        assert exchange.again_after_s is not None
        assert exchange.again_after_s > MIN_SECONDS_BETWEEN
        assert exchange.again_after_s >= lifetime_ms / 1000 * REFRESH_SHARE
