"""A program on Spark Connect that reads and writes topics: `connect_driver.py URL SERVERS SOURCE TARGET CHECKPOINT`.

Prints a batch read of SOURCE as JSON, after a stream copied it into TARGET exactly once.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql.connect.session import SparkSession

import ottla.spark

if __name__ == "__main__":
    url, servers, source, target, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.remote(url).getOrCreate()
    ottla.spark.register(spark)

    batch = spark.read.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", source)
    rows = batch.load().selectExpr("cast(value as string) as value", "partition", "offset").collect()
    query = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
        .writeStream.format("ottla")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .option("delivery.guarantee", "exactly-once")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    frame = spark.sql("select 'batch' as key, 'row' as value")
    writer = frame.write.format("ottla").mode("append").option("kafka.bootstrap.servers", servers)
    writer.option("topic", target).save()
    print(json.dumps([row.asDict() for row in rows]))
    spark.stop()
