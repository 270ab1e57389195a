// Consul's own compiler of discovery chains, asked over standard input: one question a line, one answer a line.
//
// A question holds config entries as plain values and the chains that are wanted of them. An answer says of each entry
// whether Consul takes it, and of each chain what it is or why there is none.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/consul/agent/configentry"
	"github.com/hashicorp/consul/agent/structs"
)

const lineLimit = 64 << 20

type question struct {
	Entries []map[string]interface{}
	// Use are the positions of the entries that the chains are made of.
	Use    []int
	Chains []wanted
}

type wanted struct {
	Service         string
	Datacenter      string
	TrustDomain     string
	Protocol        string
	ConnectTimeout  time.Duration
	MeshGatewayMode structs.MeshGatewayMode
}

type answer struct {
	Entries []entryAnswer
	Chains  []chainAnswer
}

type entryAnswer struct {
	Error string      `json:",omitempty"`
	Entry interface{} `json:",omitempty"`
}

type chainAnswer struct {
	Error string `json:",omitempty"`
	// Graph is true for errors between entries, Panic where the compiler crashed.
	Graph bool                            `json:",omitempty"`
	Panic bool                            `json:",omitempty"`
	Chain *structs.CompiledDiscoveryChain `json:",omitempty"`
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineLimit)
	out := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(out)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			fail(err)
		}
		if err := encoder.Encode(reply(asked)); err != nil {
			fail(err)
		}
		if err := out.Flush(); err != nil {
			fail(err)
		}
	}
	if err := lines.Err(); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func reply(asked question) answer {
	told := answer{Entries: []entryAnswer{}, Chains: []chainAnswer{}}
	decoded := make([]structs.ConfigEntry, len(asked.Entries))
	for i, raw := range asked.Entries {
		entry, err := read(raw)
		decoded[i] = entry
		if err != nil {
			told.Entries = append(told.Entries, entryAnswer{Error: err.Error()})
		} else {
			told.Entries = append(told.Entries, entryAnswer{Entry: entry})
		}
	}
	for _, chain := range asked.Chains {
		set := configentry.NewDiscoveryChainSet()
		for _, i := range asked.Use {
			if decoded[i] != nil {
				set.AddEntries(decoded[i])
			}
		}
		told.Chains = append(told.Chains, compiled(chain, set))
	}
	return told
}

// read returns the entry even where Consul refuses it, if it can be read at all.
func read(raw map[string]interface{}) (structs.ConfigEntry, error) {
	entry, err := structs.DecodeConfigEntry(raw)
	if err != nil {
		return nil, err
	}
	if err := entry.Normalize(); err != nil {
		return nil, err
	}
	return entry, entry.Validate()
}

func compiled(asked wanted, set *configentry.DiscoveryChainSet) (told chainAnswer) {
	defer func() {
		if found := recover(); found != nil {
			told = chainAnswer{Error: fmt.Sprint(found), Panic: true}
		}
	}()
	chain, err := compile(asked, set)
	if err != nil {
		var graph *structs.ConfigEntryGraphError
		return chainAnswer{Error: err.Error(), Graph: errors.As(err, &graph)}
	}
	return chainAnswer{Chain: chain}
}
