"""Discovery chains: the cost of compiling one, of loading all, and of changing one entry, by the number of services.

    python -m bench.chain [--services 100,1000,10000] [--rounds 5] [--docs docs]

Each service has three entries: a resolver with two subsets and a failover, a splitter (every second one splits between
its subsets and the next service's), and either a router of five routes or service-defaults, in turns. Figures are CPU
time of one thread with the server's settings of the garbage collector, medians of the rounds; and for the same entries
in a SQLite store, of the start of a server and of one write. ``--docs`` writes the figures there, and into the page of
performance.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from bench.chain_stored import measure_stored
from bench.suite import machine
from xds.mesh.core.chain.compile import compile_chain
from xds.mesh.core.chain.index import ChainContext, ChainIndex
from xds.mesh.core.entries.entry import entry_from_json, entry_json, key_of, read_entries, read_entry
from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.mesh.core.entries.resolver import ServiceResolver
from xds.server.process import tune_gc

CONTEXT = ChainContext("dc1", "bench.consul")
SIZES = (100, 1_000, 10_000)
CHANGES = 100  # entries that are changed in a round, one after the other
COMPILED = 500  # chains that are compiled in a round
FAMILY = 10  # services that lead to each other
RESULTS = "chain.json"
TITLE = "Discovery chains"
INTRODUCTION = """\
Services with three entries each: a resolver with two subsets and failover to two datacenters, a splitter (every second
one leads to the next service's as well), a router of five routes or service-defaults. Written by
`python -m bench.chain --docs docs`. CPU time of one thread, medians, with the server's settings of the garbage
collector. With Python's default settings, loading the largest set takes 1.7 times as long.

* **Compile**: the chain of one service, of all kinds alike.
* **Load**: all entries from the JSON that a store holds, and the chains of all services compiled.
* **Read**: the same entries from text, with every rule checked, without chains.
* **Change**: one resolver is written. The chains that depend on it are compiled again, compared, and replace the old
  ones. *Chains touched* is their number.
* **Start**: a server starts with stored entries: they are read from SQLite and loaded as above.
* **Write**: one resolver is written as over the API: checked, compiled, committed to SQLite (on disk when it is
  acknowledged), served. CPU time of all threads; the second figure is the elapsed time, including the disk's.
"""
GOALS = (
    "Goals: a chain well under 1 ms; 10,000 services with 30,000 entries loaded in under 5 s; "
    "one entry's change recompiles its set in under 10 ms."
)
COLUMNS = ("services", "entries", "compile", "load", "read", "change", "chains touched", "start", "write", "passed")


@dataclass(frozen=True, slots=True)
class Figures:
    """Medians of one size. ``touched`` is how many chains a change recompiles, on average.

    ``start_s``, ``write_ms`` and ``write_wall_ms`` are those of `StoredFigures`.
    """

    services: int
    entries: int
    compile_us: float
    load_s: float
    read_s: float
    change_ms: float
    touched: float
    start_s: float
    write_ms: float
    write_wall_ms: float

    def row(self) -> tuple[str, ...]:
        """As the table has it."""
        return (
            f"{self.services:,}",
            f"{self.entries:,}",
            f"{self.compile_us:.0f} us",
            f"{self.load_s:.2f} s",
            f"{self.read_s:.2f} s",
            f"{self.change_ms:.2f} ms",
            f"{self.touched:.1f}",
            f"{self.start_s:.2f} s",
            f"{self.write_ms:.1f} ms",
            f"{self.write_wall_ms:.1f} ms",
        )


def made(services: int) -> list[dict[str, Any]]:
    """The entries of so many services, as plain values, and proxy-defaults."""
    entries: list[dict[str, Any]] = [{"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}]
    for at in range(services):
        entries += [_resolver(at), _splitter(at), _router(at, services) if at % 2 else _defaults(at)]
    return entries


def _name(at: int) -> str:
    return f"service-{at:05d}"


def _next(at: int) -> int:
    """The next service of the same family; the last leads to nobody."""
    return at + 1 if (at + 1) % FAMILY else at


def _resolver(at: int) -> dict[str, Any]:
    return {
        "Kind": "service-resolver",
        "Name": _name(at),
        "Subsets": {
            "v1": {"Filter": f"Service.Meta.version == v{at}"},
            "v2": {"Filter": "Service.Meta.version == v2", "OnlyPassing": True},
        },
        "Failover": {"*": {"Datacenters": ["dc2", "dc3"]}},
        "ConnectTimeout": "3s",
        "LoadBalancer": {"Policy": "least_request", "LeastRequestConfig": {"ChoiceCount": 3}},
    }


def _splitter(at: int) -> dict[str, Any]:
    legs: list[dict[str, Any]] = [{"Weight": 90, "ServiceSubset": "v1"}, {"Weight": 10, "ServiceSubset": "v2"}]
    if at % 2 and _next(at) != at:
        legs = [*({**leg, "Weight": leg["Weight"] / 2} for leg in legs), {"Weight": 50, "Service": _name(_next(at))}]
    return {"Kind": "service-splitter", "Name": _name(at), "Splits": legs}


def _router(at: int, services: int) -> dict[str, Any]:
    family = at - at % FAMILY
    others = [_name(min(family + index, services - 1)) for index in range(5)]
    routes = [
        {"Match": {"HTTP": {"PathPrefix": f"/{other}"}}, "Destination": {"Service": other, "RequestTimeout": "10s"}}
        for other in others
    ]
    return {"Kind": "service-router", "Name": _name(at), "Routes": routes}


def _defaults(at: int) -> dict[str, Any]:
    return {"Kind": "service-defaults", "Name": _name(at), "Protocol": "http", "Meta": {"team": f"t{at % 7}"}}


def measure(services: int, rounds: int) -> Figures:
    """All figures of one size."""
    gc.unfreeze()
    tune_gc()
    values = made(services)
    text = json.dumps(values)
    stored = [entry_json(entry) for entry in read_entries(text).entries]
    held: list[ChainIndex] = []
    load_s = _median(lambda: held.append(_loaded(stored)), rounds)
    index = held[-1]
    held.clear()
    changes = _changes(services)
    entries = tuple(map(entry_from_json, stored))
    whole = measure_stored(entries, changes, CONTEXT, rounds)
    return Figures(
        services,
        len(stored),
        _median(lambda: _compile(index, services), rounds) * 1e6 / COMPILED,
        load_s,
        _median(lambda: read_entries(text), rounds),
        _median(lambda: _change(index, changes), rounds) * 1e3 / len(changes),
        statistics.mean(len(index.depending_on([key_of(one)])) for one in changes),
        **asdict(whole),
    )


def _median(work: Callable[[], object], rounds: int) -> float:
    """Seconds of CPU time."""
    taken = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def _loaded(stored: list[dict[str, object]]) -> ChainIndex:
    return ChainIndex(CONTEXT, ConfigEntries.of(map(entry_from_json, stored)))


def _compile(index: ChainIndex, services: int) -> None:
    for at in range(COMPILED):
        compile_chain(CONTEXT.request(_name(at * 7 % services), index.entries))


def _changes(services: int) -> list[ServiceResolver]:
    """Resolvers of services all over the set, each with another timeout."""
    changed = []
    for at in range(CHANGES):
        value = {**_resolver(at * services // CHANGES), "ConnectTimeout": f"{at + 10}s"}
        (entry,) = read_entry(value).entries
        assert isinstance(entry, ServiceResolver)
        changed.append(entry)
    return changed


def _change(index: ChainIndex, changes: list[ServiceResolver]) -> None:
    """Propose and accept each; in the next round, with other timeouts, so that every chain comes out otherwise."""
    for entry in changes:
        before = index.entries.get(key_of(entry))
        assert isinstance(before, ServiceResolver)
        timeout_ns = before.connect_timeout_ns + entry.connect_timeout_ns
        proposal = index.propose({key_of(entry): replace(entry, connect_timeout_ns=timeout_ns)})
        assert proposal.refusal() is None
        assert index.accept(proposal)


def table(figures: list[Figures]) -> str:
    """In Markdown."""
    rows = [COLUMNS, tuple("---" for _ in COLUMNS), *(one.row() for one in figures)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def section(folder: Path) -> Iterator[str]:
    """The section of the page of performance; nothing where nothing was measured."""
    path = folder / RESULTS
    if path.exists():
        held = json.loads(path.read_text())
        yield f"## {TITLE}\n"
        yield INTRODUCTION
        yield table([Figures(**one) for one in held["figures"]]) + "\n"
        busy = f"load average {held['load_average']} on {held['cores']} cores"
        yield f"{GOALS} Measured at `{held['commit']}`, {busy}.\n"


def keep(figures: list[Figures], docs: Path) -> None:
    """Write the figures, and the page anew."""
    from bench.suite import report  # which has our section

    held = {
        "commit": machine.commit(),
        "cores": machine.describe()["cores"],
        "load_average": round(machine.load(), 1),
        "figures": [asdict(one) for one in figures],
    }
    (docs / "performance" / RESULTS).write_text(json.dumps(held, indent=1) + "\n")
    report.write(docs / "performance.md")


def main() -> None:
    """Measure every size and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", default=",".join(map(str, SIZES)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--docs", type=Path)
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    figures = [measure(int(size), given.rounds) for size in given.services.split(",")]
    print(f"discovery chains, {given.rounds} rounds")
    for line in (COLUMNS, *(one.row() for one in figures)):
        print("  ".join(cell.rjust(len(name) + 2) for cell, name in zip(line, COLUMNS, strict=True)))
    if given.docs:
        keep(figures, given.docs)


if __name__ == "__main__":
    main()
