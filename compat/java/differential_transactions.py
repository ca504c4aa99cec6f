"""Differential cases of transactions: valid and invalid ids, epochs and states, in every version.

The state after EndTxn is compared once both brokers have completed it: the duration of CONCURRENT_TRANSACTIONS before
that is unspecified.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from differential_data import fetch_body, produce_body
from differential_pair import Each, Pair, TopicId, wait_for
from differential_records import batch

TRANSACTIONAL = 0x10
TIMEOUT_MS = 60_000
DECIDED = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
BUSY = ("concurrent_transactions", "coordinator_not_available", "not_coordinator", "coordinator_load_in_progress")
IMPLICIT = 12
"""From this version on Produce adds its partitions implicitly (KIP-890)."""
THREE = ((b"k", b"v"),) * 3

Topics = Sequence[tuple[str, Sequence[int]]]


class Producer:
    """A transactional id on both brokers, with the producer id and epoch that each assigned."""

    def __init__(self, pair: Pair, name: str, *, timeout_ms: int = TIMEOUT_MS, times: int = 1) -> None:
        """`times` of 2 and more raise the epoch above 0, so that older epochs exist."""
        pair.await_coordinators()
        self.pair = pair
        self.name = name
        self._timeout_ms = timeout_ms
        self._sequences: dict[tuple[str, int], int] = {}
        self.producer_id = self.epoch = Each(-1, -1)
        for _ in range(times):
            self.acquire_id()

    def acquire_id(self) -> None:
        """Send InitProducerId, with retries until each broker assigns an id."""
        body = {"transactional_id": self.name, "transaction_timeout": self._timeout_ms}
        body |= {"producer_id": -1, "producer_epoch": -1}
        answers: dict[str, Any] = {}
        for side in self.pair.sides:

            def given(side: Any = side) -> bool:
                answers[side.name] = self.pair.request_one(side, "init_producer_id", 4, body)
                return answers[side.name]["error_code"] not in BUSY

            wait_for(given, f"{side.name} gives {self.name} an id")
        self.adopt(Each(**answers))

    def adopt(self, answer: Each) -> None:
        """Use the id and the epoch of a response, where it contains them."""
        if all(side["error_code"] == "none" and "producer_id" in side for side in answer):
            self.producer_id, self.epoch = answer["producer_id"], answer["producer_epoch"]
            self._sequences.clear()

    def identity(self, *, epochs: int = 0, **other: Any) -> dict[str, Any]:
        """Returns the three identity fields with the epoch raised by `epochs`, and overrides in `other`."""
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": Each(*(epoch + epochs for epoch in self.epoch)),
        } | other

    def wrong(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Returns identities of other producers."""
        yield "another's transactional id", self.identity(transactional_id="nobody")
        yield "empty transactional id", self.identity(transactional_id="")
        yield "another's producer id", self.identity(producer_id=Each(*(number + 7_000 for number in self.producer_id)))
        yield "producer id -1", self.identity(producer_id=-1)
        yield "older epoch", self.identity(epochs=-1)
        yield "newer epoch", self.identity(epochs=1)
        yield "much newer epoch", self.identity(epochs=5)
        yield "epoch -1", self.identity(producer_epoch=-1)
        yield "last epoch", self.identity(producer_epoch=2**15 - 1)

    def add(self, case: str, topic: str, *indexes: int, version: int = 3) -> None:
        self.pair.ask(case, "add_partitions_to_txn", version, added(self.identity(), version, [(topic, indexes)]))

    def produce(
        self, case: str, topic: str, index: int = 0, *, version: int = 11, sequence: int | None = None, epochs: int = 0
    ) -> None:
        """Produce three records; only successful requests advance the sequence."""
        place = (topic, index)
        first = self._sequences.get(place, 0) if sequence is None else sequence
        identity = self.identity(epochs=epochs)
        body = transactional(topic, identity, index=index, sequence=first)
        answer = self.pair.ask(case, "produce", version, body)
        if sequence is None and not epochs and all(written(side) for side in answer):
            self._sequences[place] = first + len(THREE)

    def end(self, case: str, *, committed: bool, version: int = 4, **other: Any) -> Each:
        """Send EndTxn and wait until it is complete."""
        answer = self.pair.ask(case, "end_txn", version, self.identity(**other) | {"committed": committed})
        self.settle()
        if version >= 5 and not other:
            self.adopt(answer)
        return answer

    def settle(self) -> None:
        """Wait until no request of this producer is in flight."""
        settle(self.pair, self.name)

    def show(self, case: str) -> None:
        """Compare the coordinators' descriptions of the transaction."""
        self.pair.ask(f"{case}: state", "describe_transactions", 0, {"transactional_ids": [self.name]})


