"""Config definitions: one row a setting, from which parsing, validation, DescribeConfigs and the documentation follow.

The tables themselves are `topic_configs` and `broker_configs`. Texts of validation errors follow Apache Kafka, since
other tools and tests match them. A value is parsed once; `render` returns the string form for DescribeConfigs and the
metadata log. The layers of values are in `broker_configs`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.integers import MAX_INT as MAX_INT
from ottla.common.kafka.integers import MAX_LONG as MAX_LONG
from ottla.common.kafka.integers import MAX_SHORT as MAX_SHORT

MAX_DOUBLE = 1.7976931348623157e308

MAX_VALUE_LENGTH = 32767
"""Maximum length of a value in characters; older tools encode Kafka's ConfigRecord with a 16-bit length."""

ConfigValue = bool | int | float | str | tuple[str, ...] | None


class ConfigType(IntEnum):
    """Types with their numbers in DescribeConfigs (KIP-569)."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Layer of a value, with the numbers of DescribeConfigs (KIP-226)."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigResourceType(IntEnum):
    """Resource that a config belongs to, with the numbers of the admin requests and of ConfigRecord."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Importance(Enum):
    """Importance levels of Kafka's documentation."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class UpdateMode(Enum):
    """Level on which a broker setting may change while the broker runs (KIP-226)."""

    READ_ONLY = "read-only"
    CLUSTER_WIDE = "cluster-wide"
    PER_BROKER = "per-broker"


class Validator(Protocol):
    """A rule beyond the type."""

    def problem(self, value: ConfigValue) -> str | None:
        """Return the problem with `value`, or None."""
        ...

    def describe(self) -> str:
        """Return the rule in the notation of Kafka's documentation."""
        ...


class Range(NamedTuple):
    """Numbers from `low` to `high`, both inclusive; None means unbounded."""

    low: float | None = None
    high: float | None = None

    def problem(self, value: ConfigValue) -> str | None:
        if not isinstance(value, int | float):
            return None
        if self.low is not None and value < self.low:
            return f"Value must be at least {self.low}"
        if self.high is not None and value > self.high:
            return f"Value must be no more than {self.high}"
        return None

    def describe(self) -> str:
        low = "" if self.low is None else str(self.low)
        return f"[{low},...]" if self.high is None else f"[{low},...,{self.high}]"


class RangeOr(NamedTuple):
    """Range of integers plus one special value (`compression.gzip.level`)."""

    low: int
    high: int
    special: int

    def problem(self, value: ConfigValue) -> str | None:
        if value == self.special or (isinstance(value, int) and self.low <= value <= self.high):
            return None
        return f"Value must be between {self.low} and {self.high} or equal to {self.special}"

    def describe(self) -> str:
        return f"[{self.low},...,{self.high}] or {self.special}"


class OneOf(NamedTuple):
    """Strings from a fixed set; for a list, each element."""

    choices: tuple[str, ...]

    def problem(self, value: ConfigValue) -> str | None:
        for item in value if isinstance(value, tuple) else (value,):
            if item is not None and item not in self.choices:
                return f"String must be one of: {', '.join(self.choices)}"
        return None

    def describe(self) -> str:
        return f"[{', '.join(self.choices)}]"


class OneOfAnyCase(NamedTuple):
    """A string from a fixed set, in lower or upper case."""

    choices: tuple[str, ...]

    def problem(self, value: ConfigValue) -> str | None:
        if isinstance(value, str) and value.lower() not in self.choices:
            return f"String must be one of (case insensitive): {', '.join(choice.upper() for choice in self.choices)}"
        return None

    def describe(self) -> str:
        return f"(case insensitive) [{', '.join(choice.upper() for choice in self.choices)}]"


