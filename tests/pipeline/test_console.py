"""Pages of the console for tables of the pipeline: figures, permissions, damaged tables and hostile names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("pyarrow", reason="needs the extra `pipeline`")
pytest.importorskip("deltalake", reason="needs the extra `pipeline`")
pytest.importorskip("htpy", reason="needs the extra `console`")

from ottla.client.admin.cluster import Cluster
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.console.producing import produce_record
from ottla.pipeline.load.driver import rows_schema
from ottla.pipeline.load.land import LandSettings, land_task
from ottla.pipeline.model.plan import PlanSettings, make_plan
from ottla.pipeline.sinks.open_table import open_table
from ottla.pipeline.sinks.table import Table, files_from_json
from ottla.pipeline.sinks.writer import new_load_id
from ottla.record.builder import RecordData
from ottla.testing import Broker

from ..console.browsing import Browser
from ..console.test_parts import ATTACKS
from ..web.conftest import CONFIGS, SignIn, WallClock, consoles, security_of
from ..web.forms import Page, require_inert
from .sinks.loads import add_letters, commit, make_cluster
from .sinks.loads import load as load_foreign

OPEN, SECRET = "open", "secret"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(configs=CONFIGS) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def admin(servers: str) -> Iterator[Cluster]:
    """A cluster with two topics; `guest` may describe the topic `open`, and `reader` the cluster."""
    with Cluster(servers, security=security_of("admin")) as cluster:
        cluster.acls.create(
            [
                allow(ResourceType.TOPIC, OPEN, "guest", AclOperation.DESCRIBE),
                allow(ResourceType.TOPIC, OPEN, "reader", AclOperation.READ),
                allow(ResourceType.CLUSTER, "kafka-cluster", "reader", AclOperation.DESCRIBE),
            ]
        )
        for topic in (OPEN, SECRET):
            cluster.topics.create(topic, 1, 1)
            for number in range(5):
                produce_record(cluster, topic, 0, RecordData(1_000 + number, None, b"v"))
        yield cluster


def allow(kind: ResourceType, name: str, user: str, operation: AclOperation) -> Acl:
    return Acl(kind, name, PatternType.LITERAL, f"User:{user}", "*", operation, Permission.ALLOW)


def load(cluster: Cluster, table: Table, topic: str) -> None:
    """Load a topic of a real cluster, without Spark."""
    plan, load_id = make_plan(cluster, table, [topic], PlanSettings()), new_load_id()
    settings = LandSettings(
        lambda **_: nullcontext(cluster), table.ensure(rows_schema(table, None)), table.dead_letters().layout(), load_id
    )
    rows = [land_task(number, task, settings) for number, task in enumerate(plan.tasks)]
    commit(table, plan, [file for row in rows for file in files_from_json(row.files)], load_id)


@pytest.fixture(scope="module")
def lake(admin: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of both topics, one of another cluster, a damaged one, and tables with attacks as names and reasons."""
    folder = tmp_path_factory.mktemp("lake")
    for name, topic in (("clicks", OPEN), ("deep/hidden", SECRET)):
        table = open_table(folder / name)
        load(admin, table, topic)
        add_letters(table, topic, [f"{topic} quotes a record"])
    produce_record(admin, OPEN, 0, RecordData(2_000, None, b"later"))
    load_foreign(make_cluster(), open_table(folder / "foreign", format="parquet"))
    damaged = open_table(folder / "damaged", format="parquet")
    load(admin, damaged, OPEN)
    for file in (folder / "damaged" / "_ottla_log").iterdir():
        file.write_bytes(b"<script>alert(1)</script>")
    for attack in ATTACKS:
        table = open_table(folder / "attacks" / attack, format="parquet")
        load(admin, table, OPEN)
        add_letters(table, OPEN, [attack])
    (folder / "bad\udcff" / "_delta_log").mkdir(parents=True)
    return folder


@pytest.fixture(scope="module")
def sign_in(servers: str, lake: Path) -> Iterator[SignIn]:
    with consoles(servers, WallClock(), chosen={"tables": str(lake)}) as start:
        yield start


@pytest.fixture(scope="module")
def browser(sign_in: SignIn) -> Browser:
    return sign_in("admin")


def page(browser: Browser, name: str) -> str:
    answer = browser.get("/pipeline?" + urlencode({"name": name}))
    assert answer.status == 200, Page(answer.text).content
    return Page(answer.text).content


def figures(browser: Browser, *names: str) -> dict[str, Any]:
    answer = browser.get("/pipeline-states?" + urlencode([("name", name) for name in names]))
    found: dict[str, Any] = json.loads(answer.text)
    return found