def written(answer: Any) -> bool:
    """Returns whether a Produce to one partition succeeded."""
    return bool(answer["responses"][0]["partition_responses"][0]["error_code"] == "none")


def settle(pair: Pair, *names: str) -> None:
    """Wait until none of these transactions is between its decision and its completion."""
    for side in pair.sides:

        def done(side: Any = side) -> bool:
            states = pair.request_one(side, "describe_transactions", 0, {"transactional_ids": list(names)})
            return all(state["transaction_state"] not in DECIDED for state in states["transaction_states"])

        wait_for(done, f"{side.name} finishes the transactions of {names}")


def transactional(
    topic: str,
    identity: Mapping[str, Any],
    *,
    index: int = 0,
    sequence: int = 0,
    attributes: int = TRANSACTIONAL,
    compress: bool = False,
) -> dict[str, Any]:
    """Returns a Produce body with three records in the transaction of `identity`."""
    number, epoch = identity["producer_id"], identity["producer_epoch"]
    number = number if isinstance(number, Each) else Each(number, number)
    epoch = epoch if isinstance(epoch, Each) else Each(epoch, epoch)
    records = Each(
        *(
            batch(THREE, attributes=attributes, producer=(*each, sequence), compress=compress)
            for each in zip(number, epoch, strict=True)
        )
    )
    body = produce_body(topic, b"", index=index, transactional_id=identity["transactional_id"])
    body["topic_data"][0]["partition_data"][0]["records"] = records
    return body


def added(identity: Mapping[str, Any], version: int, topics: Topics, *, verify_only: bool = False) -> dict[str, Any]:
    """Returns an AddPartitionsToTxn body for one transaction."""
    rows = [{"name": name, "partitions": list(indexes)} for name, indexes in topics]
    if version >= 4:
        return {"transactions": [{**identity, "verify_only": verify_only, "topics": rows}]}
    old = {f"v3_and_below_{name}": value for name, value in identity.items()}
    return old | {"v3_and_below_topics": rows}


def look(pair: Pair, case: str, topic: str, *indexes: int) -> None:
    """Compare the records under both isolation levels, and the active producers."""
    for index in indexes or (0,):
        for level in (0, 1):
            body = fetch_body(topic, {"partition": index}, isolation_level=level)
            pair.ask(f"{case}: fetch {index} isolation {level}", "fetch", 12, body)
            asked = [{"partition_index": index, "current_leader_epoch": -1, "timestamp": -1}]
            body = {"replica_id": -1, "isolation_level": level, "topics": [{"name": topic, "partitions": asked}]}
            pair.ask(f"{case}: end of {index} isolation {level}", "list_offsets", 7, body)
        body = {"topics": [{"name": topic, "partition_indexes": [index]}]}
        pair.ask(f"{case}: producers of {index}", "describe_producers", 0, body)


# -- producer ids ------------------------------------------------------------------------------------------------------


def transactional_ids(pair: Pair, versions: list[int]) -> None:
    """InitProducerId with a transactional id: new and known ids, valid and invalid producers (KIP-360)."""
    pair.await_coordinators()
    pair.create(*(f"ids-v{version}" for version in versions))
    for version in versions:
        name = f"ids-v{version}"

        def ask(case: str, transactional_id: str = name, version: int = version, **more: Any) -> Each:
            asked = {"transaction_timeout": TIMEOUT_MS, "producer_id": -1, "producer_epoch": -1}
            answer = pair.ask(case, "init_producer_id", version, asked | {"transactional_id": transactional_id} | more)
            settle(pair, transactional_id)
            return answer

        for timeout in (0, -1, 1, 900_000, 900_001, 2**31 - 1):
            ask(f"timeout {timeout}", f"{name}-{timeout}", transaction_timeout=timeout)
        producer = Producer(pair, name)
        producer.show("new")
        ask("again")
        producer.adopt(ask("and again"))
        producer.show("and again")
        if version >= 3:
            _known_producers(ask, producer)
        ask("another timeout", transaction_timeout=30_000)
        producer.show("another timeout")
        producer.adopt(ask("before an abort"))
        producer.add("partition", name, 0)
        producer.produce("records", name)
        pair.ask("during a transaction", "init_producer_id", version, producer.identity() | {"transaction_timeout": 1})
        producer.settle()
        producer.show("during a transaction")
        look(pair, "aborted by InitProducerId", name)
        producer.adopt(ask("after the abort"))
        producer.produce("the next", name)


