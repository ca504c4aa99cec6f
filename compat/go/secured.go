package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const trialTimeout = 60 * time.Second

// login contains the credentials of a client; empty fields are not presented. The secret of OAUTHBEARER is its token.
type login struct {
	Authority   string `json:"authority"`
	Certificate string `json:"certificate"`
	Mechanism   string `json:"mechanism"`
	Name        string `json:"name"`
	Secret      string `json:"secret"`
	ByToken     bool   `json:"by_token"`
}

// trial is one test of a client: for Millis milliseconds it sends records, and its group reads each of them.
type trial struct {
	Right  login  `json:"right"`
	Wrong  login  `json:"wrong"`
	Topic  string `json:"topic"`
	Group  string `json:"group"`
	Closed string `json:"closed"`
	Millis int    `json:"millis"`
}

// franzSecured runs the trial on standard input, and prints the read values and the name of each error.
func franzSecured(ctx context.Context, servers []string, _ []string) error {
	var one trial
	if err := json.NewDecoder(os.Stdin).Decode(&one); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, trialTimeout)
	defer cancel()
	client, err := one.Right.client(
		servers,
		kgo.DefaultProduceTopic(one.Topic),
		kgo.ConsumeTopics(one.Topic),
		kgo.ConsumerGroup(one.Group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	read, err := there(ctx, client, time.Now().Add(time.Duration(one.Millis)*time.Millisecond))
	if err != nil {
		return err
	}
	stranger, err := one.Wrong.client(servers)
	if err != nil {
		return err
	}
	defer stranger.Close()
	_, ofGroup := kadm.NewClient(client).FetchOffsets(ctx, one.Closed)
	show(map[string]any{
		"read":  read,
		"topic": nameOf(client.ProduceSync(ctx, &kgo.Record{Topic: one.Closed, Value: []byte("x")}).FirstErr()),
		"group": nameOf(ofGroup),
		"wrong": nameOf(stranger.Ping(ctx)),
	})
	return nil
}

// there sends a record, reads it, and repeats until the given time, then commits; it returns the read values.
func there(ctx context.Context, client *kgo.Client, until time.Time) ([]string, error) {
	read := []string{}
	for sent := 0; sent == 0 || time.Now().Before(until); sent++ {
		if err := client.ProduceSync(ctx, kgo.StringRecord(strconv.Itoa(sent))).FirstErr(); err != nil {
			return nil, err
		}
		for len(read) <= sent {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				return nil, err
			}
			fetches.EachRecord(func(record *kgo.Record) { read = append(read, string(record.Value)) })
		}
		time.Sleep(pause)
	}
	return read, client.CommitUncommittedOffsets(ctx)
}

func (one login) client(servers []string, more ...kgo.Opt) (*kgo.Client, error) {
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	authority, err := os.ReadFile(one.Authority)
	if err != nil {
		return nil, err
	}
	if !config.RootCAs.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s has no certificate", one.Authority)
	}
	if one.Certificate != "" {
		certificate, err := tls.LoadX509KeyPair(one.Certificate, one.Certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	options := append(more, kgo.SeedBrokers(servers...), kgo.DialTLSConfig(config))
	if one.Mechanism != "" {
		options = append(options, kgo.SASL(one.mechanism()))
	}
	return kgo.NewClient(options...)
}

func (one login) mechanism() sasl.Mechanism {
	byPassword := scram.Auth{User: one.Name, Pass: one.Secret, IsToken: one.ByToken}
	switch one.Mechanism {
	case "PLAIN":
		return plain.Auth{User: one.Name, Pass: one.Secret}.AsMechanism()
	case "SCRAM-SHA-256":
		return byPassword.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return byPassword.AsSha512Mechanism()
	default:
		return oauth.Auth{Token: one.Secret}.AsMechanism()
	}
}

// nameOf returns the name of a Kafka error, or the message of any other error.
func nameOf(err error) string {
	var ofKafka *kerr.Error
	if errors.As(err, &ofKafka) {
		return ofKafka.Message
	}
	return fmt.Sprint(err)
}
