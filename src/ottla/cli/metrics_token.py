"""The bearer token for the metrics of brokers, from a file."""

from __future__ import annotations

from ottla.common.errors import OperatorError

MAX_TOKEN_CHARS = 4096


def read_token(path: str, option: str) -> str:
    """The token in a file that an option names. Raises OperatorError."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(MAX_TOKEN_CHARS).strip()
    except (OSError, ValueError) as error:
        raise OperatorError(f"the token file {path} of {option} cannot be read: {error}") from error
    if not token.isprintable():
        raise OperatorError(f"the token file {path} of {option} has several lines: it must contain the token only")
    return token
