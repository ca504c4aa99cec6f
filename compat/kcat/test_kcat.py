"""kcat on Debian's librdkafka: produce with every codec, consume from the start, an offset and a timestamp."""

from __future__ import annotations

import json
import shutil
import subprocess
import time

import pytest

from ottla.testing import Broker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed on this machine")


def kcat(broker: Broker, *arguments: str, stdin: str = "") -> str:
    """Returns kcat's output. One that reads to the end waits half a second for it per fetch, unless configured
    otherwise.
    """
    settings = ("-X", "fetch.wait.max.ms=50") if "-C" in arguments else ()
    result = subprocess.run(
        ["kcat", "-b", broker.bootstrap_servers, *settings, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_round_trip(broker: Broker, codec: str) -> None:
    topic = f"kcat-{codec}"
    lines = [f"key{number}:{'value ' * 50}{number}" for number in range(200)]
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "trace=abc", stdin="\n".join(lines) + "\n")
    consume = ["-C", "-t", topic, "-p", "0", "-e", "-q"]
    assert kcat(broker, *consume, "-K:", "-o", "beginning").splitlines() == lines
    assert kcat(broker, *consume, "-K:", "-o", "150").splitlines() == lines[150:]
    assert kcat(broker, *consume, "-f", "%h\\n", "-c", "1", "-o", "beginning").strip() == "trace=abc"
    if codec != "none":
        used = {json.loads(line)["offset"] for line in kcat(broker, *consume, "-J", "-o", "beginning").splitlines()}
        assert used == set(range(200))


def test_null_value_and_idempotence(broker: Broker) -> None:
    topic = "kcat-null"
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K:", "-Z", "-X", "enable.idempotence=true", stdin="k1:\nk2:v\n")
    rows = [
        json.loads(line) for line in kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", "-J", "-Z").splitlines()
    ]
    assert [(row["key"], row["payload"]) for row in rows] == [("k1", None), ("k2", "v")]


def test_offset_for_a_timestamp(broker: Broker) -> None:
    topic = "kcat-time"
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin="before\n")
    [before] = [json.loads(line) for line in kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", "-J").splitlines()]
    while int(time.time() * 1000) <= before["ts"]:
        pass
    boundary = before["ts"] + 1
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin="after\n")
    assert kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", "-o", f"s@{boundary}").splitlines() == ["after"]
    assert kcat(broker, "-Q", "-t", f"{topic}:0:{boundary}").split()[-1] == "1"


def test_metadata(broker: Broker) -> None:
    listing = json.loads(kcat(broker, "-L", "-J"))
    assert listing["brokers"][0]["name"] == broker.bootstrap_servers
    assert listing["controllerid"] == listing["brokers"][0]["id"]
