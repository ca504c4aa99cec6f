"""Brokers join, fall silent, come back and leave, as conversations with the controller's handlers."""

from __future__ import annotations

from functools import partial

import pytest

from ottla.common.errors import ErrorCode
from ottla.controller.configs import handle_incremental_alter_configs
from ottla.controller.elections import PREFERRED, UNCLEAN, handle_elect_leaders
from ottla.controller.leaderless import LeaderlessPartitions
from ottla.controller.registration import handle_controller_registration
from ottla.controller.result import ControllerResult
from ottla.metadata.image import NO_LEADER, RECOVERED, RECOVERING
from ottla.metadata.records import SUPPORTED_FEATURES, versioned
from ottla.protocol.messages.controller_registration import (
    ControllerFeatureRange,
    ControllerListener,
    ControllerRegistrationRequest,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.metadata_records import ZkMigrationStateRecord

from .world import SESSION_MS, World, refused


def three(**properties: str) -> World:
    world = World(**properties)
    world.join(1, 2, 3)
    return world


class TestRegistration:
    def test_broker_is_fenced_until_caught_up_and_willing(self) -> None:
        world = World()
        epoch = world.register(1)
        assert world.image.brokers[1].fenced
        assert world.image.brokers[1].broker_epoch == epoch
        behind = world.heartbeat(1, offset=epoch - 1)
        assert (behind.is_caught_up, behind.is_fenced) == (False, True)
        waiting = world.heartbeat(1, want_fence=True)
        assert (waiting.is_caught_up, waiting.is_fenced) == (True, True)
        assert not world.heartbeat(1).is_fenced
        assert world.image.brokers[1].active

    def test_the_epoch_is_the_offset_of_the_registration(self) -> None:
        world = World()
        offset = world.image.offset
        assert world.register(1) == offset + 1
        assert world.register(2) == offset + 2

    def test_duplicate_broker_id_is_rejected(self) -> None:
        world = World()
        world.join(1)
        first = world.epochs[1]
        refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda: world.register(1))
        world.silence(1)
        assert world.register(1) > first
        refused(ErrorCode.STALE_BROKER_EPOCH, lambda: world.heartbeat(1, epoch=first))

    def test_clean_restart_ends_a_granted_session(self) -> None:
        """After a stop of all nodes no controller was left to fence; the new one has no heartbeat from any of them."""
        world = World()
        world.join(1)
        world.heartbeats.reset(world.image, world.now_ms)
        refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda: world.register(1))
        first = world.epochs[1]
        assert world.register(1, clean=True) > first

    def test_heartbeat_session_survives_a_copied_directory(self) -> None:
        """E.g. from a copied directory."""
        world = World()
        world.join(1)
        refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda: world.register(1, clean=True))
        world.heartbeats.reset(world.image, world.now_ms)
        world.heartbeat(1)
        refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION, lambda: world.register(1, clean=True))

    @pytest.mark.parametrize("node_id", [-1, -2, -(2**31)])
    def test_negative_id_is_rejected(self, node_id: int) -> None:
        world = World()
        refused(ErrorCode.INVALID_REGISTRATION, lambda: world.register(node_id))
        request = ControllerRegistrationRequest(controller_id=node_id, incarnation_id=b"1" * 16)
        refused(
            ErrorCode.INVALID_REGISTRATION,
            lambda: world.run(lambda image, _: handle_controller_registration(image, request)),
        )

    def test_highest_id_is_accepted(self) -> None:
        world = World()
        world.register(2**31 - 1)
        assert not world.heartbeat(2**31 - 1).is_fenced

    def test_registration_is_idempotent_per_incarnation(self) -> None:
        """The same incarnation registers a second time: it retains its epoch and its state."""
        world = World()
        epoch = world.register(1, incarnation_id=b"I" * 16)
        assert world.register(1, incarnation_id=b"I" * 16) == epoch
        world.heartbeat(1)
        assert world.register(1, incarnation_id=b"I" * 16) == epoch
        assert world.image.brokers[1].active

    def test_foreign_and_outdated_brokers_are_rejected(self) -> None:
        world = World()
        refused(ErrorCode.INCONSISTENT_CLUSTER_ID, lambda: world.register(1, cluster_id="another"))
        refused(ErrorCode.UNSUPPORTED_VERSION, lambda: world.register(1, features=[]))

    def test_a_controller_is_written_down_once_an_incarnation(self) -> None:
        world = World()

        def register(incarnation: bytes, features: dict[str, tuple[int, int]] | None = None) -> int:
            """Return the number of records."""
            levels = SUPPORTED_FEATURES if features is None else features
            request = ControllerRegistrationRequest(
                controller_id=7,
                incarnation_id=incarnation,
                listeners=[ControllerListener(name="CONTROLLER", host="h", port=9093)],
                features=[
                    ControllerFeatureRange(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in levels.items()
                ],
            )
            before = world.image.offset
            world.run(lambda image, _: handle_controller_registration(image, request))
            return world.image.offset - before

        assert register(b"1" * 16) == 1
        assert register(b"1" * 16) == 0
        assert register(b"2" * 16) == 1
        assert world.image.controllers[7].incarnation_id == b"2" * 16
        refused(ErrorCode.UNSUPPORTED_VERSION, lambda: register(b"3" * 16, {}))

    def test_unclean_return_leaves_the_isr(self) -> None:
        world = three()
        world.create("t", [1, 2, 3])
        world.now_ms += SESSION_MS
        world.heartbeat(2)
        world.heartbeat(3)
        # The failure of broker 1 is not noticed yet: its registration reveals it.
        world.register(1)
        assert world.partition().leader == 2
        assert world.partition().isr == (2, 3)


class TestSilence:
    def test_leaders_move_and_the_isr_shrinks(self) -> None:
        world = three()
        world.create("t", [1, 2, 3], [2, 3, 1])
        world.silence(1)
        assert world.image.brokers[1].fenced
        assert (world.partition().leader, world.partition().isr) == (2, (2, 3))
        assert (world.partition(index=1).leader, world.partition(index=1).isr) == (2, (2, 3))
        assert world.partition().leader_epoch == 1
        assert world.partition(index=1).leader_epoch == 0, "its leader stays"
        world.register(1)
        world.heartbeat(1)
        assert world.partition().leader == 2, "a returning broker leads once it is in sync and elected"

    def test_heartbeats_extend_a_session(self) -> None:
        world = three()
        for _ in range(5):
            world.now_ms += SESSION_MS - 1
            for broker_id in (1, 2, 3):
                world.heartbeat(broker_id)
            world.fence_silent()
        assert len(world.image.active_brokers()) == 3

    def test_new_controller_grants_full_sessions(self) -> None:
        world = three()
        world.now_ms += 10 * SESSION_MS
        world.heartbeats.reset(world.image, world.now_ms)
        assert world.heartbeats.stale(world.image, world.now_ms) == []
        world.now_ms += SESSION_MS
        assert [broker.broker_id for broker in world.heartbeats.stale(world.image, world.now_ms)] == [1, 2, 3]

    def test_slow_broker_is_unfenced_by_its_next_heartbeat(self) -> None:
        world = three()
        world.create("t", [1, 2])
        world.silence(1)
        assert not world.heartbeat(1).is_fenced
        assert world.partition().isr == (2,)
        assert world.alter_partition([2, 1]).error_code == 0

    def test_many_partitions_move_in_slices(self) -> None:
        world = three(min_insync_replicas="1")
        for topic in range(3):
            world.create(f"t{topic}", *[[1, 2, 3]] * 4000)
        world.silence(1)
        assert {part.leader for topic in world.image.topics.values() for part in topic.partitions.values()} == {2}


class TestControlledShutdown:
    def test_leaders_move_before_the_broker_may_stop(self) -> None:
        world = three()
        world.create("t", [1, 2, 3])
        first = world.heartbeat(1, want_shut_down=True)
        assert (first.should_shut_down, first.is_fenced) == (False, False)
        assert world.image.brokers[1].in_controlled_shutdown
        assert (world.partition().leader, world.partition().isr) == (2, (2, 3))
        moved = world.image.offset
        world.heartbeat(2, offset=moved - 1)
        world.heartbeat(3)
        assert not world.heartbeat(1, want_shut_down=True).should_shut_down, "broker 2 doesn't know yet"
        world.heartbeat(2, offset=moved)
        assert world.heartbeat(1, want_shut_down=True).should_shut_down
        assert world.image.brokers[1].fenced

    def test_last_replica_leads_again_after_clean_stop(self) -> None:
        world = three()
        world.create("t", [1])
        world.shut_down(1)
        gone = world.partition()
        assert (gone.leader, gone.isr, gone.eligible_leader_replicas) == (NO_LEADER, (), (1,))
        world.register(1, clean=True)
        world.heartbeat(1)
        back = world.partition()
        assert (back.leader, back.isr, back.leader_recovery_state) == (1, (1,), RECOVERED)
        assert back.leader_epoch == gone.leader_epoch + 1

    def test_unwanted_shutdown_is_reported_to_the_broker(self) -> None:
        world = three()
        world.create("t", [1, 2, 3])
        world.shut_down(1)
        answer = world.heartbeat(1)
        assert (answer.is_fenced, answer.should_shut_down) == (True, True)
        assert world.heartbeat(1, want_fence=True).should_shut_down
        world.register(1, clean=True)
        assert not world.heartbeat(1).is_fenced

    def test_killed_replica_with_session_is_not_elected(self) -> None:
        world = three(min_insync_replicas="1")
        world.create("t", [1, 3])
        world.now_ms += 1
        assert not world.heartbeat(1, want_shut_down=True).should_shut_down
        world.heartbeat(2)
        assert not world.heartbeat(1, want_shut_down=True).should_shut_down
        assert (world.partition().leader, world.partition().isr) == (1, (1, 3)), "broker 3 may be dead"
        world.silence(3)
        world.shut_down(1)
        assert (world.partition().isr, world.partition().eligible_leader_replicas) == ((), (1,))

    def test_leadership_moves_after_the_replicas_heartbeat(self) -> None:
        world = three(min_insync_replicas="1")
        world.create("t", [1, 3])
        world.now_ms += 1
        world.heartbeat(1, want_shut_down=True)
        world.heartbeat(3)
        assert not world.heartbeat(1, want_shut_down=True).should_shut_down
        assert (world.partition().leader, world.partition().isr) == (3, (3,))
        world.heartbeat(2)
        world.heartbeat(3)
        assert world.heartbeat(1, want_shut_down=True).should_shut_down

    def test_live_leader_stays_while_a_follower_stops(self) -> None:
        world = three(min_insync_replicas="1")
        world.create("t", [2, 1, 3])
        world.now_ms += 1
        world.heartbeat(1, want_shut_down=True)
        world.heartbeat(3)
        world.heartbeat(1, want_shut_down=True)
        assert (world.partition().leader, world.partition().isr) == (2, (2, 3))

    def test_granted_session_does_not_prove_liveness(self) -> None:
        world = three(min_insync_replicas="1")
        world.create("t", [1, 3])
        world.heartbeats.reset(world.image, world.now_ms)
        world.heartbeat(1, want_shut_down=True)
        assert (world.partition().leader, world.partition().isr) == (1, (1, 3))
        world.heartbeat(3)
        world.heartbeat(1, want_shut_down=True)
        assert world.partition().leader == 3

    @pytest.mark.promise("R8")
    @pytest.mark.parametrize("min_isr", ["1", "2"])
    @pytest.mark.parametrize("order", [(1, 2), (2, 1)])
    def test_cluster_stop_with_a_dead_node_survives_its_disk(self, min_isr: str, order: tuple[int, int]) -> None:
        """README: `--replace-node` after a stop within seconds of the death of a node."""
        world = three(min_insync_replicas=min_isr)
        world.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        world.now_ms += 1
        stopped: set[int] = set()
        for second in range(SESSION_MS // 1000 + 3):
            for broker_id in set(order) - stopped:
                if world.heartbeat(broker_id, want_shut_down=True).should_shut_down:
                    stopped.add(broker_id)
            world.now_ms += 1000
            world.fence_silent()
            assert not any(part.isr == (3,) for part in world.image.topics["t"].partitions.values()), second
        assert stopped == {1, 2}
        for part in world.image.topics["t"].partitions.values():
            assert part.isr == ()
            assert {1, 2} <= set(part.eligible_leader_replicas)
        world.register(3, log_dirs=[bytes(15) + b"\x77"])
        world.heartbeat(3)
        world.join(order[0], clean=True)
        for part in world.image.topics["t"].partitions.values():
            assert (part.leader, part.leader_recovery_state) == (order[0], RECOVERED)
            assert (part.eligible_leader_replicas != ()) == (min_isr == "2"), "one alone may commit from here on"

    @pytest.mark.parametrize("back", [(1, 2, 3), (2, 1, 3), (3, 1, 2), (1, 3, 2)])
    def test_restarted_cluster_elects_only_live_brokers(self, back: tuple[int, ...]) -> None:
        """All stopped together, so that no controller moved leaderships; the disk of broker 3 is replaced."""
        world = three(min_insync_replicas="1")
        world.create("t", [1, 2, 3], [2, 3, 1], [3, 1, 2])
        world.heartbeats.reset(world.image, world.now_ms)
        for broker_id in back:
            if broker_id == 3:
                world.now_ms += SESSION_MS - 1  # an unclean registration waits for the session
                for other in back[: back.index(3)]:
                    world.heartbeat(other)
                world.now_ms += 1
                world.fence_silent()
                world.register(3, log_dirs=[bytes(15) + b"\x77"])
            else:
                world.register(broker_id, clean=True)
            world.heartbeat(broker_id)
        for part in world.image.topics["t"].partitions.values():
            assert part.leader in (1, 2)
            assert part.leader_recovery_state == RECOVERED

    def test_first_heartbeat_to_a_new_controller_elects(self) -> None:
        world = three(min_insync_replicas="1")
        world.create("t", [3, 1, 2])
        world.heartbeats.reset(world.image, world.now_ms)
        world.register(1, clean=True)
        assert (world.partition().leader, world.partition().isr) == (NO_LEADER, (3, 2))
        world.heartbeat(3)
        assert (world.partition().leader, world.partition().isr) == (3, (3, 2))

    def test_fenced_broker_may_stop_at_once(self) -> None:
        world = three()
        world.silence(1)
        assert world.heartbeat(1, want_shut_down=True).should_shut_down


class TestEligibleLeaderReplicas:
    def test_replica_leaving_below_min_isr_stays_eligible(self) -> None:
        world = three(min_insync_replicas="2")
        world.create("t", [1, 2, 3])
        world.silence(1)
        assert world.partition().eligible_leader_replicas == (), "the ISR is as large as it must be"
        world.silence(2)
        assert (world.partition().isr, world.partition().eligible_leader_replicas) == ((3,), (2,))
        world.silence(3)
        assert (world.partition().leader, world.partition().isr) == (NO_LEADER, ())
        assert world.partition().eligible_leader_replicas == (2, 3)
        world.register(2, clean=True)
        world.heartbeat(2)
        after = world.partition()
        assert (after.leader, after.isr, after.eligible_leader_replicas) == (2, (2,), (3,))
        assert after.leader_recovery_state == RECOVERED

    def test_last_known_leader_leads_after_unclean_returns(self) -> None:
        world = three(min_insync_replicas="2")
        world.create("t", [1, 2, 3])
        for broker_id in (1, 2, 3):
            world.silence(broker_id)
        assert world.partition().last_known_elr == (3,)
        world.join(2)
        assert world.partition().leader == NO_LEADER, "broker 3 is still eligible, and may come back"
        assert world.partition().eligible_leader_replicas == (3,)
        world.register(3)
        assert world.partition().eligible_leader_replicas == ()
        assert world.partition().leader == NO_LEADER
        world.heartbeat(3)
        last = world.partition()
        assert (last.leader, last.isr, last.leader_recovery_state) == (3, (3,), RECOVERING)
        assert last.last_known_elr == ()
        assert world.alter_partition([3]).error_code == 0, "the leader has recovered"
        assert world.partition().leader_recovery_state == RECOVERED

    @pytest.mark.promise("R11")
    def test_last_leader_with_empty_disk_is_not_elected(self) -> None:
        """It led, and the others truncated their logs to zero."""
        world = three(min_insync_replicas="1")
        world.create("t", [3, 1, 2])
        for broker_id in (1, 2, 3):
            world.silence(broker_id)
        assert (world.partition().leader, world.partition().isr) == (NO_LEADER, ())
        new = bytes(15) + b"\x77"
        world.register(3, log_dirs=[new])
        world.heartbeat(3)
        world.join(1, 2)
        assert world.partition().leader == NO_LEADER
        request = ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=None)
        world.run(lambda image, context: handle_elect_leaders(image, request, context))
        assert world.partition().leader == 1, "the replica that has the records, not the first one"
        assert world.alter_partition([1, 3]).error_code == 0
        assert world.partition().directories[0] == new, "it has caught up there"
        world.silence(1)
        assert world.partition().leader == 3

    def test_new_min_isr_clears_eligible_replicas(self) -> None:
        world = three(min_insync_replicas="2")
        world.create("t", [1, 2, 3])
        world.silence(1, 2)
        assert world.partition().eligible_leader_replicas
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name="t",
                    configs=[AlterableConfig(name="min.insync.replicas", config_operation=0, value="1")],
                )
            ]
        )
        world.run(lambda image, context: handle_incremental_alter_configs(image, request, context))
        assert world.partition().eligible_leader_replicas == ()

    @pytest.mark.promise("R11")
    def test_unclean_election_by_setting(self) -> None:
        world = three()
        world.create("t", [1, 2], unclean_leader_election_enable="true")
        assert world.alter_partition([1]).error_code == 0
        world.silence(1)
        after = world.partition()
        assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), RECOVERING)


