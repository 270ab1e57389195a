// Consul itself: its agent and its command line, from the public module. For comparison only, never shipped.
package main

import (
	"fmt"
	"io"
	"log"
	"os"

	"github.com/hashicorp/consul/command"
	"github.com/hashicorp/consul/command/cli"
	"github.com/hashicorp/consul/lib"
	mcli "github.com/mitchellh/cli"
)

func main() {
	lib.SeedMathRand()
	log.SetOutput(io.Discard)
	ui := &cli.BasicUI{BasicUi: mcli.BasicUi{Writer: os.Stdout, ErrorWriter: os.Stderr}}
	consul := &mcli.CLI{
		Args:        os.Args[1:],
		Commands:    command.CommandsFromRegistry(ui),
		Name:        "consul",
		HelpFunc:    mcli.BasicHelpFunc("consul"),
		HelpWriter:  os.Stdout,
		ErrorWriter: os.Stderr,
	}
	code, err := consul.Run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}
