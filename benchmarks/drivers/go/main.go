// rmq in Go, by the line protocol of talk.py: see there.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/adjust/rmq/v5"
	"github.com/redis/go-redis/v9"
)

const (
	module = "github.com/adjust/rmq/v5"
	// Latencies that a run reports at most, and payloads of one call while a queue is being filled.
	samples, fill = 4000, 100
	// What its consumers take ahead, and how often they look; as in the examples of rmq.
	prefetch, poll = 1000, 10 * time.Millisecond
)

type job struct {
	Kind     string `json:"kind"`
	Messages int    `json:"messages"`
	Tasks    int    `json:"tasks"`
	Batch    int    `json:"batch"`
	Size     int    `json:"size"`
}

type request struct {
	Prepare *job `json:"prepare"`
	Run     *job `json:"run"`
}

type peer struct {
	connection rmq.Connection
	queue      rmq.Queue
	turns      int
}

func say(what any) {
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}

// spread makes calls by several goroutines, each one after the other, and returns their times.
func spread(calls int, tasks int, call func() error) ([]float64, error) {
	var left atomic.Int64
	left.Store(int64(calls))
	tasks = min(tasks, calls)
	times := make([][]float64, tasks)
	failures := make([]error, tasks)
	var all sync.WaitGroup
	for task := 0; task < tasks; task++ {
		all.Add(1)
		go func(task int) {
			defer all.Done()
			for left.Add(-1) >= 0 && failures[task] == nil {
				began := time.Now()
				failures[task] = call()
				times[task] = append(times[task], time.Since(began).Seconds())
			}
		}(task)
	}
	all.Wait()
	var joined []float64
	for task := range times {
		if failures[task] != nil {
			return nil, failures[task]
		}
		joined = append(joined, times[task]...)
	}
	return joined, nil
}

func (p *peer) prepare(j *job) error {
	p.turns++
	var err error
	// A queue that has stopped consuming cannot begin again.
	if p.queue, err = p.connection.OpenQueue(fmt.Sprintf("bench%d", p.turns)); err != nil {
		return err
	}
	if j.Kind != "work" {
		return nil
	}
	body := strings.Repeat("x", j.Size)
	for left := j.Messages; left > 0; left -= fill {
		batch := make([]string, min(left, fill))
		for i := range batch {
			batch[i] = body
		}
		if err := p.queue.Publish(batch...); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) run(j *job) ([]float64, error) {
	body := strings.Repeat("x", j.Size)
	switch j.Kind {
	case "send":
		return spread(j.Messages, j.Tasks, func() error { return p.queue.Publish(body) })
	case "send_many":
		batch := make([]string, j.Batch)
		for i := range batch {
			batch[i] = body
		}
		call := func() error { return p.queue.Publish(batch...) }
		return spread(j.Messages/j.Batch, j.Tasks, call)
	case "work":
		return nil, p.work(j)
	}
	return nil, fmt.Errorf("unknown kind %q", j.Kind)
}

// work lets as many consumers as the job has tasks take and acknowledge all messages.
func (p *peer) work(j *job) error {
	var left atomic.Int64
	left.Store(int64(j.Messages))
	failures, done := make(chan error, j.Tasks+1), make(chan struct{})
	if err := p.queue.StartConsuming(prefetch, poll); err != nil {
		return err
	}
	consume := func(delivery rmq.Delivery) {
		if err := delivery.Ack(); err != nil {
			select {
			case failures <- err:
			default:
			}
		} else if left.Add(-1) == 0 {
			close(done)
		}
	}
	for i := 0; i < j.Tasks; i++ {
		if _, err := p.queue.AddConsumerFunc("bench", consume); err != nil {
			return err
		}
	}
	select {
	case <-done:
		return nil
	case err := <-failures:
		return err
	}
}

func busy() float64 {
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func (p *peer) answer(r *request) (any, error) {
	if r.Prepare != nil {
		err := p.prepare(r.Prepare)
		runtime.GC()
		return map[string]bool{"ok": true}, err
	}
	spent, began := busy(), time.Now()
	times, err := p.run(r.Run)
	seconds, spent := time.Since(began).Seconds(), busy()-spent
	if r.Run.Kind == "work" {
		<-p.queue.StopConsuming()
	}
	step := len(times)/samples + 1
	thinned := []float64{}
	for at := 0; at < len(times); at += step {
		thinned = append(thinned, times[at])
	}
	return map[string]any{
		"messages": r.Run.Messages, "seconds": seconds, "cpu": spent, "times": thinned,
	}, err
}

func versions() map[string]string {
	found := map[string]string{"Go": strings.TrimPrefix(runtime.Version(), "go")}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				found["adjust/rmq"] = strings.TrimPrefix(dependency.Version, "v")
			}
		}
	}
	return found
}

func main() {
	place, err := url.Parse(os.Args[1])
	if err == nil {
		client := redis.NewClient(&redis.Options{Addr: place.Host})
		var connection rmq.Connection
		connection, err = rmq.OpenConnectionWithRedisClient("bench", client, nil)
		if err == nil {
			say(map[string]any{"ready": versions()})
			serve(&peer{connection: connection})
			return
		}
	}
	fmt.Fprintln(os.Stderr, "Error:", err)
	os.Exit(1)
}

func serve(p *peer) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked request
		err := json.Unmarshal(lines.Bytes(), &asked)
		var answer any
		if err == nil {
			answer, err = p.answer(&asked)
		}
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		say(answer)
	}
}