class TestUnregister:
    def test_unregistered_broker_loses_its_leaderships(self) -> None:
        world = three()
        world.create("t", [1, 2, 3])
        world.unregister(1)
        assert 1 not in world.image.brokers
        assert (world.partition().leader, world.partition().isr) == (2, (2, 3))
        refused(ErrorCode.BROKER_ID_NOT_REGISTERED, lambda: world.unregister(1))
        refused(ErrorCode.STALE_BROKER_EPOCH, lambda: world.heartbeat(1))

    def test_last_active_broker_is_not_unregistered(self) -> None:
        world = three()
        world.unregister(1)
        world.unregister(2)
        refused(ErrorCode.INVALID_REQUEST, lambda: world.unregister(3))
        assert 3 in world.image.brokers


def test_zookeeper_broker_registers_only_during_migration() -> None:
    world = World()

    def state(number: int) -> None:
        record = versioned(ZkMigrationStateRecord(zk_migration_state=number))
        world.run(lambda _image, _context: ControllerResult([record], None))

    for number, migrating in ((0, True), (2, False), (3, True)):
        state(number)
        refused(ErrorCode.BROKER_ID_NOT_REGISTERED, partial(world.register, 1, is_migrating_zk_broker=migrating))
    for number in (2, 1):
        state(number)
        world.register(number, is_migrating_zk_broker=True)
        assert world.image.brokers[number].is_migrating_zk_broker
    world.register(1, clean=True)  # restarted as the quorum's own
    assert not world.image.brokers[1].is_migrating_zk_broker


