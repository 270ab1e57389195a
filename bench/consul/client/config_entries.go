package main

import (
	"time"

	"github.com/hashicorp/consul/api"
)

// Writes, reads, lists and deletes config entries, and waits for a chain to change.
func callConfigEntries(client *api.Client) {
	entries := client.ConfigEntries()
	writeEntries(entries)
	readEntries(entries)
	waitForChain(client)
	removeEntries(entries)
}

func writeEntries(entries *api.ConfigEntries) {
	written, _, err := entries.Set(&api.ProxyConfigEntry{
		Kind: api.ProxyDefaults, Name: api.ProxyConfigGlobal, Config: map[string]interface{}{"protocol": "http"},
	}, nil)
	say("set proxy-defaults", written, err)
	written, _, err = entries.Set(&api.ServiceSplitterConfigEntry{
		Kind: api.ServiceSplitter, Name: "web", Splits: []api.ServiceSplit{{Weight: 90}, {Weight: 10, Service: "api"}},
	}, nil)
	say("set splitter", written, err)
	written, _, err = entries.Set(&api.ServiceRouterConfigEntry{
		Kind: api.ServiceRouter, Name: "web", Routes: []api.ServiceRoute{{
			Match:       &api.ServiceRouteMatch{HTTP: &api.ServiceRouteHTTPMatch{PathPrefix: "/admin"}},
			Destination: &api.ServiceRouteDestination{Service: "admin", RequestTimeout: 30 * time.Second},
		}},
	}, nil)
	say("set router", written, err)
	resolver := &api.ServiceResolverConfigEntry{Kind: api.ServiceResolver, Name: "api", ConnectTimeout: 7 * time.Second}
	written, _, err = entries.CAS(resolver, 0, nil)
	say("create resolver", written, err)
	resolver.ConnectTimeout = 8 * time.Second
	written, _, err = entries.CAS(resolver, 0, nil)
	say("create resolver again", written, err)
	written, _, err = entries.Set(&api.ServiceSplitterConfigEntry{
		Kind: api.ServiceSplitter, Name: "web", Splits: []api.ServiceSplit{{Weight: 50}},
	}, nil)
	say("set wrong splitter", written, err)
	written, _, err = entries.Set(&api.MeshConfigEntry{}, nil)
	say("set mesh", written, err)
}

func readEntries(entries *api.ConfigEntries) {
	splitter, _, err := entries.Get(api.ServiceSplitter, "web", nil)
	say("get splitter", splitter, err)
	router, _, err := entries.Get(api.ServiceRouter, "web", nil)
	say("get router", router, err)
	_, _, err = entries.Get(api.ServiceSplitter, "absent", nil)
	say("get absent", nil, err)
	listed, meta, err := entries.List(api.ServiceResolver, nil)
	say("list resolvers", listed, err)
	say("leader", meta.KnownLeader && meta.LastIndex > 0, nil)
}

func waitForChain(client *api.Client) {
	chain, meta, err := client.DiscoveryChain().Get("web", nil, nil)
	if err != nil {
		say("get chain", nil, err)
		return
	}
	say("get chain", chain.Chain.StartNode, nil)
	overridden, _, err := client.DiscoveryChain().Get("web", &api.DiscoveryChainOptions{
		EvaluateInDatacenter: "dc9", OverrideConnectTimeout: 9 * time.Second,
	}, nil)
	if err == nil {
		say("get chain overridden", overridden.Chain.CustomizationHash != "" && overridden.Chain.Datacenter == "dc9", nil)
	} else {
		say("get chain overridden", nil, err)
	}
	woken := make(chan bool)
	go func() {
		after := &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: time.Minute}
		_, next, err := client.DiscoveryChain().Get("web", nil, after)
		woken <- err == nil && next.LastIndex > meta.LastIndex
	}()
	resolver := &api.ServiceResolverConfigEntry{Kind: api.ServiceResolver, Name: "api", ConnectTimeout: 9 * time.Second}
	written, _, err := client.ConfigEntries().Set(resolver, nil)
	say("set resolver", written, err)
	say("woken", <-woken, nil)
}

func removeEntries(entries *api.ConfigEntries) {
	held, _, err := entries.Get(api.ServiceResolver, "api", nil)
	say("get resolver", err == nil, err)
	deleted, _, err := entries.DeleteCAS(api.ServiceResolver, "api", 1, nil)
	say("delete an old resolver", deleted, err)
	deleted, _, err = entries.DeleteCAS(api.ServiceResolver, "api", held.GetModifyIndex(), nil)
	say("delete resolver", deleted, err)
	_, err = entries.Delete(api.ServiceRouter, "web", nil)
	say("delete router", err == nil, err)
	_, err = entries.Delete(api.ServiceRouter, "web", nil)
	say("delete router again", err == nil, err)
}
