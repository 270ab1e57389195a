package main

import (
	"fmt"
	"time"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	all = "all"
	one = "one"

	hosts = 3
	port  = 80
)

// change is one push: how many resources there are from now on, and which of them are others than before.
type change struct {
	Clusters    int    `json:"clusters"`
	Assignments int    `json:"assignments"`
	Changed     string `json:"changed"`
	Edition     int    `json:"edition"`
}

// content is all that is served. A resource is never changed, only replaced: caches keep what they were given.
type content struct {
	clusters    []types.Resource
	assignments []types.Resource
	// whole: the last change replaced everything.
	whole bool
}

// apply makes the content that of the change. Another number of resources than before replaces them all.
func (c *content) apply(wanted change) error {
	if wanted.Changed != all && wanted.Changed != one {
		return fmt.Errorf("changed is %q, neither all nor one", wanted.Changed)
	}
	if wanted.Clusters < 1 || wanted.Assignments < 0 || wanted.Assignments > wanted.Clusters {
		return fmt.Errorf("%d clusters and %d assignments", wanted.Clusters, wanted.Assignments)
	}
	reshaped := len(c.clusters) != wanted.Clusters || len(c.assignments) != wanted.Assignments
	c.whole = reshaped || wanted.Changed == all
	if wanted.Changed == all {
		c.fill(wanted, wanted.Edition)
		return nil
	}
	if reshaped {
		c.fill(wanted, 0)
	}
	if wanted.Assignments > 0 {
		c.assignments[0] = newAssignment(0, wanted.Edition)
	} else {
		c.clusters[0] = newCluster(0, wanted.Edition, false)
	}
	return nil
}

func (c *content) fill(wanted change, edition int) {
	c.clusters = make([]types.Resource, wanted.Clusters)
	for index := range c.clusters {
		c.clusters[index] = newCluster(index, edition, wanted.Assignments > 0)
	}
	c.assignments = make([]types.Resource, wanted.Assignments)
	for index := range c.assignments {
		c.assignments[index] = newAssignment(index, edition)
	}
}

func name(index int) string {
	return fmt.Sprintf("cluster-%d", index)
}

// newCluster has a connect timeout that tells its edition.
func newCluster(index, edition int, assigned bool) *cluster.Cluster {
	made := &cluster.Cluster{
		Name:                 name(index),
		ConnectTimeout:       durationpb.New(time.Duration(1+edition) * time.Second),
		ClusterDiscoveryType: &cluster.Cluster_Type{Type: cluster.Cluster_STATIC},
	}
	if assigned {
		made.ClusterDiscoveryType = &cluster.Cluster_Type{Type: cluster.Cluster_EDS}
		made.EdsClusterConfig = &cluster.Cluster_EdsClusterConfig{EdsConfig: &core.ConfigSource{
			ResourceApiVersion:    core.ApiVersion_V3,
			ConfigSourceSpecifier: &core.ConfigSource_Ads{Ads: &core.AggregatedConfigSource{}},
		}}
	}
	return made
}

// newAssignment has three endpoints whose weight tells the edition.
func newAssignment(index, edition int) *endpoint.ClusterLoadAssignment {
	endpoints := make([]*endpoint.LbEndpoint, hosts)
	for host := range endpoints {
		endpoints[host] = newEndpoint(fmt.Sprintf("10.0.%d.%d", index%250, host+1), edition)
	}
	return &endpoint.ClusterLoadAssignment{
		ClusterName: name(index),
		Endpoints:   []*endpoint.LocalityLbEndpoints{{LbEndpoints: endpoints}},
	}
}

func newEndpoint(address string, edition int) *endpoint.LbEndpoint {
	socket := &core.SocketAddress{
		Address:       address,
		PortSpecifier: &core.SocketAddress_PortValue{PortValue: port},
	}
	return &endpoint.LbEndpoint{
		HostIdentifier: &endpoint.LbEndpoint_Endpoint{Endpoint: &endpoint.Endpoint{
			Address: &core.Address{Address: &core.Address_SocketAddress{SocketAddress: socket}},
		}},
		LoadBalancingWeight: wrapperspb.UInt32(uint32(edition + 1)),
	}
}