class TestPartitionWithoutLeader:
    def test_replaced_disk_of_the_last_replica_is_named(self, caplog: pytest.LogCaptureFixture) -> None:
        world = three(min_insync_replicas="1")
        world.create("t", [3, 1, 2])
        for broker_id in (1, 2, 3):
            world.silence(broker_id)
        world.register(3, log_dirs=[bytes(15) + b"\x77"])
        world.heartbeat(3)
        world.join(1, 2)
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
        response = world.run(lambda image, context: handle_elect_leaders(image, request, context))
        message = response.replica_election_results[0].partition_result[0].error_message
        assert "broker 3 had every committed record" in message
        assert "ottla cluster elect t:0 --unclean" in message
        partitions = LeaderlessPartitions()
        for _ in range(5):
            partitions.look(world.image)
        assert caplog.text.count("t-0: No leader: broker 3 had") == 1, "not at every look"

    def test_stopped_broker_with_all_records_is_named(self) -> None:
        world = three(min_insync_replicas="1")
        world.create("t", [3, 1, 2])
        for broker_id in (1, 2, 3):
            world.silence(broker_id)
        world.join(1, 2)
        request = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=None)
        response = world.run(lambda image, context: handle_elect_leaders(image, request, context))
        assert "start it" in response.replica_election_results[0].partition_result[0].error_message
