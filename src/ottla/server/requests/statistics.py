"""The broker's statistics under Kafka's metric names; hot paths only add to `Counter.value`.

Series of all topics together have the label `topic=""`, which equals no label for Prometheus, as in Apache Kafka's
exporters. A topic's series are removed with the topic.
"""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.metrics.registry import Counter, Histogram, MetricsRegistry

TOPIC_METRICS = (
    ("messages_in", "messagesin", "Records appended by producers."),
    ("bytes_in", "bytesin", "Bytes of record batches appended by producers."),
    ("bytes_out", "bytesout", "Bytes of record batches sent to consumers."),
    ("bytes_rejected", "bytesrejected", "Bytes of record batches refused for their size."),
    ("produces", "totalproducerequests", "Produce requests, counted per partition."),
    ("failed_produces", "failedproducerequests", "Produce requests that failed, counted per partition."),
    ("fetches", "totalfetchrequests", "Fetch requests, counted per partition."),
    ("failed_fetches", "failedfetchrequests", "Fetch requests that failed, counted per partition."),
)
"""(attribute of TopicStatistics, Kafka's name of the metric, help)."""


class TopicStatistics:
    """Traffic of one topic, or of all of them."""

    __slots__ = tuple(attribute for attribute, _, _ in TOPIC_METRICS)

    messages_in: Counter
    bytes_in: Counter
    bytes_out: Counter
    bytes_rejected: Counter
    produces: Counter
    failed_produces: Counter
    fetches: Counter
    failed_fetches: Counter

    def __init__(self, registry: MetricsRegistry, topic: str) -> None:
        for attribute, name, text in TOPIC_METRICS:
            setattr(self, attribute, registry.counter(_topic_metric(name), text, {"topic": topic}))


CONVERTED_APIS = ("Produce", "Fetch")
"""APIs whose old versions convert records between message formats."""


class ConversionStatistics:
    """Records that one API converted between message formats, and the time of each request for that."""

    __slots__ = ("_all_topics", "_family", "_registry", "time_ms")

    def __init__(self, registry: MetricsRegistry, api_name: str) -> None:
        self._registry = registry
        self._family = f"kafka_server_brokertopicmetrics_{api_name.lower()}messageconversions_total"
        self._all_topics = self._counter("")
        self.time_ms = Histogram()

    def _counter(self, topic: str) -> Counter:
        text = "Records converted from or to an old message format."
        return self._registry.counter(self._family, text, {"topic": topic})

    def count(self, topic: str | None, records: int) -> None:
        """Count converted records of an existing topic; None for one that was deleted meanwhile."""
        self._all_topics.value += records
        if topic is not None and records:
            self._counter(topic).value += records

    def forget_topic(self, topic: str) -> None:
        """The topic is deleted."""
        self._registry.remove(self._family, {"topic": topic})


class ParkedTimes:
    """Times of the parked requests of one API, in ms."""

    __slots__ = ("local", "total")

    def __init__(self) -> None:
        self.local = Histogram()
        """From the start of the request until it is parked."""
        self.total = Histogram()
        """From the start of the request to its response."""


class ApiStatistics:
    """Requests of one API: count, errors, and duration including the parked time."""

    __slots__ = ("_registry", "errors", "latency_ms", "name", "parked", "requests")

    def __init__(self, registry: MetricsRegistry, name: str) -> None:
        self.name = name
        self._registry = registry
        labels = {"request": name}
        self.requests = registry.counter("kafka_network_requestmetrics_requests_total", "Requests received.", labels)
        self.latency_ms = registry.histogram(
            "ottla_request_time_ms", "Time to the response, parked time included, in ms.", labels
        )
        self.parked: ParkedTimes | None = None
        """None unless the phases of requests are measured."""
        self.errors: dict[int, Counter] = {}

    def failed(self, error_code: int) -> None:
        """Count one error code in a response."""
        counter = self.errors.get(error_code)
        if counter is None:
            counter = self.errors[error_code] = self._registry.counter(
                "kafka_network_requestmetrics_errors_total",
                "Error codes in responses.",
                {"request": self.name, "error": ErrorCode(error_code).name},
            )
        counter.value += 1


LONG_REQUEST_MS = 10.0
"""Time on the event loop from which on a request is noted as long."""


class LongestRequest:
    """The longest request since the last `take`, by its time on the event loop."""

    __slots__ = ("_api", "_duration_ms")

    def __init__(self) -> None:
        self._api = ""
        self._duration_ms = 0.0

    def note(self, api: str, duration_ms: float) -> None:
        """Note a long request."""
        if duration_ms > self._duration_ms:
            self._api = api
            self._duration_ms = duration_ms

    def take(self) -> tuple[str, float] | None:
        """Return API and duration in ms, None without a long request, and forget it."""
        if not self._duration_ms:
            return None
        taken = self._api, self._duration_ms
        self._api, self._duration_ms = "", 0.0
        return taken


class BrokerStatistics:
    """All statistics of one broker."""

    __slots__ = ("_conversions", "_registry", "_topics", "all_topics", "apis", "longest_request", "protocol_errors")

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self.all_topics = TopicStatistics(registry, "")
        self._topics: dict[str, TopicStatistics] = {}
        self._conversions: dict[str, ConversionStatistics] = {}
        self.apis: dict[int, ApiStatistics] = {}
        self.longest_request = LongestRequest()
        self.protocol_errors = registry.counter(
            "ottla_server_protocol_errors_total", "Requests without a possible response, which closed their connection."
        )

    def add_api(self, api_key: int, name: str) -> ApiStatistics:
        """Count an API; listeners that serve the same one share its counters."""
        found = self.apis.get(api_key)
        if found is None:
            found = self.apis[api_key] = ApiStatistics(self._registry, name)
        return found

    def measure_phases(self) -> None:
        """Measure the local and the parked time of requests from now on, for scrapes, and export conversions."""
        for api in self.apis.values():
            api.parked = ParkedTimes()
        for name in CONVERTED_APIS:
            self.conversions(name)

    def conversions(self, api_name: str) -> ConversionStatistics:
        """The counters of one of `CONVERTED_APIS`, created on first use: few clients need conversions."""
        found = self._conversions.get(api_name)
        if found is None:
            found = self._conversions[api_name] = ConversionStatistics(self._registry, api_name)
        return found

    def conversion_times(self, api_name: str) -> Histogram | None:
        """Times of the requests of one API that converted records; None before the first, and for other APIs."""
        found = self._conversions.get(api_name)
        return None if found is None else found.time_ms

    def topic(self, name: str) -> TopicStatistics:
        """The counters of an existing topic; created on first use, removed with the topic."""
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = TopicStatistics(self._registry, name)
        return found

    def forget_topic(self, name: str) -> None:
        """The topic is deleted."""
        if self._topics.pop(name, None) is not None:
            for _, metric, _ in TOPIC_METRICS:
                self._registry.remove(_topic_metric(metric), {"topic": name})
        for conversions in self._conversions.values():
            conversions.forget_topic(name)


def _topic_metric(name: str) -> str:
    return f"kafka_server_brokertopicmetrics_{name}_total"
