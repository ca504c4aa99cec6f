package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
)

var segmentioCodecs = map[string]kafka.Compression{
	"none":   0,
	"gzip":   kafka.Gzip,
	"snappy": kafka.Snappy,
	"lz4":    kafka.Lz4,
	"zstd":   kafka.Zstd,
}

// pause between two messages of a continuous producer.
const pause = 5 * time.Millisecond

// newWriter waits for all in-sync replicas; it is not idempotent, because the library has no such producer. It refreshes
// metadata every second instead of the default six, which is longer than its retries last.
func newWriter(servers []string, topic string) *kafka.Writer {
	return &kafka.Writer{
		Addr:         kafka.TCP(servers...),
		Topic:        topic,
		Balancer:     &kafka.RoundRobin{},
		RequiredAcks: kafka.RequireAll,
		BatchTimeout: pause,
		Transport:    &kafka.Transport{MetadataTTL: time.Second},
	}
}

// segmentioSend TOPIC CODEC: produces the messages of standard input.
func segmentioSend(ctx context.Context, servers []string, arguments []string) error {
	messages, err := readMessages()
	if err != nil {
		return err
	}
	writer := newWriter(servers, arguments[0])
	writer.Compression = segmentioCodecs[arguments[1]]
	var records []kafka.Message
	for _, one := range messages {
		record := kafka.Message{Key: data(one.Key), Value: data(one.Value)}
		for name, value := range one.Headers {
			record.Headers = append(record.Headers, kafka.Header{Key: name, Value: []byte(value)})
		}
		records = append(records, record)
	}
	return first(writer.WriteMessages(ctx, records...), writer.Close())
}

// segmentioProduce TOPIC: sends 0, 1, 2, ..., retries each until it is acknowledged, and then prints it.
func segmentioProduce(ctx context.Context, servers []string, arguments []string) error {
	writer := newWriter(servers, arguments[0])
	ended := untilInputEnds(ctx)
	for number := 0; ended.Err() == nil; number++ {
		value := strconv.Itoa(number)
		for {
			err := writer.WriteMessages(ctx, kafka.Message{Value: []byte(value)})
			if err == nil {
				break
			}
			fmt.Fprintln(os.Stderr, err)
		}
		show(message{Partition: -1, Offset: -1, Value: &value})
	}
	return writer.Close()
}

// segmentioConsume TOPIC GROUP: prints and commits every record as a member of the group.
func segmentioConsume(ctx context.Context, servers []string, arguments []string) error {
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers:        servers,
		Topic:          arguments[0],
		GroupID:        arguments[1],
		StartOffset:    kafka.FirstOffset,
		MaxWait:        500 * time.Millisecond,
		CommitInterval: time.Second,
		ErrorLogger:    kafka.LoggerFunc(func(form string, values ...any) { fmt.Fprintf(os.Stderr, form+"\n", values...) }),
	})
	ended := untilInputEnds(ctx)
	for {
		record, err := reader.ReadMessage(ended)
		if ended.Err() != nil {
			return reader.Close()
		}
		if err != nil {
			return err
		}
		one := message{Partition: int32(record.Partition), Offset: record.Offset, Key: text(record.Key), Value: text(record.Value)}
		one.Headers = map[string]string{}
		for _, header := range record.Headers {
			one.Headers[header.Key] = string(header.Value)
		}
		show(one)
	}
}