def _known_producers(ask: Any, producer: Producer) -> None:
    """KIP-360: requests that include the current producer id and epoch."""
    for case, identity in producer.wrong():
        if identity["transactional_id"] == producer.name:
            ask(f"as {case}", **identity)
            producer.show(f"as {case}")
    first = producer.identity()
    producer.adopt(ask("as itself", **first))
    ask("as itself, again", **first)
    producer.show("as itself, again")
    producer.adopt(ask("as itself, once more", **producer.identity()))
    ask("as long ago", **first)
    ask("id, no epoch", producer_id=producer.producer_id)
    ask("epoch, no id", producer_epoch=producer.epoch)
    fresh = f"{producer.name}-unknown"
    ask("new with an id", fresh, producer_id=producer.producer_id, producer_epoch=producer.epoch)
    producer.adopt(ask("from -1"))


# -- partitions and groups of a transaction ----------------------------------------------------------------------------


def transactional_partitions(pair: Pair, versions: list[int]) -> None:
    """AddPartitionsToTxn of clients, and of brokers for several transactions (KIP-890)."""
    pair.create(*(f"added-v{version}" for version in versions), partitions=3)
    for version in versions:
        topic = f"added-v{version}"
        producer = Producer(pair, topic, times=3)

        def ask(case: str, identity: Mapping[str, Any], topics: Topics, version: int = version, **more: Any) -> None:
            pair.ask(case, "add_partitions_to_txn", version, added(identity, version, topics, **more))

        for case, identity in producer.wrong():
            ask(case, identity, [(topic, [0])])
        producer.show("after wrong ones")
        for case, topics in {
            "no topics": [],
            "no partitions": [(topic, [])],
            "unknown partition": [(topic, [7])],
            "negative partition": [(topic, [-1])],
            "one of two unknown": [(topic, [0, 9])],
            "unknown topic": [("nowhere", [0])],
            "one of two topics unknown": [("nowhere", [0]), (topic, [1])],
            "empty name": [("", [0])],
            "bad name": [("bad name!", [0])],
            "metadata log": [("__cluster_metadata", [0])],
            "log of groups": [("__consumer_offsets", [0])],
            "log of transactions": [(topic, [0]), ("__transaction_state", [0])],
        }.items():
            ask(case, producer.identity(), topics)
            producer.show(case)
        ask("good", producer.identity(), [(topic, [0, 1])])
        producer.show("good")
        ask("again", producer.identity(), [(topic, [1])])
        ask("one more", producer.identity(), [(topic, [1, 2])])
        ask("twice", producer.identity(), [(topic, [0, 0]), (topic, [0])])
        producer.show("added")
        for case, identity in producer.wrong():
            ask(f"while open: {case}", identity, [(topic, [0])])
        producer.show("while open")
        producer.end("commit", committed=True)
        ask("after the commit", producer.identity(), [(topic, [0])])
        producer.show("after the commit")
        producer.end("abort", committed=False)
        producer.show("after the abort")
        if version >= 4:
            _of_brokers(pair, producer, topic, version)


def _of_brokers(pair: Pair, producer: Producer, topic: str, version: int) -> None:
    """Several transactions in one request, to add or only to verify. Apache Kafka never responds to an empty one."""
    other = Producer(pair, f"{topic}-other", times=2)

    def ask(case: str, *rows: tuple[Mapping[str, Any], bool, Topics]) -> None:
        transactions = [
            added(identity, version, topics, verify_only=verify_only)["transactions"][0]
            for identity, verify_only, topics in rows
        ]
        pair.ask(case, "add_partitions_to_txn", version, {"transactions": transactions})

    ask("verify nothing open", (producer.identity(), True, [(topic, [0])]))
    ask("two", (producer.identity(), False, [(topic, [0])]), (other.identity(), False, [(topic, [1])]))
    ask("verify both", (producer.identity(), True, [(topic, [0])]), (other.identity(), True, [(topic, [1])]))
    ask("verify another's", (producer.identity(), True, [(topic, [1])]), (other.identity(), True, [(topic, [0, 1])]))
    ask(
        "one is wrong", (producer.identity(epochs=-1), False, [(topic, [2])]), (other.identity(), False, [(topic, [2])])
    )
    ask("verify and add", (producer.identity(), True, [(topic, [2])]), (other.identity(), False, [(topic, [0])]))
    ask("verify unknown partitions", (producer.identity(), True, [(topic, [9]), ("nowhere", [0])]))
    ask("verify no topics", (producer.identity(), True, []))
    for case, identity in producer.wrong():
        ask(f"verify {case}", (identity, True, [(topic, [0])]))
    producer.show("batched")
    other.show("batched")
    producer.end("commit the batched", committed=True)
    other.end("abort the batched", committed=False)
    ask("verify after the end", (producer.identity(), True, [(topic, [0])]), (other.identity(), True, [(topic, [1])]))


