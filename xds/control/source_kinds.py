"""All kinds of sources, as the settings know them. The command line builds the sources: `xds.cli.source_builders`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from xds.control.consul_settings import ConsulSettings
from xds.control.kubernetes_settings import KubernetesSettings
from xds.control.source_settings import DnsSettings, FilesSettings, PythonSettings, SourceName

AnySourceSettings = Annotated[
    FilesSettings | DnsSettings | ConsulSettings | KubernetesSettings | PythonSettings, Field(discriminator="kind")
]
SourceTable = dict[SourceName, AnySourceSettings]
