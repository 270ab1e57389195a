// Consul's Go client against a server: the address, and `config-entries` or `services`. One line of JSON says what each
// call returned.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/hashicorp/consul/api"
)

type line struct {
	Step  string
	Value interface{} `json:",omitempty"`
	Error string      `json:",omitempty"`
}

var out = json.NewEncoder(os.Stdout)

func say(step string, value interface{}, err error) {
	told := line{Step: step, Value: value}
	if err != nil {
		told.Error = err.Error()
	}
	if err := out.Encode(told); err != nil {
		os.Exit(1)
	}
}

var calls = map[string]func(*api.Client){"config-entries": callConfigEntries, "services": callServices}

func main() {
	if len(os.Args) != 3 || calls[os.Args[2]] == nil {
		fmt.Fprintln(os.Stderr, "usage: consul-client ADDRESS config-entries|services")
		os.Exit(2)
	}
	client, err := api.NewClient(&api.Config{Address: os.Args[1], Token: os.Getenv("CONSUL_HTTP_TOKEN")})
	if err != nil {
		say("client", nil, err)
		os.Exit(1)
	}
	calls[os.Args[2]](client)
}
