"""Reads and writes lines of files and pipes of any length, block by block."""

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
        """Yield the lines that can be read now, without line breaks, block by block.

        The event loop waits for a pipe, so Ctrl-C ends a wait at once, and lines are yielded as
        soon as they arrive.
        """
        ready = stat.S_ISREG(os.fstat(self.fd).st_mode)
        rest = b""
        while True:
            if not ready:
                try:
                    await anyio.wait_readable(self.fd)
                except PermissionError:
                    ready = True  # devices such as /dev/null are always ready
            try:
                block = os.read(self.fd, _BLOCK)
            except OSError as error:
                raise click.UsageError(f"{self.name} cannot be read: {error.strerror}") from None
            if not block:
                if rest:  # the last line has no line break
                    yield [rest.removesuffix(b"\r")]
                return
            *lines, rest = (rest + block).split(b"\n")
            if lines:
                yield [line.removesuffix(b"\r") for line in lines]

    def count(self) -> int | None:
        """Return the number of lines of a file, or None for a pipe."""
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

    A file is written under a temporary name and renamed at the end, so it is replaced atomically.
    The temporary name is new and cannot be guessed, so no existing file or link is followed or
    overwritten. Only the user can read the file, because it contains bodies.
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