class ThrottledReplicas(NamedTuple):
    """List of `partition:broker` pairs, or a single `*` (KIP-73)."""

    def problem(self, value: ConfigValue) -> str | None:
        if not isinstance(value, tuple) or not value or value == ("*",):
            return None
        if all(re.fullmatch(r"[0-9]+:[0-9]+", item.strip()) for item in value):
            return None
        return (
            "Must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

    def describe(self) -> str:
        return "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


class UnlimitedOrPositive(NamedTuple):
    """-1 for no limit, or at least 1 (the retention times of the broker)."""

    def problem(self, value: ConfigValue) -> str | None:
        if value is None or value == -1 or (isinstance(value, int) and value >= 1):
            return None
        return "must be unlimited (-1) or, equal or greater than 1"

    def describe(self) -> str:
        return "-1 or [1,...]"


def at_least(low: float) -> Range:
    return Range(low, None)


def between(low: float, high: float) -> Range:
    return Range(low, high)


class ConfigKey(NamedTuple):
    """One setting.

    `server_synonyms` (topic settings): the broker settings that define its default, most specific first, each with the
    factor that turns its unit into this one's. `internal` settings work but are not shown.
    """

    name: str
    type: ConfigType
    default: ConfigValue
    doc: str
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    update_mode: UpdateMode = UpdateMode.READ_ONLY
    server_synonyms: tuple[tuple[str, int], ...] = ()
    internal: bool = False

    @property
    def sensitive(self) -> bool:
        """Return whether the value must never leave the broker."""
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> ConfigValue:
        """Parse `text`; raises KafkaError INVALID_CONFIG with Kafka's message."""
        shown = "[hidden]" if self.sensitive else text
        if len(text) > MAX_VALUE_LENGTH:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Invalid value for configuration {self.name}: longer than {MAX_VALUE_LENGTH} characters",
            )
        try:
            value = _parse(self.type, text)
            problem = self.validator.problem(value) if self.validator is not None else None
        except ValueError as error:
            problem = str(error)
        if problem is not None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Invalid value {shown} for configuration {self.name}: {problem}"
            )
        return value


_BOUNDS = {
    ConfigType.SHORT: (-(2**15), 2**15 - 1),
    ConfigType.INT: (-(2**31), MAX_INT),
    ConfigType.LONG: (-(2**63), MAX_LONG),
}


_FREE_TEXT = (ConfigType.STRING, ConfigType.PASSWORD, ConfigType.CLASS)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_JAVA_WHITESPACE = "".join(map(chr, range(0x21)))
"""Whitespace of Java's String.trim(); str.strip() would also remove Unicode whitespace."""
_DOUBLE = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|Infinity)")


def _parse(kind: ConfigType, text: str) -> ConfigValue:
    if kind not in _FREE_TEXT and _CONTROL.search(text):
        raise ValueError("must not contain control characters")
    text = text.strip(_JAVA_WHITESPACE)
    if kind is ConfigType.BOOLEAN:
        lowered = text.lower()
        if lowered not in ("true", "false"):
            raise ValueError("Expected value to be either true or false")
        return lowered == "true"
    if kind in _BOUNDS:
        low, high = _BOUNDS[kind]
        # int() also accepts "1_000" and Unicode digits, which Kafka rejects.
        if not re.fullmatch(r"[+-]?[0-9]{1,20}", text, re.ASCII) or not low <= int(text) <= high:
            raise ValueError(f"Not a number of type {kind.name}")
        return int(text)
    if kind is ConfigType.DOUBLE:
        # float() also accepts "1_000", Unicode digits and "nan".
        if not _DOUBLE.fullmatch(text):
            raise ValueError("Not a number of type DOUBLE")
        return float(text)
    if kind is ConfigType.LIST:
        return tuple(item.strip(_JAVA_WHITESPACE) for item in text.split(",")) if text else ()
    return text


def render(value: ConfigValue) -> str | None:
    """Return the text form that Kafka shows for a value."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float) and value == MAX_DOUBLE:
        return "1.7976931348623157E308"
    return str(value)


def key_table(keys: Iterable[ConfigKey]) -> Mapping[str, ConfigKey]:
    """Return the rows by name; raises ValueError for a duplicate name."""
    table: dict[str, ConfigKey] = {}
    for key in keys:
        if key.name in table:
            raise ValueError(f"config {key.name} is defined twice")
        table[key.name] = key
    return table


def markdown(table: Mapping[str, ConfigKey]) -> str:
    """Return the settings as a Markdown table for the documentation, by name."""
    lines = [
        "| name | type | default | valid values | update | description |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in sorted(table):
        key = table[name]
        if key.internal:
            continue
        default = "null" if key.default is None else render(key.default) or '""'
        valid = key.validator.describe() if key.validator is not None else ""
        cells = (f"`{name}`", key.type.name.lower(), default, valid, key.update_mode.value, key.doc)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


class ConfigSynonym(NamedTuple):
    """One candidate for a value, in order of precedence."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One described setting in a DescribeConfigs response."""

    name: str
    value: str | None
    type: ConfigType
    source: ConfigSource
    sensitive: bool
    read_only: bool
    doc: str
    synonyms: tuple[ConfigSynonym, ...]
