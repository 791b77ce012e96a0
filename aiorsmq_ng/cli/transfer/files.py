"""Lines in, lines out: files and pipes of any length, a piece at a time."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import anyio
import click

_BLOCK = 1 << 20


class Source:
    """A file or stdin (``-``) to read from."""

    def __init__(self, name: str) -> None:
        self.name = "stdin" if name == "-" else name
        try:
            self.fd = os.dup(0) if name == "-" else os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise click.UsageError(f"{self.name} cannot be read: {error.strerror}") from None

    async def blocks(self) -> AsyncIterator[list[bytes]]:
        """Yield the lines that can be read at once, without their ends, block by block.

        A pipe is waited on by the event loop, so Ctrl-C ends a wait at once, and what came is
        yielded as soon as it is there.
        """
        ready = stat.S_ISREG(os.fstat(self.fd).st_mode)
        rest = b""
        while True:
            if not ready:
                try:
                    await anyio.wait_readable(self.fd)
                except PermissionError:
                    ready = True  # /dev/null and the like are always ready
            try:
                block = os.read(self.fd, _BLOCK)
            except OSError as error:
                raise click.UsageError(f"{self.name} cannot be read: {error.strerror}") from None
            if not block:
                if rest:  # a last line without an end
                    yield [rest.removesuffix(b"\r")]
                return
            *lines, rest = (rest + block).split(b"\n")
            if lines:
                yield [line.removesuffix(b"\r") for line in lines]

    def count(self) -> int | None:
        """Return the number of lines of a file, or None for what can be read only once."""
        if not stat.S_ISREG(os.fstat(self.fd).st_mode):
            return None
        lines, at, last = 0, os.lseek(self.fd, 0, os.SEEK_CUR), b"\n"
        while block := os.read(self.fd, _BLOCK):
            lines += block.count(b"\n")
            last = block
        os.lseek(self.fd, at, os.SEEK_SET)
        return lines + (not last.endswith(b"\n"))

    def close(self) -> None:
        """Close it."""
        os.close(self.fd)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def sink(name: str) -> Iterator[BinaryIO]:
    """Open a file or stdout (``-``) to write to.

    A file is written under another name and renamed at the end, so that it is whole or as before.
    That name is new and cannot be guessed, so nothing that lies there already is followed or
    overwritten; only the user can read the file, for it holds bodies.
    """
    if name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    target = Path(name)
    plain = target.exists() and not target.is_file()  # a device or a pipe
    draft = target
    try:
        if plain:
            file = target.open("wb")
        else:
            fd, made = tempfile.mkstemp(".part", f".{target.name}.", target.parent)
            draft, file = Path(made), os.fdopen(fd, "wb")
    except OSError as error:
        raise click.UsageError(f"{name} cannot be written: {error.strerror}") from None
    try:
        with file:
            yield file
    except BaseException:
        if not plain:
            draft.unlink(missing_ok=True)
        raise
    if not plain:
        draft.replace(target)
