"""Administrator of a simulated share group: its settings, and changes of its start offsets while it is empty."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.registry import ApiKey
from simulation.checkers import Violation
from simulation.client import Client, RequestLost
from simulation.log_clients import RETRIABLE, LogWorld
from simulation.members import RETRIABLE as COORDINATOR_RETRIABLE
from simulation.rng import SimRng
from simulation.share_world import ShareWorld

CONFIGS_VERSION = 1
OFFSETS_VERSION = 0
SET = 0
AGAIN_S = 0.5
TIMEOUT_S = 25.0
EXPLAINED = (
    RETRIABLE
    | COORDINATOR_RETRIABLE
    | {
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class ShareAdministrator:
    """Changes one share group."""

    def __init__(self, share: ShareWorld, rng: SimRng) -> None:
        self._share = share
        self._world: LogWorld = share.world
        self._rng = rng
        self.rewinds = 0

    async def configure(self, settings: Mapping[str, str]) -> None:
        """Set settings of the group; retries until they are set."""
        configs = [AlterableConfig(name=name, config_operation=SET, value=value) for name, value in settings.items()]
        resource = AlterConfigsResource(
            resource_type=ConfigResourceType.GROUP, resource_name=self._share.group_id, configs=configs
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        while True:
            client = Client(
                self._world.loop, self._world.network, "share-admin", self._rng.choice(self._world.bootstrap)
            )
            try:
                response = await client.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, CONFIGS_VERSION, request)
                code = response.responses[0].error_code
            except RequestLost:
                code = ErrorCode.REQUEST_TIMED_OUT
            finally:
                client.close()
            if code == ErrorCode.NONE:
                return
            if code not in RETRIABLE:
                raise Violation(f"IncrementalAlterConfigs returned {ErrorCode(code).name}")
            await asyncio.sleep(AGAIN_S)

    async def rewind(self, offset: int) -> None:
        """Let all members leave, set every start offset of the topic, and let them join again."""
        share = self._share
        share.resting = True
        while share.running:
            await asyncio.sleep(AGAIN_S)
        left = set(range(self._world.partitions))
        client = share.make_client("share-admin")
        while left:
            await asyncio.sleep(AGAIN_S)
            partitions = [
                AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                for index in sorted(left)
            ]
            topic = AlterShareGroupOffsetsRequestTopic(topic_name=self._world.topic, partitions=partitions)
            request = AlterShareGroupOffsetsRequest(group_id=share.group_id, topics=[topic])
            try:
                response: Any = await client.request(
                    ApiKey.ALTER_SHARE_GROUP_OFFSETS, OFFSETS_VERSION, request, TIMEOUT_S
                )
            except RequestLost:
                continue
            self._check(response.error_code)
            for row in [row for each in response.responses for row in each.partitions]:
                self._check(row.error_code)
                if not response.error_code and not row.error_code:
                    left.discard(row.partition_index)
                    share.history.rewound((self._world.topic_id, row.partition_index), offset)
        client.close()
        self.rewinds += 1
        share.resting = False

    def _check(self, code: int) -> None:
        if code and code not in EXPLAINED:
            raise Violation(f"AlterShareGroupOffsets returned {ErrorCode(code).name}")