def transactional_groups(pair: Pair, versions: list[int]) -> None:
    """AddOffsetsToTxn."""
    for version in versions:
        producer = Producer(pair, f"groups-v{version}", times=3)

        def ask(case: str, identity: Mapping[str, Any], group: str, version: int = version) -> None:
            pair.ask(case, "add_offsets_to_txn", version, {**identity, "group_id": group})

        for case, identity in producer.wrong():
            ask(case, identity, "g")
        ask("empty group", producer.identity(), "")
        producer.show("empty group")
        ask("good", producer.identity(), "g")
        producer.show("good")
        ask("again", producer.identity(), "g")
        ask("another group", producer.identity(), "h" * 300)
        for case, identity in producer.wrong():
            ask(f"while open: {case}", identity, "g")
        producer.end("abort", committed=False)
        producer.show("aborted")


# -- completion --------------------------------------------------------------------------------------------------------


def transactional_ends(pair: Pair, versions: list[int], label: str = "ended") -> None:
    """EndTxn in each state, once and repeated, by the valid producer and by others."""
    topics = {version: f"{label}-v{version}" for version in versions}
    pair.create(*topics.values())
    for version, topic in topics.items():
        producer = Producer(pair, topic, times=4)

        def end(case: str, identity: Mapping[str, Any], *, committed: bool, version: int = version) -> Each:
            answer = pair.ask(case, "end_txn", version, {**identity, "committed": committed})
            settle(pair, str(identity["transactional_id"]))
            return answer

        def write(producer: Producer = producer, topic: str = topic, version: int = version) -> None:
            if version < 5:
                producer.add("partition", topic, 0)
            producer.produce("records", topic, version=12 if version >= 5 else 11)

        for committed in (True, False):
            word = "commit" if committed else "abort"
            for case, identity in producer.wrong():
                end(f"{word} by {case}", identity, committed=committed)
            answer = end(f"{word} of nothing", producer.identity(), committed=committed)
            producer.show(f"{word} of nothing")
            if version >= 5:
                producer.adopt(answer)
            write()
            for case, identity in producer.wrong():
                if case not in ("another's transactional id", "empty transactional id"):
                    end(f"{word} of an open one by {case}", identity, committed=committed)
            producer.show(f"open before {word}")
            before = producer.identity()
            answer = end(word, before, committed=committed)
            producer.show(word)
            look(pair, word, topic)
            end(f"{word} again", before, committed=committed)
            end(f"{word}, then the other", before, committed=not committed)
            producer.show(f"{word} again")
            if version >= 5:
                producer.adopt(answer)
                end(f"{word}, then with the new epoch", producer.identity(), committed=committed)
                producer.show(f"{word}, then with the new epoch")
                producer.acquire_id()
                end(f"{word} of a former life", before, committed=committed)
            write()
            producer.adopt(end(f"{word} of the next", producer.identity(), committed=committed))
            look(pair, f"{word} of the next", topic)


# -- offsets -----------------------------------------------------------------------------------------------------------


