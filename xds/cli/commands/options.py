"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

GroupOption = Annotated[str, typer.Option("-g", "--group", help="The group.")]
GroupFilter = Annotated[str, typer.Option("-g", "--group", help="Only this group.")]
WatchFlag = Annotated[bool, typer.Option("-w", "--watch", help="Show it again whenever it changes.")]
MessageOption = Annotated[str, typer.Option("-m", "--message", help="Why; kept with the revision.")]
IfMatchOption = Annotated[str, typer.Option(help="Only if the group is at this revision or etag.", metavar="REV")]
WaitOption = Annotated[
    str, typer.Option(help="Until the connected nodes have it, or so many of them.", metavar="[=PERCENT]")
]
NoneFlag = Annotated[bool, typer.Option("--allow-none", help="With --wait: no node of the group is no error.")]
TimeoutOption = Annotated[str, typer.Option(help="How long to wait.", metavar="DURATION")]
YesFlag = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]
EmptyFlag = Annotated[bool, typer.Option("--allow-empty", help="Connected nodes may lose everything.")]
FilesOption = Annotated[list[Path], typer.Option("-f", "--file", help="File, directory or - (standard input).")]
TargetOption = Annotated[str, typer.Option("-g", "--group", help="Default: the name of the file or directory.")]
DescriptorsOption = Annotated[
    list[Path] | None, typer.Option("--descriptor-set", help="Serialized FileDescriptorSet with types of your own.")
]
