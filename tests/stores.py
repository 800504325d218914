"""An object store for tests: a folder behind s3:// URLs that counts the bytes fetched and can be made to fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem


class StoreError(Exception):
    """An error of the store. Like those of real stores' clients, it is no OSError."""


class FolderStore(AbstractFileSystem):
    """A file system in which `s3://bucket/...` is `folder/bucket/...`."""

    protocol = "s3"
    cachable = False
    folder: Path
    fetched_bytes = 0
    failure: Exception | None = None
    fails_when_read: Exception | None = None

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        path = self._strip_protocol(path)
        local = self.folder / path
        if not local.exists():
            raise FileNotFoundError(path)
        return {
            "name": path,
            "size": local.stat().st_size if local.is_file() else 0,
            "type": "file" if local.is_file() else "directory",
            "LastModified": local.stat().st_mtime,
            "ETag": f'"{hash(local.read_bytes())}"' if local.is_file() else None,
        }

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        if (self.folder / path).is_file():
            entries = [self.info(path)]
        else:
            entries = [self.info(f"{path}/{child.name}") for child in sorted((self.folder / path).iterdir())]
        return entries if detail else [entry["name"] for entry in entries]

    def _open(self, path: str, mode: str = "rb", **how: Any) -> AbstractBufferedFile:
        return _FolderFile(self, path, mode, size=self.info(path)["size"], **how)


class _FolderFile(AbstractBufferedFile):
    def _fetch_range(self, start: int, end: int) -> bytes:
        if self.fs.fails_when_read is not None:
            raise self.fs.fails_when_read
        with (self.fs.folder / self.path).open("rb") as stream:
            stream.seek(start)
            data = stream.read(end - start)
        type(self.fs).fetched_bytes += len(data)
        return data
