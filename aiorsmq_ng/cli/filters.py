"""``--filter``: a condition on messages as the type of an option."""

from __future__ import annotations

import click

import aiorsmq_ng

from .. import filters
from ..filters import Filter as Filter  # noqa: PLC0414 - commands are annotated with it


def compile_filter(text: str) -> Filter:
    """Compile a condition; a usage error if it is none."""
    try:
        return filters.compile_filter(text)
    except aiorsmq_ng.InvalidValue as error:
        raise click.BadParameter(str(error)) from None
