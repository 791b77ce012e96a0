// A driver for the Go module github.com/semihbkgr/go-rsmq: one JSON object per line in, one per
// line out.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/go-redis/redis"
	"github.com/semihbkgr/go-rsmq"
)

type object = map[string]any

type request struct {
	ID   int
	Verb string
	Ns   string
	Args struct {
		Qname, ID, Message string
		Vt, Delay, Maxsize *int
	}
}

var codes = map[error]string{
	rsmq.ErrQueueNotFound:  "queueNotFound",
	rsmq.ErrQueueExists:    "queueExists",
	rsmq.ErrMessageTooLong: "messageTooLong",
	rsmq.ErrInvalidQname:   "invalidFormat",
	rsmq.ErrInvalidID:      "invalidFormat",
	rsmq.ErrInvalidVt:      "invalidValue",
	rsmq.ErrInvalidDelay:   "invalidValue",
	rsmq.ErrInvalidMaxsize: "invalidValue",
}

// What the type of an argument cannot hold is refused by the compiler of its user.
var errNegative = errors.New("does not fit into uint")

func unsigned(given *int, unset uint) uint {
	if given == nil {
		return unset
	}
	if *given < 0 {
		panic(errNegative)
	}
	return uint(*given)
}

func size(given *int) int {
	if given == nil {
		return rsmq.UnsetMaxsize
	}
	return *given
}

func shown(m *rsmq.QueueMessage, err error) (any, error) {
	if err != nil || m == nil {
		return nil, err
	}
	sent := float64(m.Sent.UnixMicro()) / 1000
	return object{"id": m.ID, "message": m.Message, "rc": m.Rc, "fr": m.Fr.UnixMilli(), "sent": sent}, nil
}

func attributes(a *rsmq.QueueAttributes, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return object{
		"vt": a.Vt, "delay": a.Delay, "maxsize": a.Maxsize, "totalrecv": a.TotalRecv,
		"totalsent": a.TotalSent, "created": a.Created, "modified": a.Modified, "msgs": a.Msgs,
		"hiddenmsgs": a.HiddenMsgs,
	}, nil
}

// A message that is not there is an error of this module, and false in the protocol of the kit.
func found(err error) (any, error) {
	if errors.Is(err, rsmq.ErrMessageNotFound) {
		return false, nil
	}
	return err == nil, err
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/semihbkgr/go-rsmq" {
			return module.Version[1:]
		}
	}
	return ""
}

// One client of the module for each namespace, as its users have.
var clients = map[string]*rsmq.RedisSMQ{}

func call(client *redis.Client, r request) (any, error) {
	if r.Verb == "hello" {
		return object{"name": "go-rsmq", "version": version(), "language": "Go"}, nil
	}
	if clients[r.Ns] == nil {
		clients[r.Ns] = rsmq.NewRedisSMQ(client, r.Ns)
	}
	q, a := clients[r.Ns], r.Args
	switch r.Verb {
	case "createQueue":
		return true, q.CreateQueue(a.Qname, unsigned(a.Vt, rsmq.UnsetVt), unsigned(a.Delay, rsmq.UnsetDelay), size(a.Maxsize))
	case "listQueues":
		return q.ListQueues()
	case "deleteQueue":
		return true, q.DeleteQueue(a.Qname)
	case "getQueueAttributes":
		return attributes(q.GetQueueAttributes(a.Qname))
	case "setQueueAttributes":
		return attributes(q.SetQueueAttributes(a.Qname, unsigned(a.Vt, rsmq.UnsetVt), unsigned(a.Delay, rsmq.UnsetDelay), size(a.Maxsize)))
	case "sendMessage":
		return q.SendMessage(a.Qname, a.Message, unsigned(a.Delay, rsmq.UnsetDelay))
	case "receiveMessage":
		return shown(q.ReceiveMessage(a.Qname, unsigned(a.Vt, rsmq.UnsetVt)))
	case "popMessage":
		return shown(q.PopMessage(a.Qname))
	case "deleteMessage":
		return found(q.DeleteMessage(a.Qname, a.ID))
	case "changeMessageVisibility":
		return found(q.ChangeMessageVisibility(a.Qname, a.ID, unsigned(a.Vt, rsmq.UnsetVt)))
	}
	return nil, fmt.Errorf("no verb %s", r.Verb)
}

func answer(client *redis.Client, r request) (reply object) {
	defer func() {
		// Only the adapter's own; a panic of the module ends the program, as it ends its users'.
		if recover := recover(); recover == errNegative {
			reply = object{"id": r.ID, "error": "invalidValue", "message": errNegative.Error()}
		} else if recover != nil {
			panic(recover)
		}
	}()
	result, err := call(client, r)
	if err == nil {
		return object{"id": r.ID, "ok": result}
	}
	code := codes[err]
	if code == "" {
		code = "error"
	}
	return object{"id": r.ID, "error": code, "message": err.Error()}
}

func main() {
	options, err := redis.ParseURL(os.Getenv("RSMQ_CONFORMANCE_URL"))
	if err != nil {
		panic(err)
	}
	client := redis.NewClient(options)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			panic(err)
		}
		line, _ := json.Marshal(answer(client, r))
		fmt.Printf("%s\n", line)
	}
}
