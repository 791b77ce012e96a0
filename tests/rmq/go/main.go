// A program on rmq that does what it is told: one JSON object per line on stdin, one reply per line
// on stdout, and a line for every delivery. Payloads are in base64.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/adjust/rmq/v5"
	"github.com/redis/go-redis/v9"
)

type order struct {
	Verb     string      `json:"verb"`
	Queue    string      `json:"queue"`
	Payloads [][]byte    `json:"payloads"`
	Header   http.Header `json:"header"`
	Count    int64       `json:"count"`
	Size     int64       `json:"size"`
	By       int         `json:"by"`
	PollMs   int64       `json:"poll_ms"`
	WaitMs   int64       `json:"wait_ms"`
	Then     string      `json:"then"`
	Push     string      `json:"push"`
	Workers  int         `json:"workers"`
	Quiet    bool        `json:"quiet"`
	Mark     string      `json:"mark"`
}

type reply struct {
	Result any    `json:"result,omitempty"`
	Error  string `json:"error,omitempty"`
}

type delivered struct {
	Payload []byte      `json:"payload"`
	Header  http.Header `json:"header,omitempty"`
	Batch   int         `json:"batch"`
	Error   string      `json:"settled,omitempty"`
}

type program struct {
	connection rmq.Connection
	client     redis.UniversalClient
	queues     map[string]rmq.Queue
	output     sync.Mutex
}

