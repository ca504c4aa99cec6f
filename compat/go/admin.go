package main

import (
	"context"
	"fmt"
	"sort"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// step is one admin request and the printed form of its response.
type step struct {
	name string
	run  func() (any, error)
}

// franzAdmin TOPIC GROUP: prints kadm's descriptions of an existing topic and group, then creates, alters and deletes
// TOPIC-made, and deletes the group.
func franzAdmin(ctx context.Context, servers []string, arguments []string) error {
	topic, group, made := arguments[0], arguments[1], arguments[0]+"-made"
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...))
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	found := map[string]any{}
	steps := append(topicSteps(ctx, admin, made), readSteps(ctx, admin, topic)...)
	for _, one := range append(steps, groupSteps(ctx, admin, group)...) {
		value, err := one.run()
		if err != nil {
			return fmt.Errorf("%s: %w", one.name, err)
		}
		found[one.name] = value
	}
	show(found)
	return nil
}

// topicSteps create, alter and delete a topic.
func topicSteps(ctx context.Context, admin *kadm.Client, topic string) []step {
	return []step{
		{"created", func() (any, error) {
			created, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": kadm.StringPtr("60000")}, topic)
			return created.NumPartitions, err
		}},
		{"more partitions", func() (any, error) {
			grown, err := admin.CreatePartitions(ctx, 1, topic)
			return grown[topic].Topic, first(err, grown[topic].Err)
		}},
		{"altered", func() (any, error) {
			change := kadm.AlterConfig{Op: kadm.SetConfig, Name: "segment.bytes", Value: kadm.StringPtr("2097152")}
			altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, topic)
			if err != nil {
				return nil, err
			}
			return altered[0].Name, altered[0].Err
		}},
		{"configs", func() (any, error) {
			described, err := admin.DescribeTopicConfigs(ctx, topic)
			if err != nil {
				return nil, err
			}
			configs := map[string]string{}
			for _, config := range described[0].Configs {
				configs[config.Key] = config.MaybeValue()
			}
			return configs, described[0].Err
		}},
		{"partitions", func() (any, error) {
			listed, err := admin.ListTopics(ctx, topic)
			return len(listed[topic].Partitions), first(err, listed.Error())
		}},
		{"deleted", func() (any, error) {
			deleted, err := admin.DeleteTopic(ctx, topic)
			return deleted.Topic, err
		}},
	}
}

// readSteps describe a topic with records, then delete the first records.
func readSteps(ctx context.Context, admin *kadm.Client, topic string) []step {
	return []step{
		{"brokers", func() (any, error) {
			metadata, err := admin.BrokerMetadata(ctx)
			return len(metadata.Brokers), err
		}},
		{"broker configs", func() (any, error) {
			described, err := admin.DescribeBrokerConfigs(ctx, 1)
			if err != nil {
				return nil, err
			}
			return len(described[0].Configs), described[0].Err
		}},
		{"api versions", func() (any, error) {
			versions, err := admin.ApiVersions(ctx)
			return len(versions), err
		}},
		{"log dirs", func() (any, error) {
			dirs, err := admin.DescribeAllLogDirs(ctx, nil)
			return len(dirs), err
		}},
		{"topics", func() (any, error) {
			listed, err := admin.ListTopics(ctx)
			return listed.Has(topic), err
		}},
		{"end", func() (any, error) {
			offsets, err := admin.ListEndOffsets(ctx, topic)
			end, _ := offsets.Lookup(topic, 0)
			return end.Offset, first(err, offsets.Error())
		}},
		{"by time", func() (any, error) {
			offsets, err := admin.ListOffsetsAfterMilli(ctx, 1, topic)
			found, _ := offsets.Lookup(topic, 0)
			return found.Offset, first(err, offsets.Error())
		}},
		{"low after deletion", func() (any, error) {
			var before kadm.Offsets
			before.AddOffset(topic, 0, 1, -1)
			deleted, err := admin.DeleteRecords(ctx, before)
			low, _ := deleted.Lookup(topic, 0)
			return low.LowWatermark, first(err, deleted.Error())
		}},
		{"start", func() (any, error) {
			offsets, err := admin.ListStartOffsets(ctx, topic)
			start, _ := offsets.Lookup(topic, 0)
			return start.Offset, first(err, offsets.Error())
		}},
	}
}

// groupSteps describe a group without members, and delete it.
func groupSteps(ctx context.Context, admin *kadm.Client, group string) []step {
	return []step{
		{"groups", func() (any, error) {
			listed, err := admin.ListGroups(ctx)
			names := listed.Groups()
			sort.Strings(names)
			return names, err
		}},
		{"group state", func() (any, error) {
			described, err := admin.DescribeGroups(ctx, group)
			return described[group].State, first(err, described[group].Err)
		}},
		{"lag", func() (any, error) {
			lags, err := admin.Lag(ctx, group)
			return lags[group].Lag.Total(), first(err, lags.Error())
		}},
		{"group deleted", func() (any, error) {
			deleted, err := admin.DeleteGroup(ctx, group)
			return deleted.Group, err
		}},
	}
}

func first(failures ...error) error {
	for _, failure := range failures {
		if failure != nil {
			return failure
		}
	}
	return nil
}
