"""Conditions of a measurement: machine, versions, commit, and CPU assignment."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka

from harness.page_cache import memory_bytes
from harness.peers import BROKER_CPUS, JARS, LOAD_CPUS, ROOT


def output(*command: str) -> str:
    """Returns the output of a command, from either stream; empty if it is not installed."""
    if not shutil.which(command[0]):
        return ""
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return (result.stdout or result.stderr).strip()


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def kafka_version() -> str:
    """Returns the version in the name of Apache Kafka's client jar."""
    return next((jar.stem.removeprefix("kafka-clients-") for jar in JARS[0].glob("kafka-clients-*.jar")), "")


def conditions() -> dict[str, Any]:
    """Returns the conditions, collected once per session; every run stores a copy."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_gib": round(memory_bytes("MemTotal") / (1 << 30), 1),
        "kernel": platform.release(),
        "file_system": output("stat", "--file-system", "--format=%T", tempfile.gettempdir()),
        "broker_cpus": sorted(BROKER_CPUS),
        "load_cpus": sorted(LOAD_CPUS),
        "commit": output("git", "rev-parse", "--short", "HEAD"),
        "changed_since": bool(output("git", "status", "--porcelain", "--untracked-files=no", "--", "src")),
        "ottla": output(sys.executable, "-m", "ottla", "--version"),
        "kafka": kafka_version(),
        "nats": output("nats-server", "--version"),
        "java": output("java", "-version").partition("\n")[0],
        "librdkafka": confluent_kafka.libversion()[0],
        "nats_py": importlib.metadata.version("nats-py"),
    }
