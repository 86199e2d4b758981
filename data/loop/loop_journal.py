"""The journal of a closed loop: a line of JSON per finished setting, on disk before the next."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from format.dump_file import Fault


class Journal:
    """Finished records by id. A last line that a kill has cut short is dropped."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        """`header`: what all lines agree on. Fault if the file has another one."""
        self._done: dict[str, dict[str, Any]] = {}
        whole = path.read_bytes() if path.exists() else b""
        whole = whole[: whole.rfind(b"\n") + 1]
        lines = whole.splitlines()
        if lines:
            self._read(path, lines, header)
        self._file: BinaryIO = path.open("r+b" if path.exists() else "w+b")
        self._file.truncate(len(whole))
        self._file.seek(0, os.SEEK_END)
        if not lines:
            self._append(header)

    def _read(self, path: Path, lines: list[bytes], header: dict[str, Any]) -> None:
        try:
            found, *records = (json.loads(line) for line in lines)
            self._done = {record.pop("id"): record for record in records}
            apart = [name for name in header if found.get(name) != header[name]]
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise Fault(f"{path}: not a journal of a closed loop ({error}); pass --fresh") from None
        if apart:
            differences = ", ".join(
                f"{name} {found.get(name)}, now {header[name]}" for name in apart
            )
            raise Fault(
                f"{path}: was begun with other settings ({differences}); choose another --out, or "
                "pass --fresh to start over"
            )

    def _append(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def __contains__(self, name: str) -> bool:
        return name in self._done

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self._done[name]

    def add(self, name: str, record: dict[str, Any]) -> None:
        self._append({"id": name, **record})
        self._done[name] = record

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
