"""What a server keeps of a password for SCRAM, and how it is made (RFC 5802, KIP-84).

As in Apache Kafka names and passwords are taken as UTF-8 without SASLprep, and iterations are bounded on both sides:
few would make a stolen credential cheap to guess, many would let a server keep its clients computing.
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
        """As clients name it."""
        return f"SCRAM-SHA-{self.value[3:]}"

    @property
    def number(self) -> int:
        """In requests and records."""
        return 1 if self is ScramMechanism.SHA_256 else 2


BY_NAME = {mechanism.mechanism_name: mechanism for mechanism in ScramMechanism}
BY_NUMBER = {mechanism.number: mechanism for mechanism in ScramMechanism}


class ScramCredential(NamedTuple):
    """What the server keeps: neither the password nor what a client needs in its place can be computed from it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({HIDDEN})"


def salted_password(mechanism: ScramMechanism, password: str, salt: Buffer, iterations: int) -> bytes:
    """The slow hash of RFC 5802 (`Hi`): some milliseconds for thousands of iterations. Blocks."""
    from hashlib import pbkdf2_hmac  # here and below, since it loads OpenSSL's digests and each import delays the start

    return pbkdf2_hmac(mechanism.value, password.encode(), salt, iterations)


def keyed(mechanism: ScramMechanism, key: Buffer, text: Buffer) -> bytes:
    """HMAC of RFC 5802."""
    from hmac import digest

    return digest(bytes(key), text, mechanism.value)


def credential_of(mechanism: ScramMechanism, salted: Buffer, salt: Buffer, iterations: int) -> ScramCredential:
    """The credential of a password that was salted already."""
    from hashlib import new

    client_key = keyed(mechanism, salted, b"Client Key")
    stored_key = new(mechanism.value, client_key).digest()
    return ScramCredential(bytes(salt), stored_key, keyed(mechanism, salted, b"Server Key"), iterations)
