"""SCRAM credentials that a server stores instead of passwords, and their derivation (RFC 5802, KIP-84).

As in Apache Kafka names and passwords are used as UTF-8 without SASLprep. Iterations are bounded on both sides:
with too few a stolen credential would be cheap to guess, with too many a server could exhaust its clients' CPU.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ottla.common.platform.disk import Buffer

MIN_ITERATIONS, MAX_ITERATIONS = 4096, 16384
SALT_BYTES = 24
HIDDEN = "[hidden]"


class ScramMechanism(Enum):
    """A hash function by its name, with Kafka's number of the mechanism."""

    SHA_256 = "sha256"
    SHA_512 = "sha512"

    @property
    def mechanism_name(self) -> str:
        """The name in the SASL handshake."""
        return f"SCRAM-SHA-{self.value[3:]}"

    @property
    def number(self) -> int:
        """The number in requests and records."""
        return 1 if self is ScramMechanism.SHA_256 else 2


BY_NAME = {mechanism.mechanism_name: mechanism for mechanism in ScramMechanism}
BY_NUMBER = {mechanism.number: mechanism for mechanism in ScramMechanism}


class ScramCredential(NamedTuple):
    """The stored credential: reveals neither the password nor the client's key."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({HIDDEN})"


def salted_password(mechanism: ScramMechanism, password: str, salt: Buffer, iterations: int) -> bytes:
    """The slow hash of RFC 5802 (`Hi`): some milliseconds for thousands of iterations. Blocks."""
    from hashlib import pbkdf2_hmac  # imported here and below: it loads OpenSSL's digests, which delays the start

    return pbkdf2_hmac(mechanism.value, password.encode(), salt, iterations)


def keyed(mechanism: ScramMechanism, key: Buffer, text: Buffer) -> bytes:
    """HMAC of RFC 5802."""
    from hmac import digest

    return digest(bytes(key), text, mechanism.value)


def credential_of(mechanism: ScramMechanism, salted: Buffer, salt: Buffer, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    from hashlib import new

    client_key = keyed(mechanism, salted, b"Client Key")
    stored_key = new(mechanism.value, client_key).digest()
    return ScramCredential(bytes(salt), stored_key, keyed(mechanism, salted, b"Server Key"), iterations)
