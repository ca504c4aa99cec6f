// Go clients against a broker: each command writes one JSON value per line to standard output, and errors to standard
// error. Continuous commands run until standard input is closed.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// message is the JSON form of a record; nil is Kafka's null.
type message struct {
	Partition int32             `json:"partition"`
	Offset    int64             `json:"offset"`
	Key       *string           `json:"key"`
	Value     *string           `json:"value"`
	Headers   map[string]string `json:"headers"`
}

var commands = map[string]func(ctx context.Context, servers []string, arguments []string) error{
	"franz-send":         franzSend,
	"franz-produce":      franzProduce,
	"franz-consume":      franzConsume,
	"franz-admin":        franzAdmin,
	"franz-transactions": franzTransactions,
	"franz-secured":      franzSecured,
	"segmentio-send":     segmentioSend,
	"segmentio-produce":  segmentioProduce,
	"segmentio-consume":  segmentioConsume,
}

func main() {
	if len(os.Args) < 3 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: compat COMMAND HOST:PORT,... ARGUMENT...")
		os.Exit(2)
	}
	err := commands[os.Args[1]](context.Background(), strings.Split(os.Args[2], ","), os.Args[3:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

var printing sync.Mutex

// show prints one value as a line.
func show(value any) {
	line, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// untilInputEnds is cancelled when standard input is closed.
func untilInputEnds(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

// readMessages parses a message from each line of standard input.
func readMessages() ([]message, error) {
	var found []message
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var one message
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, lines.Err()
}

func text(data []byte) *string {
	if data == nil {
		return nil
	}
	value := string(data)
	return &value
}

func data(value *string) []byte {
	if value == nil {
		return nil
	}
	return []byte(*value)
}
