"""`ottla cluster voters replace` and `ottla cluster quorum`: rules over a described quorum."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from ottla.app.main import cli
from ottla.cli.voters import voter_replacement
from ottla.client.wire.model import GONE_MS, QuorumInfo, QuorumReplicaInfo
from ottla.common.errors import OperatorError

NOW_MS = 1_000_000
GONE = NOW_MS - GONE_MS - 1


def replica(
    node_id: int, directory: bytes = b"a" * 16, *, fetched_ms: int = NOW_MS, end: int = 500
) -> QuorumReplicaInfo:
    return QuorumReplicaInfo(node_id, directory, end, fetched_ms, fetched_ms)


def quorum(*voters: QuorumReplicaInfo, observers: tuple[QuorumReplicaInfo, ...] = ()) -> QuorumInfo:
    return QuorumInfo(1, 3, 500, voters, observers)


NEW = replica(3, b"b" * 16)
LOST = replica(3, fetched_ms=GONE)


def test_voter_with_a_new_directory_is_replaced() -> None:
    info = quorum(replica(1), replica(2), LOST, observers=(replica(4), NEW))
    assert voter_replacement(info, 3) == ((LOST,), NEW)


def test_interrupted_replacement_only_adds_the_voter() -> None:
    assert voter_replacement(quorum(replica(1), replica(2), observers=(NEW,)), 3) == ((), NEW)


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (quorum(replica(1), replica(2), replica(3), observers=(NEW,)), "voter 3 is running"),
        (quorum(replica(1), replica(2), LOST), "does not run as an observer"),
        (quorum(replica(1), replica(2), LOST, observers=(replica(3, b"b" * 16, fetched_ms=GONE),)), "does not run"),
        (quorum(replica(1), replica(2), LOST, observers=(replica(3, b"b" * 16, end=5),)), "still copies"),
        (quorum(replica(1), replica(2, fetched_ms=GONE), LOST, observers=(NEW,)), "only 1 of 2 voters"),
    ],
)
def test_replacement_that_is_not_safe_is_refused(info: QuorumInfo, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        voter_replacement(info, 3)


def test_quorum_marks_voters_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    info = quorum(replica(1), replica(2), LOST)
    client = SimpleNamespace(quorum=SimpleNamespace(describe=lambda: info))
    monkeypatch.setattr("ottla.cli.cluster.open_cluster", lambda servers: nullcontext(client))
    lines = CliRunner().invoke(cli, ["cluster", "quorum"]).stdout.splitlines()
    assert [line.split()[1:3] for line in lines[2:5]] == [["leader", "live"], ["voter", "live"], ["voter", "gone"]]
    assert "ottla cluster voters replace 3" in lines[5]
