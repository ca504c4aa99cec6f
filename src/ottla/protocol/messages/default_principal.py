"""Principal of a forwarded request in an Envelope, as serialized by Apache Kafka's default principal builder.

Encoded as a 16-bit version and the body.
"""

from __future__ import annotations

from ottla.protocol.schema import BOOL, STRING, f, message


@message("0", flexible="0+")
class DefaultPrincipalData:
    type_: str = f(STRING, "0+")
    name: str = f(STRING, "0+")
    token_authenticated: bool = f(BOOL, "0+")