def transactional_offsets(pair: Pair, versions: list[int]) -> None:
    """TxnOffsetCommit of groups without members, and offset fetches during the transaction."""
    pair.create("offered", partitions=2)
    for version in versions:
        group = f"offered-v{version}"
        producer = Producer(pair, group, times=3)

        def ask(
            case: str,
            identity: Mapping[str, Any],
            *partitions: Mapping[str, Any],
            version: int = version,
            group: str = group,
            topic: str = "offered",
            **more: Any,
        ) -> None:
            rows = [
                {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": 0, "committed_metadata": "m"}
                | partition
                for partition in partitions or ({},)
            ]
            member = {"generation_id": -1, "generation_id_or_member_epoch": -1, "member_id": "", "group_id": group}
            topics = [{"name": topic, "topic_id": TopicId("offered"), "partitions": rows}]
            pair.ask(case, "txn_offset_commit", version, {**member, **identity, "topics": topics, **more})

        for case, identity in producer.wrong():
            ask(f"before: {case}", identity)
        ask("not added", producer.identity())
        offsets(pair, "not added", group)
        pair.ask("add", "add_offsets_to_txn", 4, {**producer.identity(), "group_id": group})
        ask("good", producer.identity())
        ask("two", producer.identity(), {"committed_offset": 7}, {"partition_index": 1, "committed_metadata": None})
        offsets(pair, "pending", group)
        for case, identity in producer.wrong():
            ask(case, identity)
        if version < 6:
            ask("unknown topic", producer.identity(), topic="nowhere")
        ask("unknown partition", producer.identity(), {"partition_index": 9})
        ask("negative offset", producer.identity(), {"committed_offset": -1})
        ask("long metadata", producer.identity(), {"committed_metadata": "x" * 5_000})
        ask("empty group", producer.identity(), group="")
        ask("no topics", producer.identity(), topics=[])
        for generation, member in ((0, ""), (3, ""), (-1, "somebody"), (1, "somebody"), (-2, "")):
            of = {"generation_id": generation, "generation_id_or_member_epoch": generation, "member_id": member}
            ask(f"generation {generation} of {member!r}", producer.identity(), **of)
        ask("instance", producer.identity(), group_instance_id="i")
        offsets(pair, "still pending", group)
        plain = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": []}
        row = {"partition_index": 1, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
        plain["topics"] = [{"name": "offered", "partitions": [row]}]
        pair.ask("without a transaction meanwhile", "offset_commit", 9, plain)
        offsets(pair, "both", group)
        producer.end("commit", committed=True)
        offsets(pair, "committed", group)
        ask("after the end", producer.identity())
        producer.show("after the end")
        offsets(pair, "after the end", group)
        producer.acquire_id()
        pair.ask("add again", "add_offsets_to_txn", 4, {**producer.identity(), "group_id": group})
        ask("to be aborted", producer.identity(), {"committed_offset": 99})
        producer.end("abort", committed=False)
        offsets(pair, "aborted", group)


def offsets(pair: Pair, case: str, group: str) -> None:
    """Compare the committed offsets under both isolation levels, with retries until the markers are applied."""
    for stable in (True, False):
        topics = [{"name": "offered", "partition_indexes": [0, 1]}]
        pair.ask(
            f"{case}: offsets{', stable' if stable else ''}",
            "offset_fetch",
            7,
            {"group_id": group, "topics": topics, "require_stable": stable},
        )


# -- markers -----------------------------------------------------------------------------------------------------------


def transactional_markers(pair: Pair, versions: list[int]) -> None:
    """WriteTxnMarkers as a coordinator or `kafka-transactions abort` sends them.

    Duplicate partitions are left out: Apache Kafka never responds to them.
    """
    for version in versions:
        for level in (0, 1, 2) if version >= 2 else (0,):
            _markers(pair, version, level)


def _markers(pair: Pair, version: int, level: int) -> None:
    topic = f"marked-{level}-v{version}"
    pair.create(topic, partitions=2)
    producer = Producer(pair, topic, times=3)

    def mark(case: str, *rows: Mapping[str, Any]) -> None:
        markers = [
            {
                **producer.identity(),
                "transaction_result": True,
                "topics": [{"name": topic, "partition_indexes": [0]}],
                "coordinator_epoch": 0,
                "transaction_version": level,
                **row,
            }
            for row in rows
        ]
        pair.ask(f"level {level}: {case}", "write_txn_markers", version, {"markers": markers})

    def at(*indexes: int, name: str = topic) -> dict[str, Any]:
        return {"topics": [{"name": name, "partition_indexes": list(indexes)}]}

    def newer(epochs: int) -> dict[str, Any]:
        return {"producer_epoch": producer.identity(epochs=epochs)["producer_epoch"]}

    mark("none")
    mark("no topics", {"topics": []})
    mark("of a producer that never wrote", {})
    mark("unknown partition", at(9))
    mark("negative partition", at(-1))
    mark("unknown topic", at(0, name="nowhere"))
    mark("good and unknown", at(0, 9))
    look(pair, f"level {level}: nothing open", topic)
    producer.add("partitions", topic, 0, 1)
    producer.produce("records", topic, 0)
    producer.produce("records", topic, 1)
    for epochs in (-1, 0, 1):
        mark(f"epoch {epochs:+d}", newer(epochs))
        look(pair, f"level {level}: epoch {epochs:+d}", topic)
    mark("epoch +1 again", newer(1))
    mark("coordinator epoch -1", newer(1) | {"coordinator_epoch": -1})
    mark("newer coordinator epoch", newer(2) | {"coordinator_epoch": 5})
    mark("older coordinator epoch", newer(3) | {"coordinator_epoch": 4})
    mark("epoch of before", newer(-1) | {"coordinator_epoch": 5})
    mark("negative epoch", {"producer_epoch": -1})
    mark("negative producer id", {"producer_id": -1})
    mark("two of one producer", at(1) | newer(1), at(0) | newer(4) | {"transaction_result": False})
    mark("group log", at(0, name="__consumer_offsets") | newer(6))
    mark("transaction log", at(0, name="__transaction_state") | newer(6))
    look(pair, f"level {level}: marked", topic, 0, 1)
    producer.produce("after markers", topic, 0)
    producer.produce("after markers", topic, 0, epochs=5, sequence=0)


# -- records -----------------------------------------------------------------------------------------------------------


def transactional_records(pair: Pair, versions: list[int], label: str = "written") -> None:
    """Produce with a transactional id: verified up to version 11, with implicitly added partitions from 12 on."""
    topics = {version: f"{label}-v{version}" for version in versions}
    pair.create(*topics.values(), partitions=6)
    for version, topic in topics.items():
        producer = Producer(pair, topic, times=3)

        def ask(case: str, identity: Mapping[str, Any], version: int = version, topic: str = topic, **how: Any) -> None:
            pair.ask(case, "produce", version, transactional(topic, identity, **how))

        wrong = [(case, identity) for case, identity in producer.wrong() if case != "producer id -1"]
        for case, identity in wrong:
            ask(f"nothing open: {case}", identity)
        producer.show("nothing open")
        if version < IMPLICIT:
            ask("not added", producer.identity())
            producer.show("not added")
            producer.add("partitions", topic, 0, 1)
        producer.produce("first", topic, version=version)
        producer.show("first")
        producer.produce("second", topic, version=version)
        producer.produce("duplicate", topic, version=version, sequence=0)
        producer.produce("gap", topic, version=version, sequence=30)
        producer.produce("not from 0", topic, 1, version=version, sequence=4)
        producer.produce("another partition", topic, 1, version=version)
        look(pair, "open", topic, 0, 1)
        for case, identity in wrong:
            ask(f"open: {case}", identity, sequence=6)
        ask("not transactional", producer.identity(), sequence=6, attributes=0)
        ask(
            "not transactional, no transactional id", producer.identity(transactional_id=None), attributes=0, sequence=6
        )
        ask("no transactional id", producer.identity(transactional_id=None), sequence=6)
        ask("control", producer.identity(), sequence=6, attributes=TRANSACTIONAL | 0x20)
        ask("gzip", producer.identity(), index=1, sequence=3, compress=True)
        ask("unknown partition", producer.identity(), index=77)
        ask("a partition that was not added", producer.identity(), index=2)
        both = transactional(topic, producer.identity(), index=3)
        both["topic_data"][0]["partition_data"] += transactional(topic, producer.identity(), index=88)["topic_data"][0][
            "partition_data"
        ]
        pair.ask("a good and a bad partition", "produce", version, both)
        stranger = Producer(pair, f"{topic}-stranger", times=2)
        mixed = transactional(topic, producer.identity(), index=4)
        mixed["topic_data"][0]["partition_data"] += transactional(topic, stranger.identity(), index=5)["topic_data"][0][
            "partition_data"
        ]
        pair.ask("two producers in one request", "produce", version, mixed)
        producer.show("written")
        old = producer.identity()
        producer.end("commit", committed=True, version=5 if version >= IMPLICIT else 4)
        look(pair, "committed", topic, 0, 1)
        ask("with the old epoch after the end", old, sequence=6)
        producer.produce("the next", topic, version=version)
        producer.show("the next")
        look(pair, "the next", topic)
        producer.end("abort", committed=False, version=5 if version >= IMPLICIT else 4)
        look(pair, "aborted", topic)
        ask("of no producer", producer.identity(producer_id=-1, producer_epoch=-1), index=5)


def transactional_reads(pair: Pair, versions: list[int]) -> None:
    """Fetch under read_committed over committed, aborted and open transactions of two producers."""
    pair.create("committed-reads", partitions=2)
    first, second = (Producer(pair, f"reads-{number}") for number in range(2))
    for number, committed in enumerate((True, False, False, True)):
        producer = second if number == 2 else first
        producer.add("partition", "committed-reads", 0)
        producer.produce(f"records {number}", "committed-reads")
        if number == 1:
            second.add("partition", "committed-reads", 0)
            second.produce("between", "committed-reads")
        producer.end(f"end {number}", committed=committed)
    second.acquire_id()
    second.add("partition", "committed-reads", 0)
    second.produce("open", "committed-reads")
    pair.ask("not transactional", "produce", 9, produce_body("committed-reads", batch(THREE)))
    look(pair, "all", "committed-reads", 0, 1)
    for version in versions:
        for level in (0, 1):
            for offset in range(28):
                body = fetch_body("committed-reads", {"fetch_offset": offset}, isolation_level=level)
                pair.ask(f"isolation {level} from {offset}", "fetch", version, body)
            small = {"fetch_offset": 0, "partition_max_bytes": 1}
            body = fetch_body("committed-reads", small, isolation_level=level)
            pair.ask(f"isolation {level}, few bytes", "fetch", version, body)
            waiting = fetch_body(
                "committed-reads", {"fetch_offset": 26}, isolation_level=level, min_bytes=1, max_wait=20
            )
            pair.ask(f"isolation {level}, waiting", "fetch", version, waiting)
    second.end("the last", committed=False)
    look(pair, "ended", "committed-reads")


def transactional_offsets_of_time(pair: Pair, versions: list[int]) -> None:
    """ListOffsets under read_committed around an open transaction."""
    pair.create("committed-times")
    producer = Producer(pair, "times")
    pair.ask("before", "produce", 9, produce_body("committed-times", batch(THREE)))
    producer.add("partition", "committed-times", 0)
    producer.produce("open", "committed-times")
    pair.ask("behind", "produce", 9, produce_body("committed-times", batch(THREE)))
    for moment in ("open", "aborted"):
        for version in versions:
            for level in (0, 1):
                for timestamp in (-1, -2, -3, 0, 1_700_000_000_000, 1_700_000_000_002, 1_700_000_000_009):
                    asked = [{"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}]
                    topics = [{"name": "committed-times", "partitions": asked}]
                    body = {"replica_id": -1, "isolation_level": level, "topics": topics, "timeout": 1_000}
                    pair.ask(f"{moment}: isolation {level} at {timestamp}", "list_offsets", version, body)
        producer.end("abort", committed=False)


# -- descriptions of transactions --------------------------------------------------------------------------------------


def transactional_descriptions(pair: Pair, versions: list[int]) -> None:
    """DescribeTransactions."""
    pair.create("described-transactions", partitions=2)
    producer = Producer(pair, "described")
    for version in versions:
        for names in ([], ["described"], ["described", "nobody"], ["described", "described"], [""], ["x" * 300]):
            case = f"names {[name[:9] for name in names]}"
            pair.ask(case, "describe_transactions", version, {"transactional_ids": names})
    producer.add("partitions", "described-transactions", 1, 0)
    producer.show("open")
    for version in versions:
        pair.ask("two", "describe_transactions", version, {"transactional_ids": ["described", "nobody"]})
    producer.end("abort", committed=False)
    producer.show("ended")


def transactional_lists(pair: Pair, versions: list[int]) -> None:
    """ListTransactions by state, producer, age and pattern."""
    pair.create("listed-transactions")
    opened, ended, fresh = (Producer(pair, f"listed-{number}") for number in range(3))
    for producer in (opened, ended):
        producer.add("partition", "listed-transactions", 0)
    ended.end("commit", committed=True)
    mine = {"transactional_id_pattern": "listed-.*"}
    ids = [producer.producer_id for producer in (opened, ended, fresh)]
    cases: dict[str, dict[str, Any]] = {
        "open": {"state_filters": ["Ongoing"]},
        "two states": {"state_filters": ["Ongoing", "CompleteCommit"]},
        "unknown state": {"state_filters": ["Ongoing", "Sideways"]},
        "unknown state alone": {"state_filters": ["Sideways"]},
        "state of another case": {"state_filters": ["ongoing"]},
        "empty state": {"state_filters": [""]},
        "by producer": {"producer_id_filters": ids[:2]},
        "unknown producer": {"producer_id_filters": [987_654_321]},
        "negative producer": {"producer_id_filters": [-1]},
        "producer and state": {"producer_id_filters": ids, "state_filters": ["Empty", "Dead"]},
        "old": {"duration_filter": 3_600_000},
        "of any age": {"duration_filter": 0},
        "age -1": {"duration_filter": -1},
        "age -2": {"duration_filter": -2},
        "pattern": {"transactional_id_pattern": "listed-[01]"},
        "part of a name": {"transactional_id_pattern": "listed"},
        "pattern of nothing": {"transactional_id_pattern": "nobody.*"},
        "empty pattern": {"transactional_id_pattern": "", "producer_id_filters": ids},
        "bad pattern": {"transactional_id_pattern": "["},
        "no pattern": {"transactional_id_pattern": None, "producer_id_filters": ids},
    }
    for version in versions:
        for case, body in cases.items():
            filters = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
            bounded = {"producer_id_filters": ids} if version < 2 and "producer_id_filters" not in body else {}
            pair.ask(case, "list_transactions", version, filters | mine | bounded | body)
    opened.end("the last", committed=False)


# -- time and versions -------------------------------------------------------------------------------------------------


def transactional_timeouts(pair: Pair, _: list[int]) -> None:
    """A transaction that its producer abandoned is aborted, and the producer's next request is refused."""
    for flow in (11, IMPLICIT):
        topic = f"forgotten-{flow}"
        pair.create(topic)
        producer = Producer(pair, topic, timeout_ms=300, times=2)
        if flow < IMPLICIT:
            producer.add("partition", topic, 0)
        producer.produce("records", topic, version=flow)
        for side in pair.sides:

            def ended(side: Any = side, topic: str = topic) -> bool:
                answer = pair.request_one(side, "describe_transactions", 0, {"transactional_ids": [topic]})
                return bool(answer["transaction_states"][0]["transaction_state"] == "CompleteAbort")

            wait_for(ended, f"{side.name} ends a forgotten transaction")
        producer.show("forgotten")
        look(pair, f"flow {flow}: forgotten", topic)
        for version in (11, 12):
            producer.produce(f"flow {flow}: late", topic, version=version, sequence=3)
        producer.add(f"flow {flow}: late partition", topic, 0)
        for version in (2, 4, 5):
            for committed in (True, False):
                body = {**producer.identity(), "committed": committed}
                pair.ask(f"flow {flow}: late end, {committed}", "end_txn", version, body)
        asked = {**producer.identity(), "transaction_timeout": TIMEOUT_MS}
        pair.ask(f"flow {flow}: as itself", "init_producer_id", 4, asked)
        producer.show("as itself")
        producer.acquire_id()
        producer.show("with a new epoch")


def change_level(pair: Pair, case: str, level: int, *, upgrade: bool) -> None:
    """Set `transaction.version`, and wait until it is effective on both."""
    update = {"feature": "transaction.version", "max_version_level": level, "upgrade_type": 1 if upgrade else 2}
    pair.ask(f"{case}: change", "update_features", 1, {"timeout": 10_000, "feature_updates": [update]})
    pair.settle()


def transactional_levels(pair: Pair, versions: list[int]) -> None:
    """`transaction.version` is lowered and raised during transactions of an old and a new client (KAFKA-18227).

    Level 0 is tested with the old client only: the new client's transactional id has completed a transaction of level
    2, and Apache Kafka then returns CONCURRENT_TRANSACTIONS permanently.
    """
    pair.create("levels", partitions=2)
    old = Producer(pair, "levels-old", times=2)
    new = Producer(pair, "levels-new", times=2)
    old_alone = ((2, 0), (0, 0), (0, 1), (1, 0), (0, 2))
    for step, (level, following) in enumerate(((2, 2), (2, 1), (1, 1), (1, 2), (2, 2), *old_alone)):
        case = f"step {step}, {level} to {following}"
        both = level and following
        old.add(f"{case}: added", "levels", 0)
        old.produce(f"{case}: old records", "levels", 0)
        if both and level < 2:
            new.produce(f"{case}: not added", "levels", 1, version=IMPLICIT)
            new.add(f"{case}: added by the new", "levels", 1)
        if both:
            new.produce(f"{case}: new records", "levels", 1, version=IMPLICIT)
        if following != level:
            change_level(pair, case, following, upgrade=following > level)
        old.show(case)
        new.show(case)
        committed = step % 2 == 0
        old.produce(f"{case}: changed, old records", "levels", 0)
        old.end(f"{case}: old end", committed=committed)
        if both:
            new.produce(f"{case}: changed, new records", "levels", 1, version=IMPLICIT)
            new.end(f"{case}: new end", committed=committed, version=5)
        old.show(f"{case}, ended")
        new.show(f"{case}, ended")
        look(pair, case, "levels", 0, 1)


def transactional_level_1(pair: Pair, versions: list[int]) -> None:
    """Responses to EndTxn and Produce with `transaction.version` 1."""
    change_level(pair, "before", 1, upgrade=False)
    transactional_ends(pair, versions, "ended-1")
    transactional_records(pair, [3, 9, 11, 12, 13], "written-1")
    change_level(pair, "after", 2, upgrade=True)
