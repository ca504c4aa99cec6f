"""Output and deletion of groups: what `ottla group` and `ottla share` have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.command import counted, print_json, print_table
from ottla.common.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster
    from ottla.client.wire.model import GroupDescription, GroupMember


def summary_text(found: GroupDescription) -> str:
    """Group, type, state and number of members in one line."""
    return f"Group {found.group_id}, {found.group_type}, {found.state}, {counted(len(found.members), 'member')}"


def group_state_json(found: GroupDescription) -> dict[str, Any]:
    """The state of a group for `--json`."""
    from ottla.common.platform.endpoint import format_address

    return {
        "group": found.group_id,
        "state": found.state,
        "type": found.group_type,
        "protocol_type": found.protocol_type or None,
        "assignor": found.assignor,
        "group_epoch": found.group_epoch,
        "assignment_epoch": found.assignment_epoch,
        "coordinator": format_address(found.coordinator.host, found.coordinator.port),
        "coordinator_id": found.coordinator.node_id,
        "members": len(found.members),
    }


def print_members(found: GroupDescription, *, as_json: bool) -> None:
    """Print the members of a group with their assignments."""
    if as_json:
        print_json(
            [
                {
                    "member": member.member_id,
                    "instance_id": member.instance_id,
                    "client_id": member.client_id,
                    "host": member.host,
                    "protocol": member.protocol,
                    "member_epoch": member.member_epoch,
                    "assignment": member.assignment,
                    "target_assignment": member.target_assignment,
                }
                for member in found.members
            ]
        )
        return
    print_table(
        ("member", "instance id", "client id", "host", "protocol", "epoch", "partitions", "assignment", "target"),
        [
            (
                member.member_id,
                member.instance_id,
                member.client_id,
                member.host,
                member.protocol,
                member.member_epoch,
                sum(len(partitions) for partitions in member.assignment.values()),
                _assignment_text(member.assignment),
                None if member.target_assignment in (None, member.assignment) else _target_text(member),
            )
            for member in found.members
        ],
        right=("epoch", "partitions"),
    )


def _assignment_text(assignment: Mapping[str, Sequence[int]]) -> str:
    words = [f"{topic}:{','.join(map(str, partitions))}" for topic, partitions in assignment.items()]
    return " ".join(words) or "-"


def _target_text(member: GroupMember) -> str:
    return _assignment_text(member.target_assignment or {})


def delete_groups(cluster: Cluster, group_ids: Sequence[str], *, if_exists: bool, as_json: bool) -> None:
    """Delete groups and print those that were deleted. Raises the last failure after all were tried."""
    deleted: list[str] = []
    failures: list[KafkaError] = []
    for group_id in group_ids:
        try:
            cluster.groups.delete(group_id)
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND or not if_exists:
                failures.append(error)
            continue
        deleted.append(group_id)
        if not as_json:
            click.echo(f"Deleted group {group_id}.")
    if as_json:
        print_json({"deleted": deleted})
    for failure in failures[:-1]:
        click.echo(f"ottla: {failure}", err=True)
    if failures:
        raise failures[-1]
