package main

import (
	"context"
	"strconv"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
)

const group = "default"

// oneGroup puts all nodes into one: a snapshot is set once for the whole fleet.
type oneGroup struct{}

func (oneGroup) ID(*core.Node) string { return group }

type snapshotHolder struct {
	cache cache.SnapshotCache
	last  *cache.Snapshot
}

func newSnapshotHolder(ads bool) *snapshotHolder {
	return &snapshotHolder{cache: cache.NewSnapshotCache(ads, oneGroup{}, nil)}
}

func (h *snapshotHolder) served() cache.Cache { return h.cache }

// set gives each type a version of its own: clients whose type has not changed are sent nothing.
func (h *snapshotHolder) set(now *content, change change) (string, error) {
	version := strconv.Itoa(change.Edition)
	next := &cache.Snapshot{}
	if h.last != nil && !now.whole {
		next.Resources = h.last.Resources
	}
	if now.whole || change.Assignments == 0 {
		next.Resources[types.Cluster] = cache.NewResources(version, now.clusters)
	}
	if now.whole || change.Assignments > 0 {
		next.Resources[types.Endpoint] = cache.NewResources(version, now.assignments)
	}
	h.last = next
	return version, h.cache.SetSnapshot(context.Background(), group, next)
}

// linearHolder has a cache per type. Their versions are counters of their own, from 1 on.
type linearHolder struct {
	clusters, assignments *cache.LinearCache
	clustersSet           int
	assignmentsSet        int
}

func newLinearHolder() *linearHolder {
	return &linearHolder{
		clusters:    cache.NewLinearCache(resource.ClusterType),
		assignments: cache.NewLinearCache(resource.EndpointType),
	}
}

func (h *linearHolder) served() cache.Cache {
	return &cache.MuxCache{
		Classify:      func(request *cache.Request) string { return request.GetTypeUrl() },
		ClassifyDelta: func(request *cache.DeltaRequest) string { return request.GetTypeUrl() },
		Caches: map[string]cache.Cache{
			resource.ClusterType:  h.clusters,
			resource.EndpointType: h.assignments,
		},
	}
}

func (h *linearHolder) set(now *content, change change) (string, error) {
	if now.whole {
		return h.setAll(now), nil
	}
	if change.Assignments > 0 {
		h.assignmentsSet++
		return strconv.Itoa(h.assignmentsSet), h.assignments.UpdateResource(name(0), now.assignments[0])
	}
	h.clustersSet++
	return strconv.Itoa(h.clustersSet), h.clusters.UpdateResource(name(0), now.clusters[0])
}

// setAll tells of clusters before their assignments.
func (h *linearHolder) setAll(now *content) string {
	h.clustersSet++
	h.clusters.SetResources(byName(now.clusters))
	if len(now.assignments) == 0 && h.assignments.NumResources() == 0 {
		return strconv.Itoa(h.clustersSet)
	}
	h.assignmentsSet++
	h.assignments.SetResources(byName(now.assignments))
	if len(now.assignments) == 0 {
		return strconv.Itoa(h.clustersSet)
	}
	return strconv.Itoa(h.assignmentsSet)
}

func byName(resources []types.Resource) map[string]types.Resource {
	return cache.IndexRawResourcesByName(resources)
}