def listed(browser: Browser) -> set[str]:
    """The names in the list."""
    elements = Page(browser.get("/pipelines").text).elements
    return {str(found["data-size-of"]) for _, found in elements if "data-size-of" in found}


def test_list_has_figures_of_the_visible_rows(browser: Browser) -> None:
    assert listed(browser) >= {"clicks", "deep/hidden", "foreign", "damaged"}
    found = figures(browser, "clicks", "foreign")
    assert found["clicks"].pop("loaded").endswith("ago")
    assert found["clicks"] == {
        "lag": "1",
        "last": "5",
        "rows": "5",
        "files": "1",
        "letters": "1",
        "state": "readable",
    }
    assert (found["foreign"]["lag"], found["foreign"]["state"]) == ("-", "of another cluster")


def test_page_of_a_table_has_lag_loads_and_reasons(browser: Browser) -> None:
    shown = page(browser, "clicks")
    for text in ("Lag behind the topics", "Last loads", "Latest dead letters", "open quotes a record", "delta"):
        assert text in shown, text


def test_damaged_table_has_its_reason_and_hides_no_other(browser: Browser) -> None:
    found = figures(browser, "damaged", "clicks")
    assert "can't be read" in found["damaged"]["state"]
    assert found["clicks"]["state"] == "readable"
    assert "can't be read" in page(browser, "damaged")
    bad = next(name for name in listed(browser) if name.startswith("bad"))
    assert "not valid UTF-8" in page(browser, bad)


def test_user_sees_tables_of_topics_that_the_user_may_describe(sign_in: SignIn) -> None:
    guest, reader = sign_in("guest"), sign_in("reader")
    seen = listed(guest)
    assert "clicks" in seen
    assert not seen & {"deep/hidden", "foreign", "damaged"}
    assert figures(guest, "deep/hidden", "foreign", "damaged") == {}
    for name in ("deep/hidden", "foreign", "damaged"):
        assert guest.get("/pipeline?" + urlencode({"name": name})).status == 404, name
    assert listed(reader) >= {"clicks", "deep/hidden", "foreign", "damaged"}, "DESCRIBE on the cluster shows all"


def test_reasons_of_dead_letters_need_read_on_the_topic(sign_in: SignIn) -> None:
    guest, reader = sign_in("guest"), sign_in("reader")
    assert "quotes a record" not in page(guest, "clicks")
    assert "Dead letters1" in page(guest, "clicks")
    assert "open quotes a record" in page(reader, "clicks")
    assert "quotes a record" not in page(reader, "deep/hidden")


@pytest.mark.parametrize("name", ["", "../clicks", "/etc", "clicks/../damaged", "clicks/_dead_letters", "deep", "."])
def test_browser_names_a_table_and_no_path(browser: Browser, name: str) -> None:
    assert browser.get("/pipeline?" + urlencode({"name": name})).status in (400, 404)
    assert figures(browser, name) == {}


def test_attacks_stay_text_on_pages_of_tables(browser: Browser) -> None:
    names = {name for name in listed(browser) if name.startswith("attacks/")}
    assert len(names) >= len(ATTACKS) - 1
    for target in ("/pipelines", *("/pipeline?" + urlencode({"name": name}) for name in names)):
        require_inert(target, browser.get(target).text)
    for attack in ATTACKS[:6]:
        assert attack in page(browser, f"attacks/{attack}"), attack
    answer = browser.get("/pipeline-states?" + urlencode({"name": "damaged"}))
    assert answer.header("content-type") == "application/json"


def test_list_of_a_thousand_tables_opens_none(servers: str, admin: Cluster, tmp_path: Path) -> None:
    """Each of them would be reported as unreadable."""
    for number in range(1_000):
        (tmp_path / f"table-{number:04}" / "_ottla_log").mkdir(parents=True)
    with consoles(servers, WallClock(), chosen={"tables": str(tmp_path)}) as start:
        browser = start("admin")
        answer = browser.get("/pipelines?page=20")
        assert "Page 20 of 20" in Page(answer.text).content
        assert answer.text.count("table-") >= 50
        assert "can't be read" not in answer.text
        assert browser.get("/pipeline-states?" + "&".join(f"name=table-{n:04}" for n in range(51))).status == 400


def test_directory_without_tables_is_reported(servers: str, admin: Cluster, tmp_path: Path) -> None:
    with consoles(servers, WallClock(), chosen={"tables": str(tmp_path)}) as start:
        assert "no table found in" in Page(start("admin").get("/pipelines").text).content
