"""The resources that one node holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from xds.admin.models.writing import present_if


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldResource:
    """A resource of a node.

    * ``state``: the state of its type, such as ``synced``; ``missing`` for a subscribed name that does not exist;
    * ``version``: its version: a hash of its content; empty if it is missing;
    * ``version_info``: the ``version_info`` of the response; empty without one;
    * ``overlay``: present if something replaces the pushed resource: ``live`` (live endpoints), ``assignment``
      (weights of traffic assignment);
    * ``pushed_version``: present with ``overlay``: the version of the pushed resource, if there is one;
    * ``lingers``: present, and true, for a removed resource that the node keeps for a while;
    * ``until``: present with ``lingers``: when it is removed; null while that time is not known;
    * ``resource``: present with ``contents``: the resource as protobuf JSON; absent if the node returned with a version
      that no push of its group has.
    """

    schema_name: ClassVar[str] = "HeldItem"

    type: str
    type_url: str
    name: str
    state: str
    version: str
    version_info: str
    pushed_version: str = ""
    overlay: tuple[str, ...] = ()
    lingers: bool = False
    until: datetime | None = field(default=None, metadata=present_if(lambda held: held.lingers))
    resource: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldResourcePage:
    """A page of the resources of a node, by type and name."""

    schema_name: ClassVar[str] = "HeldPage"

    items: tuple[HeldResource, ...]
    next_page_token: str = ""
