package main

import (
	"sort"
	"time"

	"github.com/hashicorp/consul/api"
)

// Registers instances by itself and for others, tells the status of checks, reads them back, and waits for a change.
func callServices(client *api.Client) {
	probe(client)
	registerInstances(client)
	tellStatus(client)
	useCatalog(client)
	waitForInstance(client)
	removeInstances(client)
}

func probe(client *api.Client) {
	self, err := client.Agent().Self()
	say("self", []interface{}{self["Config"]["Datacenter"], self["Config"]["Server"], self["Member"]["Status"]}, err)
	name, err := client.Agent().NodeName()
	say("name of the node", name, err)
	leader, err := client.Status().Leader()
	say("leader", leader != "", err)
	peers, err := client.Status().Peers()
	say("peers", len(peers) == 1 && peers[0] == leader, err)
}

func registerInstances(client *api.Client) {
	agent := client.Agent()
	web := &api.AgentServiceRegistration{
		ID: "web-1", Name: "web", Tags: []string{"v1"}, Address: "10.0.0.1", Port: 8080,
		Meta:    map[string]string{"version": "1"},
		Weights: &api.AgentWeights{Passing: 10, Warning: 1},
		Check:   &api.AgentServiceCheck{TTL: "5m", DeregisterCriticalServiceAfter: "90m"},
	}
	say("register", nil, agent.ServiceRegister(web))
	web.Port = 8081
	options := api.ServiceRegisterOpts{ReplaceExistingChecks: true}
	say("register again", nil, agent.ServiceRegisterOpts(web, options))
	second := &api.AgentServiceRegistration{ID: "web-2", Name: "web", Address: "10.0.0.2", Port: 8080}
	say("register another", nil, agent.ServiceRegister(second))
	second.Check = &api.AgentServiceCheck{HTTP: "http://10.0.0.2:8080/", Interval: "10s"}
	say("register an HTTP check", nil, agent.ServiceRegister(second))
	check := &api.AgentCheckRegistration{
		ID: "web-2-disk", Name: "disk", ServiceID: "web-2",
		AgentServiceCheck: api.AgentServiceCheck{TTL: "5m", Status: api.HealthPassing},
	}
	say("register a check", nil, agent.CheckRegister(check))
	services, err := agent.Services()
	var ids []string
	for id := range services {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	say("services of the agent", ids, err)
	one, _, err := agent.Service("web-1", nil)
	say("service of the agent", one.Port, err)
}

func tellStatus(client *api.Client) {
	agent := client.Agent()
	say("pass", nil, agent.PassTTL("service:web-1", "well"))
	say("warn", nil, agent.WarnTTL("service:web-1", "hot"))
	say("fail", nil, agent.FailTTL("service:web-1", "broken"))
	checks, err := agent.Checks()
	say("checks of the agent", []string{checks["service:web-1"].Status, checks["service:web-1"].Output}, err)
	say("update", nil, agent.UpdateTTL("service:web-1", "fine", api.HealthPassing))
	say("update an absent check", nil, agent.UpdateTTL("absent", "", api.HealthPassing))
	say("maintenance", nil, agent.EnableServiceMaintenance("web-2", "new disk"))
	passing, _, err := client.Health().Service("web", "", true, nil)
	say("passing", len(passing), err)
	all, _, err := client.Health().ServiceMultipleTags("web", []string{"v1"}, false, nil)
	say("with a tag", len(all), err)
	mesh, _, err := client.Health().Connect("web", "", true, nil)
	say("passing of the mesh", len(mesh), err)
	say("status", all[0].Checks.AggregatedStatus(), nil)
	say("weight", all[0].Service.Weights.Passing, nil)
	found, _, err := client.Health().Checks("web", nil)
	say("checks", len(found), err)
	say("end of maintenance", nil, agent.DisableServiceMaintenance("web-2"))
	say("remove a check", nil, agent.CheckDeregister("web-2-disk"))
}

func useCatalog(client *api.Client) {
	catalog := client.Catalog()
	db := &api.CatalogRegistration{
		Node: "db-host", Address: "10.9.0.1", NodeMeta: map[string]string{"rack": "r1"},
		Service: &api.AgentService{ID: "db1", Service: "db", Port: 5432},
		Checks: api.HealthChecks{
			{Node: "db-host", CheckID: "alive", Name: "alive", Status: api.HealthPassing, ServiceID: "db1"},
		},
	}
	_, err := catalog.Register(db, nil)
	say("register in the catalog", nil, err)
	services, _, err := catalog.Services(nil)
	say("services", services, err)
	nodes, _, err := catalog.Service("db", "", &api.QueryOptions{NodeMeta: map[string]string{"rack": "r1"}})
	say("instances", nodes[0].Node, err)
	mesh, _, err := catalog.Connect("db", "", nil)
	say("instances of the mesh", mesh[0].ServiceID, err)
	filtered, _, err := catalog.Service("web", "", &api.QueryOptions{Filter: `ServiceMeta.version == "1"`})
	say("filtered", len(filtered), err)
	datacenters, err := catalog.Datacenters()
	say("datacenters", datacenters, err)
	_, err = catalog.Deregister(&api.CatalogDeregistration{Node: "db-host"}, nil)
	say("deregister from the catalog", nil, err)
}

func waitForInstance(client *api.Client) {
	_, meta, err := client.Health().Service("web", "", true, nil)
	say("index", meta.LastIndex > 0, err)
	go func() {
		time.Sleep(500 * time.Millisecond)
		_ = client.Agent().FailTTL("service:web-1", "gone")
	}()
	began := time.Now()
	query := &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: time.Minute}
	passing, after, err := client.Health().Service("web", "", true, query)
	took := time.Since(began)
	say("woken", took > 400*time.Millisecond && took < 30*time.Second && after.LastIndex > meta.LastIndex, err)
	say("passing after it", len(passing), nil)
}

func removeInstances(client *api.Client) {
	agent := client.Agent()
	say("deregister", nil, agent.ServiceDeregister("web-1"))
	say("deregister again", nil, agent.ServiceDeregister("web-1"))
	say("deregister another", nil, agent.ServiceDeregister("web-2"))
	services, _, err := client.Catalog().Services(nil)
	say("nothing is left", len(services), err)
}
