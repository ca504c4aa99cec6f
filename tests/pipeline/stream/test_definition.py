"""Definitions of streams: accepted keys, and the error for each invalid one."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.common.errors import OperatorError
from ottla.pipeline.stream.definition import parse_definition, read_definition

WHOLE = """
name = "news-feed"
trigger = "1 minute"

[sources.views]
topics = ["views", "more"]
decode = "json"
schema = "views.json"
event_time = "at"
watermark = "10 minutes"
deduplicate = ["id"]
from = "latest"
max_records = 5000
on_data_loss = "skip"

[sources.lines]
topic_pattern = "log-.*"
decode = "regex"
pattern = "(?P<word>.*)"

[query]
sql = "select 1;"
output = "update"

[result]
table = "lake/views"
format = "iceberg"
partition_by = ["page", "date"]
keys = ["page"]
"""
PLAIN = """
name = "n"
[sources.views]
topic = "views"
[query]
sql = "select * from views"
[result]
topic = "out"
"""


def test_a_whole_definition() -> None:
    found = parse_definition(WHOLE, Path("/d"))
    views, lines = found.sources["views"], found.sources["lines"]
    assert (found.name, found.trigger) == ("news-feed", "1 minute")
    assert (views.topics, views.decode.decode, views.decode.schema) == (
        ("views", "more"),
        "json",
        Path("/d/views.json"),
    )
    assert (views.event_time, views.watermark, views.deduplicate) == ("at", "10 minutes", ("id",))
    assert (views.start, views.max_records, views.on_data_loss) == ("latest", 5000, "skip")
    assert (lines.topics, lines.topic_pattern, lines.decode.pattern) == ((), "log-.*", "(?P<word>.*)")
    assert (found.query.sql, found.query.output) == ("select 1", "update")
    assert (found.result.table, found.result.format, found.result.keys) == ("lake/views", "iceberg", ("page",))
    assert found.result.partition_by == ("page", "date")


def test_a_python_function() -> None:
    found = parse_definition(PLAIN.replace('sql = "select * from views"', 'python = "a/b.py:run"'), Path("/d"))
    assert (found.query.file, found.query.function, found.query.sql) == (Path("/d/a/b.py"), "run", "")


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ('name = "n"', "", "name is missing"),
        ('name = "n"', 'name = "../n"', "name: must be 1 to 100 letters"),
        ('name = "n"', "name = 7", "name: must be a text in quotes, not 7"),
        ('name = "n"', 'name = "n"\ntriger = "1 second"', "no key 'triger'; did you mean trigger?"),
        ('name = "n"', 'name = "n"\ntrigger = "soon"', "trigger: is a time such as"),
        ("[sources.views]", "[source.views]", "no key 'source'; did you mean sources?"),
        ("[sources.views]", '[sources."a b"]', "use letters, digits and '_' in a view's name"),
        ("[sources.views]", "[sources.result]", "choose another"),
        ('sql = "', 'sql = "' + "(" * 501, "[query] sql has more than 500 parentheses open"),
        ('topic = "views"', "", "needs exactly one of topic, topics and topic_pattern"),
        ('topic = "views"', 'topic = "views"\ntopics = ["a"]', "exactly one of topic, topics and topic_pattern"),
        ('topic = "views"', "topics = []", "topics: is empty"),
        ('topic = "views"', 'topics = "views"', "topics: must be a list of texts"),
        ('topic = "views"', 'topic = "a,b"', "'a,b' is not a topic name"),
        ('topic = "views"', 'topic = "out"', "the stream would feed itself"),
        ('topic = "views"', 'topic = "views"\nwatermrk = "1 minute"', "no key 'watermrk'; did you mean watermark?"),
        ('topic = "views"', 'topic = "views"\ndecode = "jsn"', "decode: is one of raw, json"),
        ('topic = "views"', 'topic = "views"\ndeduplicate = ["id"]', "deduplicate: needs a watermark"),
        ('topic = "views"', 'topic = "views"\nwatermark = "-1 minute"', "watermark: is a time such as"),
        ('topic = "views"', 'topic = "views"\nmax_records = 0', "max_records: must be a number from 1 on"),
        ('topic = "views"', 'topic = "views"\nmax_records = true', "max_records: must be a number from 1 on"),
        ('sql = "select * from views"', "", "query is missing"),
        ('sql = "select * from views"', 'sql = " "', "sql: is empty"),
        ('sql = "select * from views"', 'python = "run.py"', 'is of the form "file.py:function"'),
        ('sql = "select * from views"', 'sql = "x"\npython = "a.py:f"', "exactly one of sql and python"),
        ('sql = "select * from views"', 'sql = "x"\noutput = "all"', "output: is one of append, update, complete"),
        ('sql = "select * from views"', 'sql = "x"\noutput = "complete"', "a topic can't drop the previous one"),
        ('topic = "out"', "", "result is missing"),
        ('topic = "out"', 'topic = "out"\ntable = "t"', "exactly one of table and topic"),
        ('topic = "out"', 'table = "t"\nkey = "page"', "key: has no effect with a table"),
        ('topic = "out"', 'topic = "out"\nformat = "delta"', "format: has no effect with a topic"),
        ('topic = "out"', 'topic = "out"\npartition_by = ["page"]', "partition_by: has no effect with a topic"),
        ('topic = "out"', 'table = "t"\npartition_by = "page"', "partition_by: must be a list of texts"),
        ('topic = "out"', 'table = "t"\nformat = "csv"', "format: is one of delta, iceberg, parquet"),
        ('topic = "out"', 'table = "t"\nkeys = ["page"]', 'applies to output = "update" only'),
        ('topic = "out"', 'table = "a.t"\ncatalog = "http://c"\nformat = "delta"', "a catalog contains Iceberg tables"),
    ],
)
def test_invalid_definitions_are_refused(before: str, after: str, sentence: str) -> None:
    assert before in PLAIN
    with pytest.raises(OperatorError) as refused:
        parse_definition(PLAIN.replace(before, after), Path())
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_update_into_a_table_needs_keys() -> None:
    text = PLAIN.replace('sql = "select * from views"', 'sql = "x"\noutput = "update"').replace(
        'topic = "out"', 'table = "t"'
    )
    with pytest.raises(OperatorError, match="keys is missing"):
        parse_definition(text, Path())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"name = ", "is not valid TOML"),
        (b"\xff", "is not valid TOML"),
        (b"a" * (2 << 20), "can't be read: it is larger than 1048576"),
    ],
    ids=["not valid TOML", "no UTF-8", "large"],
)
def test_invalid_definition_files_are_refused(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "s.toml"
    path.write_bytes(data)
    with pytest.raises(OperatorError, match=f"the definition {path} {words}"):
        read_definition(path)
    with pytest.raises(OperatorError, match="can't be read: No such file"):
        read_definition(tmp_path / "none.toml")


def test_edited_schema_file_is_refused(tmp_path: Path) -> None:
    """It was ignored: the stream continued with the fields of its start."""
    pytest.importorskip("pyspark", reason="needs the extra `pipeline`")
    from ottla.pipeline.stream.views import open_formats, require_same_fields
    from ottla.pipeline.transform.target_schema import given_fields

    schema = tmp_path / "views.json"
    text = '{"type":"struct","fields":[{"name":"at","type":"%s","nullable":true,"metadata":{}}]}'
    schema.write_text(text % "timestamp")
    definition = parse_definition(
        PLAIN.replace("topic = ", 'decode = "json"\nschema = "views.json"\ntopic = ', 1), tmp_path
    )
    fields = {view: given_fields(value_format) for view, value_format in open_formats(definition).items()}
    require_same_fields(definition, open_formats(definition), fields)
    schema.write_text(text % "string")
    with pytest.raises(OperatorError, match=r"views.json has other fields than the stream 'n' was started with"):
        require_same_fields(definition, open_formats(definition), fields)
