"""What changes when a trace file does."""

from __future__ import annotations

from dataclasses import dataclass

from tracekit.read.files.storage import RemotePath, TracePath, version_of

__all__ = ["FileStamp", "current_stamp", "stamp_of"]


@dataclass(frozen=True, kw_only=True)
class FileStamp:
    """The state of one file. Without its device number, which differs between hosts that mount a shared folder.

    Attributes:
        name: Of the file, as its entry was asked for.
        size_bytes: Of the file as it is stored, packed or not.
        modified_ns: Time of the last change of the content, which anybody can set back.
        inode: 0 in a store.
        changed_ns: Time of the last change of the inode, which nobody can set back; 0 in a store.
        tag: What a store calls the version of the content; empty on a disk.
    """

    name: str
    size_bytes: int
    modified_ns: int
    inode: int = 0
    changed_ns: int = 0
    tag: str = ""


def stamp_of(file: TracePath, name: str) -> FileStamp:
    """Return the stamp of `file`; for a file in a store, as it was when it was listed.

    Raises OSError when the file is not there, ValueError when its store does not say when it was written.
    """
    if isinstance(file, RemotePath):
        version = version_of(file)
        if version.changed_ns is None:
            raise ValueError(f"{file}: no time of its last change")
        return FileStamp(name=name, size_bytes=version.size_bytes, modified_ns=version.changed_ns, tag=version.tag)
    status = file.stat()
    return FileStamp(
        name=name,
        size_bytes=status.st_size,
        modified_ns=status.st_mtime_ns,
        inode=status.st_ino,
        changed_ns=status.st_ctime_ns,
    )


def current_stamp(file: TracePath, name: str) -> FileStamp:
    """`stamp_of`, but a store is asked again."""
    return stamp_of(RemotePath(file.url) if isinstance(file, RemotePath) else file, name)
