"""SCRAM users in the format of `kafka-storage format --add-scram`: `SCRAM-SHA-256=[name=alice,password=secret]`
(KIP-900).

Beside the name, the brackets contain `password`, or `saltedpassword` with `salt` (both base64), and `iterations`.
Messages do not quote values, which may be passwords.
"""

from __future__ import annotations

from base64 import b64decode

from ottla.common.errors import OperatorError
from ottla.common.platform.clock import Rng
from ottla.metadata.snapshot import scram_credential_record
from ottla.protocol.messages.metadata_records import UserScramCredentialRecord
from ottla.security.sasl.credentials import (
    BY_NAME,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_BYTES,
    credential_of,
    salted_password,
)

_FORM = "--add-scram has the form MECHANISM=[name=NAME,password=PASSWORD]"
_NAMES = ("name", "password", "saltedpassword", "salt", "iterations")


def scram_record(argument: str, rng: Rng) -> UserScramCredentialRecord:
    """The record of the user. Raises OperatorError."""
    mechanism_name, _, rest = argument.strip().partition("=")
    mechanism = BY_NAME.get(mechanism_name)
    if mechanism is None:
        raise OperatorError(f"{_FORM}; mechanisms: {', '.join(BY_NAME)}")
    values = _values(rest)
    iterations = _iterations(values.get("iterations"))
    salt = _decoded("salt", values["salt"]) if "salt" in values else rng.random_bytes(SALT_BYTES)
    if "password" in values:
        salted = salted_password(mechanism, values["password"], salt, iterations)
    elif "saltedpassword" in values and "salt" in values:
        salted = _decoded("saltedpassword", values["saltedpassword"])
    else:
        raise OperatorError(f"{_FORM}, or with salt=BASE64,saltedpassword=BASE64 instead of the password")
    credential = credential_of(mechanism, salted, salt, iterations)
    return scram_credential_record((values["name"], mechanism.number), credential)


def _values(text: str) -> dict[str, str]:
    if not (text.startswith("[") and text.endswith("]")):
        raise OperatorError(f"{_FORM}, including the brackets: quote the argument for the shell")
    values: dict[str, str] = {}
    for part in text[1:-1].split(","):
        name, separator, value = part.partition("=")
        if not separator or name.strip() not in _NAMES:
            raise OperatorError(f"{_FORM}; keys in the brackets are {', '.join(_NAMES)}, each with a value after `=`")
        quoted = len(value) >= 2 and value.startswith('"') and value.endswith('"')
        values[name.strip()] = value[1:-1] if quoted else value
    if not values.get("name"):
        raise OperatorError(f"{_FORM}: the name is missing")
    return values


def _iterations(text: str | None) -> int:
    if text is None:
        return MIN_ITERATIONS
    count = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    if not MIN_ITERATIONS <= count <= MAX_ITERATIONS:
        raise OperatorError(f"iterations of --add-scram must be {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    return count


def _decoded(name: str, text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise OperatorError(f"{name} of --add-scram is not base64") from None