func (p *program) say(what any) {
	line, _ := json.Marshal(what)
	p.output.Lock()
	defer p.output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

func (p *program) queue(name string) (rmq.Queue, error) {
	if queue, known := p.queues[name]; known {
		return queue, nil
	}
	queue, err := p.connection.OpenQueue(name)
	if err == nil {
		p.queues[name] = queue
	}
	return queue, err
}

func settle(delivery rmq.Delivery, then string) error {
	switch then {
	case "ack":
		return delivery.Ack()
	case "reject":
		return delivery.Reject()
	case "push":
		return delivery.Push()
	}
	return nil
}

func (p *program) report(delivery rmq.Delivery, batch int, err error) {
	note := delivered{Payload: []byte(delivery.Payload()), Batch: batch}
	if headed, has := delivery.(rmq.WithHeader); has {
		note.Header = headed.Header()
	}
	if err != nil {
		note.Error = err.Error()
	}
	p.say(map[string]any{"delivery": note})
}

func (p *program) consume(queue rmq.Queue, o order) (any, error) {
	if o.Push != "" {
		push, err := p.queue(o.Push)
		if err != nil {
			return nil, err
		}
		queue.SetPushQueue(push)
	}
	if err := queue.StartConsuming(o.Count, time.Duration(o.PollMs)*time.Millisecond); err != nil {
		return nil, err
	}
	if o.Size > 0 {
		wait := time.Duration(o.WaitMs) * time.Millisecond
		return queue.AddBatchConsumerFunc("batch", o.Size, wait, func(batch rmq.Deliveries) {
			size := len(batch)
			for _, delivery := range batch {
				p.report(delivery, size, settle(delivery, o.Then))
			}
		})
	}
	name := ""
	for i := 0; i < max(1, o.Workers); i++ {
		var err error
		name, err = queue.AddConsumerFunc("one", func(delivery rmq.Delivery) {
			time.Sleep(time.Duration(o.WaitMs) * time.Millisecond)
			if o.Mark != "" {
				p.client.HIncrBy(context.Background(), o.Mark, delivery.Payload(), 1)
			}
			err := settle(delivery, o.Then)
			if !o.Quiet {
				p.report(delivery, 1, err)
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return name, nil
}

// benchConsume returns the seconds until count deliveries are acked.
func (p *program) benchConsume(queue rmq.Queue, o order) (any, error) {
	var seen atomic.Int64
	done := make(chan struct{})
	began := time.Now()
	if err := queue.StartConsuming(o.Size, time.Duration(o.PollMs)*time.Millisecond); err != nil {
		return nil, err
	}
	ack := func(delivery rmq.Delivery) {
		if delivery.Ack() == nil && seen.Add(1) == o.Count {
			close(done)
		}
	}
	for i := 0; i < max(1, o.Workers); i++ {
		var err error
		if o.By > 0 {
			wait := time.Duration(o.WaitMs) * time.Millisecond
			_, err = queue.AddBatchConsumerFunc("bench", int64(o.By), wait, func(batch rmq.Deliveries) {
				for _, delivery := range batch {
					ack(delivery)
				}
			})
		} else {
			_, err = queue.AddConsumerFunc("bench", ack)
		}
		if err != nil {
			return nil, err
		}
	}
	<-done
	seconds := time.Since(began).Seconds()
	<-p.connection.StopAllConsuming()
	return seconds, nil
}

// benchPublish returns the seconds until count messages are published by workers, each by messages
// a call, one call after the other.
func (p *program) benchPublish(queue rmq.Queue, o order) (any, error) {
	body := strings.Repeat("x", int(o.Size))
	batch := make([]string, max(1, o.By))
	for i := range batch {
		batch[i] = body
	}
	workers := max(1, o.Workers)
	calls := int(o.Count) / workers / len(batch)
	failures := make(chan error, workers)
	began := time.Now()
	for i := 0; i < workers; i++ {
		go func() {
			var err error
			for i := 0; i < calls && err == nil; i++ {
				err = queue.Publish(batch...)
			}
			failures <- err
		}()
	}
	for i := 0; i < workers; i++ {
		if err := <-failures; err != nil {
			return nil, err
		}
	}
	return time.Since(began).Seconds(), nil
}

func (p *program) onQueue(queue rmq.Queue, o order) (any, error) {
	switch o.Verb {
	case "open":
		return nil, nil
	case "publish":
		payloads := make([][]byte, len(o.Payloads))
		for i, payload := range o.Payloads {
			payloads[i] = rmq.PayloadBytesWithHeader(payload, o.Header)
		}
		return nil, queue.PublishBytes(payloads...)
	case "consume":
		return p.consume(queue, o)
	case "return_rejected":
		return queue.ReturnRejected(o.Count)
	case "return_unacked":
		return queue.ReturnUnacked(o.Count)
	case "purge_ready":
		return queue.PurgeReady()
	case "purge_rejected":
		return queue.PurgeRejected()
	case "drain":
		taken, err := queue.Drain(o.Count)
		raw := make([][]byte, len(taken))
		for i, payload := range taken {
			raw[i] = []byte(payload)
		}
		return raw, err
	case "destroy":
		ready, rejected, err := queue.Destroy()
		return []int64{ready, rejected}, err
	case "bench_publish":
		return p.benchPublish(queue, o)
	case "bench_consume":
		return p.benchConsume(queue, o)
	}
	return nil, fmt.Errorf("unknown verb %q", o.Verb)
}

func (p *program) do(o order) (any, error) {
	switch o.Verb {
	case "stop":
		<-p.connection.StopAllConsuming()
		return nil, nil
	case "clean":
		return rmq.NewCleaner(p.connection).Clean()
	case "queues":
		return p.connection.GetOpenQueues()
	case "stats":
		names, err := p.connection.GetOpenQueues()
		if err != nil {
			return nil, err
		}
		stats, err := p.connection.CollectStats(names)
		if err != nil {
			return nil, err
		}
		counts := map[string][]int64{}
		for name, queue := range stats.QueueStats {
			counts[name] = []int64{
				queue.ReadyCount, queue.RejectedCount, queue.UnackedCount(), queue.ConsumerCount(),
				queue.ConnectionCount(),
			}
		}
		return map[string]any{"json": stats, "counts": counts}, nil
	}
	queue, err := p.queue(o.Queue)
	if err != nil {
		return nil, err
	}
	return p.onQueue(queue, o)
}

func open(tag string, mode string, addresses string) (*program, error) {
	p := &program{queues: map[string]rmq.Queue{}}
	var err error
	if mode == "cluster" {
		p.client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(addresses, ",")})
		p.connection, err = rmq.OpenClusterConnection(tag, p.client, nil)
	} else {
		p.client = redis.NewClient(&redis.Options{Addr: addresses})
		p.connection, err = rmq.OpenConnectionWithRedisClient(tag, p.client, nil)
	}
	return p, err
}

func main() {
	p, err := open(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		p.say(reply{Error: err.Error()})
		os.Exit(1)
	}
	p.say(reply{Result: "ready"})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			p.say(reply{Error: err.Error()})
			continue
		}
		result, err := p.do(o)
		answer := reply{Result: result}
		if err != nil {
			answer.Error = err.Error()
		}
		p.say(answer)
	}
}
