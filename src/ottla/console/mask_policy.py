"""Mask rules of the console: a TOML file with the masked parts by topic, and the users that see them unmasked.

    [[masks]]
    topic = "payments-*"
    fields = ["value.card.number", 'headers["token"]']
    method = "last 4"
    unmasked = ["User:ada"]

The file is checked when the console starts; no key is ignored. `search.masks` applies the rules.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple, NoReturn

from ottla.common.errors import OperatorError
from ottla.common.platform.files import read_file
from ottla.common.suggestion import did_you_mean
from ottla.search.masks import MaskRule, RecordMask, parse_rule

MAX_FILE_BYTES = 1 << 20
MAX_MASKS = 1_000
MAX_FIELDS = 100
"""Bounds of a file, and of the fields of a mask."""
SECRET_BYTES = 32
_KEYS = ("topic", "fields", "method", "unmasked")
_TOPIC = re.compile(r"[A-Za-z0-9._*-]{1,249}")
_PRINCIPAL = re.compile(r"User:.+")


class TopicMask(NamedTuple):
    """One `[[masks]]` of the file; `topic` may contain `*`, `unmasked` has principals such as `User:ada`."""

    topic: str
    rules: tuple[MaskRule, ...]
    unmasked: frozenset[str] = frozenset()


class Masking(NamedTuple):
    """The mask of a topic for a user, None without one; and the paths that the user sees by permission."""

    mask: RecordMask | None
    unmasked: tuple[str, ...] = ()


class MaskPolicy:
    """All masks. A topic has the rules of every mask that matches its name."""

    def __init__(self, masks: Sequence[TopicMask] = (), secret: bytes = b"") -> None:
        """`secret` is the key of hashes: hashes of another console differ."""
        self._masks = tuple(masks)
        self._secret = secret

    def masking(self, topic: str, principal: str) -> Masking:
        """The mask of `topic` for `principal`."""
        found = [each for each in self._masks if fnmatchcase(topic, each.topic)]
        rules = [rule for each in found if principal not in each.unmasked for rule in each.rules]
        unmasked = dict.fromkeys(str(rule.path) for each in found if principal in each.unmasked for rule in each.rules)
        return Masking(RecordMask(topic, rules, self._secret) if rules else None, tuple(unmasked))


def read_masks(path: str, secret: bytes, option: str = "--masks") -> MaskPolicy:
    """The policy of a file, which `option` names. Raises OperatorError."""
    try:
        data = read_file(path, MAX_FILE_BYTES)
    except OSError as error:
        raise OperatorError(
            f"the mask file {path} can't be read: {error.strerror}; name another one with {option}"
        ) from error
    try:
        document = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise OperatorError(f"the mask file {path} is not valid TOML: {' '.join(str(error).split())}") from error
    try:
        return MaskPolicy(_masks(document), secret)
    except OperatorError as error:
        raise OperatorError(f"the mask file {path}: {error}") from error


def _masks(document: Mapping[str, Any]) -> list[TopicMask]:
    _refuse_unknown(document, ("masks",), "the file")
    found = document.get("masks")
    if not isinstance(found, list) or not found or not all(isinstance(each, dict) for each in found):
        raise OperatorError("it needs at least one section [[masks]]")
    if len(found) > MAX_MASKS:
        raise OperatorError(f"it has more than {MAX_MASKS:,} sections [[masks]]")
    return [_mask(each, f"[[masks]] number {number}") for number, each in enumerate(found, 1)]


def _mask(section: Mapping[str, Any], place: str) -> TopicMask:
    _refuse_unknown(section, _KEYS, place)
    topic = section.get("topic")
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
        _refuse(place, 'topic must be a topic name, in which * stands for any characters: "payments-*"')
    fields = _texts(section, "fields", place, 'paths such as ["value.card.number"]')
    method = section.get("method")
    if not fields or len(fields) > MAX_FIELDS:
        _refuse(place, f'fields must have 1 to {MAX_FIELDS} paths, such as "value.card.number"')
    try:
        rules = tuple(parse_rule(each, method if isinstance(method, str) else "") for each in fields)
    except OperatorError as error:
        raise OperatorError(f"{place}: {error}") from error
    unmasked = _texts(section, "unmasked", place, 'users such as ["User:ada"]')
    for each in unmasked:
        if not _PRINCIPAL.fullmatch(each):
            _refuse(place, f"unmasked has {each!r}, which is not a user: write it as 'User:ada'")
    return TopicMask(topic, rules, frozenset(unmasked))


def _texts(section: Mapping[str, Any], key: str, place: str, example: str) -> list[str]:
    found = section.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        _refuse(place, f"{key} must be a list of {example}")
    return found


def _refuse_unknown(section: Mapping[str, Any], known: Sequence[str], place: str) -> None:
    for key in section:
        if key not in known:
            _refuse(place, f"{key!r} is unknown{did_you_mean(key, known) or '; use ' + ', '.join(known)}")


def _refuse(place: str, problem: str) -> NoReturn:
    raise OperatorError(f"{place}: {problem}")
