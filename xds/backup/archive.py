"""The file format of a backup: a tar archive of JSON lines whose last member lists all others with their hashes.

::

    xds-backup.json          {"format": 1, "release", "time_s", "history", "redacted"}
    groups/00001.jsonl       one record per line; a part has about ``PART_BYTES`` (`xds.store.records`)
    ...
    blobs/00017.jsonl
    manifest.json            {"parts": [{"name", "bytes", "sha256", "records"}, ...]}

An archive without a manifest is incomplete and is rejected. A redacted archive contains readable resources without
their secret values in place of blobs; it cannot be restored. No function here does I/O on anything but the given file.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import IO, Any

from xds.backup.stored_entries import kind_of_entry
from xds.codec.record import load_record
from xds.codec.redaction import redact
from xds.codec.render import render_resource
from xds.model.errors import ValidationError, Violation
from xds.store.records import BLOBS, KINDS, Record, WrongRecordError

FORMAT = 1
HEAD, MANIFEST = "xds-backup.json", "manifest.json"
PART_BYTES = 4 << 20
MEMBER_LIMIT_BYTES = 256 << 20
MEMBERS_LIMIT = 1_000_000
_BLOCK = tarfile.BLOCKSIZE


@dataclass(frozen=True, slots=True)
class ArchiveHeader:
    """The header of an archive."""

    release: str
    time_s: float
    history: bool = True
    redacted: bool = False
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """A part of an archive, as the manifest lists it."""

    name: str
    bytes: int
    sha256: str
    records: int


class ArchiveWriter:
    """Turns records into the bytes of an archive, part by part. Call ``begin``, then ``add``, then ``end``."""

    def __init__(self, about: ArchiveHeader) -> None:
        self._about = about
        self._parts: list[ArchivePart] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._kind = ""

    def begin(self) -> bytes:
        """The header."""
        return self._part(HEAD, _json(asdict(self._about)), 1)

    def add(self, records: Iterable[Record]) -> bytes:
        """Add records. Returns the parts that are complete, empty when there are none."""
        parts: list[bytes] = []
        for record in records:
            if self._lines and (record.kind != self._kind or self._size >= PART_BYTES):
                parts.append(self._flush())
            self._kind = record.kind
            line = _json(self._document(record))
            self._lines.append(line)
            self._size += len(line)
        return b"".join(parts)

    def end(self) -> bytes:
        """The last part and the manifest."""
        rest = self._flush() if self._lines else b""
        manifest = _json({"parts": [asdict(part) for part in self._parts]})
        return rest + _member(MANIFEST, manifest, self._about.time_s) + bytes(2 * _BLOCK)

    def _document(self, record: Record) -> Mapping[str, Any]:
        if self._about.redacted and record.kind == BLOBS.name:
            blob, data = record.values
            if kind_of_entry(data):
                return {"id": blob, "config_entry": json.loads(data)}
            return {"id": blob, "resource": redact(render_resource(load_record(data)))}
        return KINDS[record.kind].document(record.values)

    def _flush(self) -> bytes:
        number = 1 + sum(part.name.startswith(f"{self._kind}/") for part in self._parts)
        content, count = b"".join(self._lines), len(self._lines)
        self._lines.clear()
        self._size = 0
        return self._part(f"{self._kind}/{number:05d}.jsonl", content, count)

    def _part(self, name: str, content: bytes, records: int) -> bytes:
        self._parts.append(ArchivePart(name, len(content), sha256(content).hexdigest(), records))
        return _member(name, content, self._about.time_s)


@dataclass(frozen=True, slots=True)
class CheckedArchive:
    """A complete archive. ``counts`` are records by kind."""

    about: ArchiveHeader
    counts: Mapping[str, int] = field(default_factory=dict)


def check(file: IO[bytes]) -> CheckedArchive:
    """Check that an archive is complete and unchanged. Raises ``ValidationError`` with the place of the error."""
    file.seek(0)
    about: ArchiveHeader | None = None
    parts: dict[str, ArchivePart] = {}
    counts = dict.fromkeys(KINDS, 0)
    for name, content in _members(file):
        if about is None:
            about = _about(name, content)
        elif name == MANIFEST:
            _check_manifest(content, parts)
            return CheckedArchive(about, counts)
        kind = name.partition("/")[0]
        records = 1 if name == HEAD else _check_part(kind, name, content, about)
        if name in parts:
            raise _wrong(name, "the archive has two members of this name")
        if name != HEAD:
            counts[kind] += records
        parts[name] = ArchivePart(name, len(content), sha256(content).hexdigest(), records)
    raise _wrong("", "the archive is incomplete: it ends before its manifest")


def records(file: IO[bytes]) -> Iterator[Record]:
    """The records of an archive, in order. Raises ``ValidationError``."""
    file.seek(0)
    for name, content in _members(file):
        if name == MANIFEST:
            return
        kind = name.partition("/")[0]
        if kind in KINDS:
            yield from _records(kind, name, content)


def _check_part(kind: str, name: str, content: bytes, about: ArchiveHeader) -> int:
    if kind not in KINDS:
        raise _wrong(name, "unknown part; a newer release may have written it")
    if about.redacted and kind == BLOBS.name:
        return content.count(b"\n")
    count = 0
    for number, record in enumerate(_records(kind, name, content), 1):
        count = number
        if kind == BLOBS.name and not kind_of_entry(record.values[1]):
            try:
                load_record(record.values[1])
            except ValidationError:
                raise _wrong(f"{name}:{number}", "this is not a stored resource or config entry") from None
    return count


def _records(kind: str, name: str, content: bytes) -> Iterator[Record]:
    record_kind = KINDS[kind]
    for number, line in enumerate(content.splitlines(), 1):
        try:
            yield Record(kind, record_kind.values(json.loads(line)))
        except WrongRecordError as error:
            raise _wrong(f"{name}:{number}", str(error)) from None
        except (ValueError, RecursionError):
            raise _wrong(f"{name}:{number}", "this is not JSON") from None


def _about(name: str, content: bytes) -> ArchiveHeader:
    header = _read_json(name, content) if name == HEAD else None
    if not isinstance(header, dict) or not isinstance(header.get("format"), int):
        raise _wrong(name, f"this is not a backup: it does not begin with {HEAD}")
    if header["format"] != FORMAT:
        raise _wrong(name, f"the backup has format {header['format']}, this release reads format {FORMAT}")
    kinds: dict[str, Any] = {"release": str, "time_s": (int, float), "history": bool, "redacted": bool, "format": int}
    if header.keys() != kinds.keys() or not all(isinstance(header[key], kind) for key, kind in kinds.items()):
        raise _wrong(name, f"not an object with {', '.join(kinds)}")
    return ArchiveHeader(**header)


def _check_manifest(content: bytes, found_parts: Mapping[str, ArchivePart]) -> None:
    manifest = _read_json(MANIFEST, content)
    parts = manifest.get("parts") if isinstance(manifest, dict) else None
    try:
        listed = {part["name"]: ArchivePart(**part) for part in parts or ()}
    except (TypeError, KeyError):
        raise _wrong(MANIFEST, "this is not a manifest") from None
    for name in {*listed, *found_parts}:
        if listed.get(name) != found_parts.get(name):
            what = "is missing" if name not in found_parts else "has changed: its hash differs"
            raise _wrong(name, what if name in listed else "is not in the manifest")


def _read_json(name: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise _wrong(name, "this is not JSON") from None


def _json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _wrong(place: str, detail: str) -> ValidationError:
    return ValidationError([Violation("invalid_archive", detail, source=place[:200])])


# tar


def _member(name: str, content: bytes, time_s: float) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(content), 0o600, int(time_s)
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % _BLOCK)


def _members(file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    """The members of an archive. Only plain files are accepted, bounded in number and size."""
    for _ in range(MEMBERS_LIMIT):
        head = file.read(_BLOCK)
        if head == bytes(_BLOCK) or not head:
            return
        try:
            info = tarfile.TarInfo.frombuf(head, "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeDecodeError):
            raise _wrong(
                f"byte {file.tell() - len(head)}", "this is not a tar archive, or it is damaged here"
            ) from None
        if not info.isreg() or not 0 <= info.size <= MEMBER_LIMIT_BYTES:
            raise _wrong(info.name, f"not a plain file of at most {MEMBER_LIMIT_BYTES} bytes")
        content = file.read(info.size)
        if len(content) < info.size:
            raise _wrong(info.name, "the archive is incomplete: it ends here")
        file.seek(-info.size % _BLOCK, 1)
        yield info.name, content


def why_not_restorable(checked: CheckedArchive) -> Sequence[Violation]:
    """Why a complete archive cannot be restored; empty if it can."""
    if checked.about.redacted:
        detail = "the backup is redacted: it does not contain the secret values, so it cannot be restored"
        return [Violation("redacted", detail, source=HEAD)]
    return []
