"""Tables of several topics: their names, the exit code of a run, the engines that the loads share."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `lake`")

from ottla.common.errors import OperatorError, OttlaError
from ottla.pipeline.load.driver import LoadSummary, Observer
from ottla.pipeline.load.engine import EngineChoice
from ottla.pipeline.load.topic_loads import MAX_LISTED, TopicLoad, TopicLoads, load_topics
from ottla.pipeline.load.topic_tables import TableAssignment, assign_tables, table_of
from ottla.pipeline.model.plan import DataLossError, DeadLettersError
from ottla.pipeline.model.rollback import LoadRefusedError
from ottla.pipeline.spark.engines import SPARK

WAIT_S = 60.0


@pytest.mark.parametrize(
    ("topic", "directory", "name"),
    [
        ("shop.orders-v2", "lake/shop.orders-v2/rows", "lake.shop_orders_v2"),
        ("_private", "lake/topic_private/rows", "lake._private"),
        (".hidden", "lake/topic.hidden/rows", "lake._hidden"),
    ],
)
def test_topic_name_is_escaped_in_table(topic: str, directory: str, name: str) -> None:
    assert table_of("lake/{topic}/rows", topic, in_catalog=False) == directory
    assert table_of("lake.{topic}", topic, in_catalog=True) == name


@pytest.mark.parametrize("topic", ["../lake", "a b", "", "a" * 250])
def test_invalid_topic_name_gets_no_table(topic: str) -> None:
    (found,) = assign_tables("lake/{topic}", [topic], in_catalog=False)
    assert "is not valid in Kafka" in str(found.refusal)


@pytest.mark.parametrize(
    ("rivals", "in_catalog"),
    [
        (("a-b", "a_b"), True),
        (("Clicks", "clicks"), True),
        (("clicks", "clicks_dead_letters"), True),
        (("_a", "topic_a"), False),
    ],
)
def test_topics_with_the_same_table_are_refused(rivals: tuple[str, str], in_catalog: bool) -> None:
    found = assign_tables("lake.{topic}", [*rivals, "other"], in_catalog=in_catalog)
    assert [one.topic for one in found if one.refusal is None] == ["other"]
    assert {str(one.refusal).partition(" would share the table ")[0] for one in found[:2]} == {
        f"topics {rivals[0]!r}, {rivals[1]!r}"
    }
    assert not any(one.refusal for one in assign_tables("lake/{topic}", ["a-b", "a_b", "A_b"], in_catalog=False))


def failed(*errors: OttlaError | None) -> OttlaError | None:
    """The error of a run with these results."""
    return TopicLoads([TopicLoad(f"t{n}", f"lake/t{n}", error=error) for n, error in enumerate(errors)], 1.0).failure()


@pytest.mark.parametrize(
    ("errors", "exit_code"),
    [
        ((OttlaError("away"), DataLossError("lost")), 1),
        ((OttlaError("away"), LoadRefusedError("other cluster")), 2),
        ((OperatorError("full"), DeadLettersError("2 of 3 records")), 3),
    ],
)
def test_exit_code_of_a_run_is_highest_of_topics(errors: Sequence[OttlaError], exit_code: int) -> None:
    failure = failed(None, *errors)
    assert failure is not None
    assert failure.exit_code == exit_code
    assert str(failure).startswith(f"2 of 3 topics were not loaded: t1: {errors[0]}; t2: {errors[1]}")
    assert failed(None, None) is None


def test_topics_with_the_same_reason_are_listed_together() -> None:
    failure = failed(*[OttlaError("no Spark answers")] * (MAX_LISTED + 2))
    assert str(failure).endswith("t8, t9 and 2 more, see --json: no Spark answers")


def test_loads_share_one_spark_session() -> None:
    """It starts in the main thread, which receives signals; the loads run at the same time."""
    events: list[object] = []
    both = threading.Barrier(2)

    @contextmanager
    def open_spark() -> Iterator[str]:
        events.append(threading.current_thread())
        yield "session"
        events.append("end")

    def load_one(one: TableAssignment, choice: EngineChoice, observer: Observer) -> LoadSummary:
        with choice.choose(1, 1).open_session() as session:
            assert session == "session"
            both.wait(WAIT_S)
        return LoadSummary(table=one.table, topics=[one.topic], pipeline_id="default")

    choice = EngineChoice(requested=SPARK, open_spark=open_spark, require_spark=bool)
    found = load_topics([TableAssignment(name, name) for name in "dbca"], load_one, choice, parallel=2)
    assert [load.topic for load in found.loads] == ["a", "b", "c", "d"]
    assert found.exit_code == 0
    assert events == [threading.main_thread(), "end"]


def test_failed_start_of_spark_fails_each_topic() -> None:
    def open_spark() -> None:
        raise OperatorError("Spark needs Java 17 or newer")

    def load_one(one: TableAssignment, choice: EngineChoice, observer: Observer) -> LoadSummary:
        with choice.choose(1, 1).open_session():
            raise AssertionError

    choice = EngineChoice(requested=SPARK, open_spark=open_spark, require_spark=bool)  # type: ignore[arg-type]
    found = load_topics([TableAssignment("a", "a"), TableAssignment("b", "b")], load_one, choice, parallel=1)
    assert [str(load.error) for load in found.loads] == ["Spark needs Java 17 or newer"] * 2


def test_unexpected_exception_ends_the_run() -> None:
    begun: list[str] = []

    def load_one(one: TableAssignment, choice: EngineChoice, observer: Observer) -> LoadSummary:
        begun.append(one.topic)
        raise ZeroDivisionError

    choice = EngineChoice(open_spark=lambda: pytest.fail("not needed"), require_spark=bool)
    with pytest.raises(ZeroDivisionError):
        load_topics([TableAssignment(name, name) for name in "ab"], load_one, choice, parallel=1)
    assert begun == ["a"]
