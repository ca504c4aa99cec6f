"""How a broker tells a controller for whom it asks, in an Envelope: as Apache Kafka's default principal builder does.

Behind a version of 16 bits, as the serialized data of that builder.
"""

from __future__ import annotations

from ottla.protocol.schema import BOOL, STRING, f, message


@message("0", flexible="0+")
class DefaultPrincipalData:
    type_: str = f(STRING, "0+")
    name: str = f(STRING, "0+")
    token_authenticated: bool = f(BOOL, "0+")
