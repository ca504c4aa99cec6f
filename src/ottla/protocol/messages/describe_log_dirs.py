"""DescribeLogDirs (key 35): sizes of the logs in each log directory (KIP-113).

2 is flexible, 3 has a top-level error code, 4 adds disk sizes (KIP-827), 5 cordoned directories (KIP-1066).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT16, INT32, INT64, STRING, array, f, message, struct


@struct
class DescribableLogDirTopic:
    topic: str = f(STRING, "0+")
    partitions: list[int] = f(array(INT32), "0+")


@message("1-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = f(array(DescribableLogDirTopic), "0+", nullable="0+", default=None)


@struct
class DescribeLogDirsPartition:
    partition_index: int = f(INT32, "0+")
    partition_size: int = f(INT64, "0+")
    offset_lag: int = f(INT64, "0+")
    is_future_key: bool = f(BOOL, "0+")


@struct
class DescribeLogDirsTopic:
    name: str = f(STRING, "0+")
    partitions: list[DescribeLogDirsPartition] = f(array(DescribeLogDirsPartition), "0+")


@struct
class DescribeLogDirsResult:
    error_code: int = f(INT16, "0+")
    log_dir: str = f(STRING, "0+")
    topics: list[DescribeLogDirsTopic] = f(array(DescribeLogDirsTopic), "0+")
    total_bytes: int = f(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = f(INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = f(BOOL, "5+", ignorable=True)


@message("1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    error_code: int = f(INT16, "3+", ignorable=True)
    results: list[DescribeLogDirsResult] = f(array(DescribeLogDirsResult), "0+")


SPEC = ApiSpec(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest, DescribeLogDirsResponse)
