"""What one stream said to be in progress: towards a service, or all at once towards those of a strip."""

from __future__ import annotations

from math import inf
from operator import neg, sub

from xds.load.service import Known, Lanes, Service, Strip

_NO_GAUGE = 0.0, Known(()), 0


class Gauges:
    """The latest that was told of each service, and when. No service counts twice."""

    __slots__ = ("_single", "_strips")

    def __init__(self) -> None:
        self._single: dict[Service, tuple[float, Known, int]] = {}
        self._strips: dict[Strip, tuple[float, Lanes]] = {}

    def __contains__(self, service: Service) -> bool:
        return service in self._single or any(strip in self._strips for strip, _ in service.strips)

    def set(self, service: Service, known: Known, lanes: int, now: float) -> None:
        """What is in progress towards a service now, in place of what was."""
        for strip, place in service.strips:
            if strip in self._strips and self._strips[strip][1][place]:
                self._loosen(strip)
        _, known_before, before = self._single.get(service, _NO_GAUGE)
        if known_before is known:
            if lanes != before:
                service.change_gauge(known, lanes - before)
        else:
            if before:
                service.change_gauge(known_before, -before)
            service.change_gauge(known, lanes)
        if lanes:
            self._single[service] = now, known, lanes
        else:
            self._single.pop(service, None)

    def set_all(self, strip: Strip, lanes: Lanes, now: float) -> None:
        """What is in progress towards each service of a strip."""
        told = self._strips.get(strip)
        if told is None:
            self._make_room(strip)
        if self._single:
            for service in self._single.keys() & strip.services:
                self._drop(service)
        if told is None:
            strip.change_gauges(lanes)
        elif told[1] != lanes:
            strip.change_gauges(list(map(sub, lanes, told[1])))
        self._strips[strip] = now, lanes

    def drop(self, before: float = inf) -> None:
        """Those that no report repeated: clients do not name what has nothing in progress."""
        for strip in [strip for strip, (told, _) in self._strips.items() if told < before]:
            self._take_back(strip)
        for service in [service for service, (told, *_) in self._single.items() if told < before]:
            self._drop(service)

    def _drop(self, service: Service) -> None:
        _, known, lanes = self._single.pop(service)
        service.change_gauge(known, -lanes)

    def _make_room(self, strip: Strip) -> None:
        """The client names its clusters in another order from now on: other strips have some of these services."""
        for service in strip.services:
            for other, _ in service.strips:
                if other in self._strips:
                    self._loosen(other)

    def _loosen(self, strip: Strip) -> None:
        """Services of a strip are told of one by one."""
        told, lanes = self._take_back(strip)
        for service, known, count in zip(strip.services, strip.knowns, lanes, strict=True):
            if count:
                self.set(service, known, count, told)

    def _take_back(self, strip: Strip) -> tuple[float, Lanes]:
        told, lanes = self._strips.pop(strip)
        strip.change_gauges(list(map(neg, lanes)))
        return told, lanes
