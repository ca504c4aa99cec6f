package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var franzCodecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// franzSend TOPIC CODEC: produces the messages of standard input, each to its given partition.
func franzSend(ctx context.Context, servers []string, arguments []string) error {
	messages, err := readMessages()
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers...),
		kgo.DefaultProduceTopic(arguments[0]),
		kgo.ProducerBatchCompression(franzCodecs[arguments[1]]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	for _, one := range messages {
		record := &kgo.Record{Partition: one.Partition, Key: data(one.Key), Value: data(one.Value)}
		for name, value := range one.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		records = append(records, record)
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// franzProduce TOPIC: an idempotent producer that sends 0, 1, 2, ... and prints each when it is acknowledged.
func franzProduce(ctx context.Context, servers []string, arguments []string) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.DefaultProduceTopic(arguments[0]))
	if err != nil {
		return err
	}
	defer client.Close()
	ended := untilInputEnds(ctx)
	for number := 0; ended.Err() == nil; number++ {
		value := strconv.Itoa(number)
		client.Produce(ctx, kgo.StringRecord(value), func(record *kgo.Record, err error) {
			if err != nil {
				show(map[string]string{"value": value, "error": err.Error()})
				return
			}
			show(message{Partition: record.Partition, Offset: record.Offset, Value: &value})
		})
		time.Sleep(pause)
	}
	return client.Flush(ctx)
}

// franzConsume TOPIC [GROUP]: prints every record, as a member of the group or from all partitions.
func franzConsume(ctx context.Context, servers []string, arguments []string) error {
	options := []kgo.Opt{
		kgo.SeedBrokers(servers...),
		kgo.ConsumeTopics(arguments[0]),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if len(arguments) > 1 {
		options = append(options, kgo.ConsumerGroup(arguments[1]))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ended := untilInputEnds(ctx)
	for ended.Err() == nil {
		fetches := client.PollFetches(ended)
		fetches.EachError(func(topic string, partition int32, err error) {
			if !errors.Is(err, context.Canceled) {
				fmt.Fprintln(os.Stderr, topic, partition, err)
			}
		})
		fetches.EachRecord(func(record *kgo.Record) {
			one := message{Partition: record.Partition, Offset: record.Offset, Key: text(record.Key), Value: text(record.Value)}
			one.Headers = map[string]string{}
			for _, header := range record.Headers {
				one.Headers[header.Key] = string(header.Value)
			}
			show(one)
		})
	}
	if len(arguments) > 1 {
		return client.CommitUncommittedOffsets(ctx)
	}
	return nil
}
