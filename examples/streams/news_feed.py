"""The activity of each reader, for a news feed; `ottla pipeline stream news-feed.toml` calls it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def activity(spark: SparkSession, sources: Mapping[str, DataFrame]) -> DataFrame:
    """Views of a quarter of an hour by reader: how many, and the page of the last one."""
    views = sources["views"].where("user <> ''")
    counted = views.groupBy(F.window("at", "15 minutes"), "user").agg(
        F.count("*").alias("views"), F.max(F.struct("at", "id", "page")).alias("last")
    )
    return counted.select(
        "user",
        F.col("window.start").alias("since"),
        F.col("window.end").alias("until"),
        "views",
        F.col("last.page").alias("page"),
    )
