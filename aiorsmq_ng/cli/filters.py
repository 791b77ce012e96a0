"""``--filter``: a condition on messages as the type of an option."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

import aiorsmq_ng

if TYPE_CHECKING:
    from ..filters import Filter


def compile_filter(text: str) -> Filter:
    """Compile a condition; a usage error if it is none."""
    from .. import filters

    try:
        return filters.compile_filter(text)
    except aiorsmq_ng.InvalidValue as error:
        raise click.BadParameter(str(error)) from None
