package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// franzTransactions TOPIC ID: commits, aborts, and a zombie with an older epoch; prints the results, and last the values
// that a read_committed consumer reads.
func franzTransactions(ctx context.Context, servers []string, arguments []string) error {
	topic, id := arguments[0], arguments[1]
	first, err := openTransactional(servers, topic, id)
	if err != nil {
		return err
	}
	defer first.Close()
	for number, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryAbort, kgo.TryCommit} {
		if err := transact(ctx, first, fmt.Sprint(number), end); err != nil {
			return err
		}
	}
	if err := begin(ctx, first, "zombie"); err != nil {
		return err
	}
	second, err := openTransactional(servers, topic, id)
	if err != nil {
		return err
	}
	defer second.Close()
	if err := transact(ctx, second, "second", kgo.TryCommit); err != nil {
		return err
	}
	show(map[string]bool{"fenced": isFenced(first.EndTransaction(ctx, kgo.TryCommit))})
	if err := transact(ctx, second, "last", kgo.TryCommit); err != nil {
		return err
	}
	return showCommitted(ctx, servers, topic)
}

func openTransactional(servers []string, topic string, id string) (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(servers...), kgo.DefaultProduceTopic(topic), kgo.TransactionalID(id))
}

// begin opens a transaction of two records.
func begin(ctx context.Context, client *kgo.Client, value string) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	return client.ProduceSync(ctx, kgo.StringRecord(value), kgo.StringRecord(value)).FirstErr()
}

func transact(ctx context.Context, client *kgo.Client, value string, end kgo.TransactionEndTry) error {
	if err := begin(ctx, client, value); err != nil {
		return err
	}
	return client.EndTransaction(ctx, end)
}

func isFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch)
}

// showCommitted prints the committed values up to "last".
func showCommitted(ctx context.Context, servers []string, topic string) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers...),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	var values []string
	for lasts := 0; lasts < 2; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			values = append(values, string(record.Value))
			if string(record.Value) == "last" {
				lasts++
			}
		})
	}
	show(values)
	return nil
}
