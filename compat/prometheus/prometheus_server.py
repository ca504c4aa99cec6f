"""Debian's Prometheus as a process on loopback, with a configuration and a data directory of its own."""

from __future__ import annotations

import json
import math
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ottla.app.ports import HOST, free_ports

TIMEOUT_S = 120.0
INTERVAL_S = 1
"""Between scrapes, between evaluations of the rules, and between two steps of the load."""
POLL_S = 0.05

Job = Sequence[tuple[str, Mapping[str, str]]]
"""Address and labels of each target."""


class Prometheus:
    """Scrapes `jobs` and evaluates the rules in `rule_files`; a context manager."""

    def __init__(self, folder: Path, jobs: Mapping[str, Job], rule_files: Sequence[Path] = ()) -> None:
        (port,) = free_ports(1)
        self._url = f"http://{HOST}:{port}/api/v1"
        self._log_path = folder / "prometheus.log"
        config = {
            "global": dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), f"{INTERVAL_S}s"),
            "rule_files": [str(path) for path in rule_files],
            "scrape_configs": [
                {
                    "job_name": name,
                    "static_configs": [{"targets": [address], "labels": dict(labels)} for address, labels in job],
                }
                for name, job in jobs.items()
            ],
        }
        path = folder / "prometheus.yml"
        path.write_text(json.dumps(config))  # JSON is YAML
        self._log = self._log_path.open("wb")
        self._process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={path}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={HOST}:{port}",
                "--log.level=warn",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.target_count = sum(len(job) for job in jobs.values())

    def __enter__(self) -> Prometheus:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()

    def query(self, expression: str) -> list[float]:
        """The values of an instant query that are numbers."""
        (data,) = (self._get("query", {"query": expression})["data"],)
        results = [data["result"]] if data["resultType"] == "scalar" else [each["value"] for each in data["result"]]
        values = [float(value) for _, value in results]
        return [value for value in values if not math.isnan(value)]

    def rules(self) -> list[dict[str, Any]]:
        """All rules with their health and state."""
        return [rule for group in self._get("rules", {})["data"]["groups"] for rule in group["rules"]]

    def wait_for(self, condition: Callable[[], bool], what: str, meanwhile: Callable[[], None]) -> None:
        """Wait for a condition; `meanwhile` runs once an interval: more load would only slow the scrapes down."""
        due = time.monotonic()
        until = due + TIMEOUT_S
        while True:
            try:
                if condition():
                    return
            except OSError:  # it starts
                pass
            if time.monotonic() > until or self._process.poll() is not None:
                raise AssertionError(f"not within {TIMEOUT_S:g} s: {what}\n{self._log_path.read_text()[-4000:]}")
            if time.monotonic() >= due:
                meanwhile()
                due = time.monotonic() + INTERVAL_S
            else:
                time.sleep(POLL_S)

    def has_scraped(self, count: int) -> bool:
        """Whether each target was scraped successfully that many times."""
        counts = self.query("sum_over_time(up[5m])")
        return len(counts) == self.target_count and min(counts) >= count

    def has_evaluated_rules(self) -> bool:
        """Whether each rule was evaluated."""
        return all(rule["health"] != "unknown" for rule in self.rules())

    def _get(self, path: str, parameters: Mapping[str, str]) -> Any:
        url = f"{self._url}/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            if error.code == 503:  # it starts
                raise
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
