// A client of the Linkerd API with Linkerd's own Go bindings. It reads calls from standard input, one a line as JSON, and
// writes each message as JSON: the number of the call, its bytes as they are serialized again, and its content.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/net"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// A call: method is get, profile, outbound or inbound.
type call struct {
	Id     int    `json:"id"`
	Method string `json:"method"`
	Path   string `json:"path"`
	Token  string `json:"token"`
	Ipv4   uint32 `json:"ipv4"`
	Port   uint32 `json:"port"`
}

type message struct {
	Id      int             `json:"id"`
	Bytes   string          `json:"bytes,omitempty"`
	Unknown int             `json:"unknown"`
	Content json.RawMessage `json:"content,omitempty"`
	Code    string          `json:"code,omitempty"`
}

var mutex sync.Mutex

func write(found message) {
	line, err := json.Marshal(found)
	if err != nil {
		log.Fatal(err)
	}
	mutex.Lock()
	defer mutex.Unlock()
	fmt.Println(string(line))
}

func told(id int, found proto.Message) {
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(found)
	if err != nil {
		log.Fatal(err)
	}
	content, err := protojson.Marshal(found)
	if err != nil {
		log.Fatal(err)
	}
	write(message{Id: id, Bytes: hex.EncodeToString(body), Unknown: len(found.ProtoReflect().GetUnknown()), Content: content})
}

// Read a stream to its end.
func follow[M proto.Message](id int, open func() (func() (M, error), error)) {
	next, err := open()
	for err == nil {
		var found M
		if found, err = next(); err == nil {
			told(id, found)
		}
	}
	write(message{Id: id, Code: status.Code(err).String()})
}

func run(connection *grpc.ClientConn, asked call) {
	ctx := context.Background()
	request := &destination.GetDestination{Path: asked.Path, ContextToken: asked.Token}
	switch asked.Method {
	case "get":
		follow(asked.Id, func() (func() (*destination.Update, error), error) {
			stream, err := destination.NewDestinationClient(connection).Get(ctx, request)
			return stream.Recv, err
		})
	case "profile":
		follow(asked.Id, func() (func() (*destination.DestinationProfile, error), error) {
			stream, err := destination.NewDestinationClient(connection).GetProfile(ctx, request)
			return stream.Recv, err
		})
	case "outbound":
		address := &net.TcpAddress{Ip: &net.IPAddress{Ip: &net.IPAddress_Ipv4{Ipv4: asked.Ipv4}}, Port: asked.Port}
		spec := &outbound.TrafficSpec{SourceWorkload: asked.Token, Target: &outbound.TrafficSpec_Addr{Addr: address}}
		follow(asked.Id, func() (func() (*outbound.OutboundPolicy, error), error) {
			stream, err := outbound.NewOutboundPoliciesClient(connection).Watch(ctx, spec)
			return stream.Recv, err
		})
	case "inbound":
		spec := &inbound.PortSpec{Workload: asked.Token, Port: asked.Port}
		follow(asked.Id, func() (func() (*inbound.Server, error), error) {
			stream, err := inbound.NewInboundServerPoliciesClient(connection).WatchPort(ctx, spec)
			return stream.Recv, err
		})
	default:
		log.Fatalf("unknown method %q", asked.Method)
	}
}

func main() {
	connection, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var asked call
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			log.Fatal(err)
		}
		go run(connection, asked)
	}
}
