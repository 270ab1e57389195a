"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

GroupOption = Annotated[str, typer.Option("-g", "--group", help="The group.")]
GroupFilter = Annotated[str, typer.Option("-g", "--group", help="Only this group.")]
WatchFlag = Annotated[bool, typer.Option("-w", "--watch", help="Show the list again whenever it changes.")]
MessageOption = Annotated[str, typer.Option("-m", "--message", help="Why the change is made; kept with the revision.")]
IfMatchOption = Annotated[str, typer.Option(help="Only if the group is at this revision or etag.", metavar="REV")]
WaitOption = Annotated[
    str,
    typer.Option(
        help="Wait until all connected nodes, or this percentage of them, have ACKed it.", metavar="[=PERCENT]"
    ),
]
NoneFlag = Annotated[
    bool, typer.Option("--allow-none", help="With --wait: succeed even if no node of the group is connected.")
]
TimeoutOption = Annotated[str, typer.Option(help="How long to wait, such as 60s or 2m.", metavar="DURATION")]
YesFlag = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask for confirmation.")]
EmptyFlag = Annotated[
    bool, typer.Option("--allow-empty", help="Allow a change that leaves connected nodes without configuration.")
]
FilesOption = Annotated[list[Path], typer.Option("-f", "--file", help="File, directory or - (standard input).")]
TargetOption = Annotated[
    str, typer.Option("-g", "--group", help="The group (default: the name of the file or directory).")
]
DescriptorsOption = Annotated[
    list[Path] | None,
    typer.Option("--descriptor-set", help="File with a serialized FileDescriptorSet: message types of your own."),
]
