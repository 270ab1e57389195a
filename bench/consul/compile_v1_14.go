//go:build !v1_10

package main

import (
	"github.com/hashicorp/consul/agent/configentry"
	"github.com/hashicorp/consul/agent/consul/discoverychain"
	"github.com/hashicorp/consul/agent/structs"
)

func compile(asked wanted, set *configentry.DiscoveryChainSet) (*structs.CompiledDiscoveryChain, error) {
	return discoverychain.Compile(discoverychain.CompileRequest{
		ServiceName:            asked.Service,
		EvaluateInNamespace:    "default",
		EvaluateInPartition:    "default",
		EvaluateInDatacenter:   asked.Datacenter,
		EvaluateInTrustDomain:  asked.TrustDomain,
		OverrideProtocol:       asked.Protocol,
		OverrideConnectTimeout: asked.ConnectTimeout,
		OverrideMeshGateway:    structs.MeshGatewayConfig{Mode: asked.MeshGatewayMode},
		Entries:                set,
	})
}
