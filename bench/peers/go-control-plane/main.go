// The server that a careful user builds over go-control-plane: ADS, in both variants, over one of its two caches.
//
// It is told what to serve on standard input, one JSON object a line, and answers each on standard output when the
// cache has it:
//
//	{"push": {"clusters": 10, "assignments": 0, "changed": "all", "edition": 3}}  ->  {"pushed": "3"}
//
// Or, to the snapshot cache alone, any resources in two steps, of which only the second is the cache's work:
//
//	{"prepare": {"put": [{"type": "type.googleapis.com/...", "name": "a", "body": "<base64>"}], "delete": []}}
//	  ->  {"bodies": ["<base64, as it will be served>"]}
//	{"set": true}  ->  {"pushed": "4"}
//
// The first line that it writes, {"ready": true}, says that it listens. It ends with its standard input.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"os"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/config"
	"github.com/envoyproxy/go-control-plane/pkg/server/sotw/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

type options struct {
	port             int
	cache            string
	ads              bool
	ordered          bool
	certificate, key string
}

// holder is one of go-control-plane's caches, and how content gets into it.
type holder interface {
	served() cache.Cache
	// set makes content the newest and returns the version that clients are told of what has changed.
	set(content *content, change change) (string, error)
	// setPrepared makes resources of any types the newest.
	setPrepared(resources *resources) (string, error)
}

func main() {
	chosen := readFlags()
	if err := run(chosen, os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func readFlags() options {
	var chosen options
	flag.IntVar(&chosen.port, "port", 0, "TCP port on the loopback address")
	flag.StringVar(&chosen.cache, "cache", "snapshot", "snapshot or linear")
	flag.BoolVar(&chosen.ads, "ads", true, "snapshot cache in ADS mode: a request by name must give all names")
	flag.BoolVar(&chosen.ordered, "ordered", false, "answer SotW requests of one stream in the order of their types")
	flag.StringVar(&chosen.certificate, "tls-cert", "", "PEM file; turns TLS on")
	flag.StringVar(&chosen.key, "tls-key", "", "PEM file")
	flag.Parse()
	return chosen
}

func run(chosen options, commands io.Reader, answers io.Writer) error {
	held, err := newHolder(chosen)
	if err != nil {
		return err
	}
	grpcServer, err := newServer(chosen, held.served())
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", chosen.port))
	if err != nil {
		return err
	}
	ended := make(chan error, 2)
	go func() { ended <- grpcServer.Serve(listener) }()
	go func() { ended <- obey(held, commands, json.NewEncoder(answers)) }()
	err = <-ended
	grpcServer.Stop()
	return err
}

func newHolder(chosen options) (holder, error) {
	switch chosen.cache {
	case "snapshot":
		return newSnapshotHolder(chosen.ads), nil
	case "linear":
		return newLinearHolder(), nil
	}
	return nil, fmt.Errorf("no such cache: %q", chosen.cache)
}

// newServer has gRPC's defaults but for one: a limit on streams would bound the fleet behind one connection.
// sotw.WithOrderedADS and grpc.SharedWriteBuffer were tried: neither CPU nor memory differed beyond the noise.
func newServer(chosen options, served cache.Cache) (*grpc.Server, error) {
	settings := []grpc.ServerOption{grpc.MaxConcurrentStreams(math.MaxUint32)}
	if chosen.certificate != "" {
		secured, err := credentials.NewServerTLSFromFile(chosen.certificate, chosen.key)
		if err != nil {
			return nil, err
		}
		settings = append(settings, grpc.Creds(secured))
	}
	grpcServer := grpc.NewServer(settings...)
	var further []config.XDSOption
	if chosen.ordered {
		further = append(further, sotw.WithOrderedADS())
	}
	xds := server.NewServer(context.Background(), served, nil, further...)
	discovery.RegisterAggregatedDiscoveryServiceServer(grpcServer, xds)
	return grpcServer, nil
}

type command struct {
	Push    *change      `json:"push"`
	Prepare *preparation `json:"prepare"`
	Set     bool         `json:"set"`
}

// obey carries out commands until there are no more.
func obey(held holder, commands io.Reader, answers *json.Encoder) error {
	if err := answers.Encode(map[string]bool{"ready": true}); err != nil {
		return err
	}
	lines := json.NewDecoder(bufio.NewReader(commands))
	now, prepared := &content{}, newResources()
	for {
		var next command
		if err := lines.Decode(&next); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		answer, err := carryOut(next, held, now, prepared)
		if err != nil {
			return err
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
}

// carryOut does what one command says, and returns its answer.
func carryOut(next command, held holder, now *content, prepared *resources) (any, error) {
	switch {
	case next.Push != nil:
		if err := now.apply(*next.Push); err != nil {
			return nil, err
		}
		version, err := held.set(now, *next.Push)
		return map[string]string{"pushed": version}, err
	case next.Prepare != nil:
		bodies, err := prepared.prepare(*next.Prepare)
		return map[string][][]byte{"bodies": bodies}, err
	case next.Set:
		version, err := held.setPrepared(prepared)
		return map[string]string{"pushed": version}, err
	}
	return nil, errors.New("the command does not push, prepare or set anything")
}
