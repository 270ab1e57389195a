package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	_ "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// namedResource is a resource as it comes and goes: its body is serialized, base64 in JSON.
type namedResource struct {
	Type string `json:"type"`
	Name string `json:"name"`
	Body []byte `json:"body,omitempty"`
}

// preparation is what the next set changes. It is parsed apart, so that the set itself is all that a server has to do
// whose resources are at hand as messages.
type preparation struct {
	Put    []namedResource `json:"put"`
	Delete []namedResource `json:"delete"`
}

// resources are those of any types that were pushed one by one, by type URL and name.
type resources struct {
	held    map[string]map[string]types.Resource
	changed map[string]bool
	sets    int
}

func newResources() *resources {
	return &resources{held: map[string]map[string]types.Resource{}, changed: map[string]bool{}}
}

// prepare takes what the next set changes, and returns the bodies under which the resources will be served.
func (r *resources) prepare(wanted preparation) ([][]byte, error) {
	served := make([][]byte, 0, len(wanted.Put))
	for _, one := range wanted.Put {
		message, err := (&anypb.Any{TypeUrl: one.Type, Value: one.Body}).UnmarshalNew()
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", one.Type, one.Name, err)
		}
		body, err := proto.MarshalOptions{Deterministic: true}.Marshal(message)
		if err != nil {
			return nil, err
		}
		served = append(served, body)
		if r.held[one.Type] == nil {
			r.held[one.Type] = map[string]types.Resource{}
		}
		r.held[one.Type][one.Name] = message
		r.changed[one.Type] = true
	}
	for _, one := range wanted.Delete {
		delete(r.held[one.Type], one.Name)
		r.changed[one.Type] = true
	}
	return served, nil
}

// setPrepared makes what was prepared the newest snapshot. Types that have not changed keep their version.
func (h *snapshotHolder) setPrepared(now *resources) (string, error) {
	now.sets++
	version := strconv.Itoa(now.sets)
	next := &cache.Snapshot{}
	if h.last != nil {
		next.Resources = h.last.Resources
	}
	for url := range now.changed {
		kind := cache.GetResponseType(url)
		if kind == types.UnknownType {
			return "", fmt.Errorf("no type for the snapshot cache: %s", url)
		}
		items := make([]types.Resource, 0, len(now.held[url]))
		for _, item := range now.held[url] {
			items = append(items, item)
		}
		next.Resources[kind] = cache.NewResources(version, items)
	}
	clear(now.changed)
	h.last = next
	return version, h.cache.SetSnapshot(context.Background(), group, next)
}

func (h *linearHolder) setPrepared(*resources) (string, error) {
	return "", errors.New("the linear cache takes no prepared resources")
}
