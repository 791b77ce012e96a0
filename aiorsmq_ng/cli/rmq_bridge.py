"""``rsmqctl rmq bridge``: moves messages between queues of rmq and of RSMQ."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

import aiorsmq_ng

from .global_options import current_settings, examples, global_options
from .output import complain, show_record
from .progress import progress
from .rmq import lengths_of, most_option, name_option
from .session import finish
from .shared_options import messages

if TYPE_CHECKING:
    from ..rmq import BridgeReport


@click.command(
    epilog=examples(
        "$ rsmqctl rmq bridge -n things --to-rsmq jobs",
        '{"moved": 1200, "rejected": 0, "doubtful": 0}',
        "$ rsmqctl rmq bridge -n things --from-rsmq jobs --follow",
    )
)
@name_option
@click.option("--to-rsmq", metavar="QUEUE", help="Move messages of rmq to this queue of RSMQ.")
@click.option("--from-rsmq", metavar="QUEUE", help="Move messages of this queue of RSMQ to rmq.")
@click.option("--rmq-url", metavar="URL", help="The server of rmq, if that is another one.")
@click.option("--follow", is_flag=True, help="Go on as messages arrive, until interrupted.")
@most_option
@global_options()
def bridge(
    name: str,
    to_rsmq: str | None,
    from_rsmq: str | None,
    rmq_url: str | None,
    follow: bool,
    count: int | None,
) -> None:
    """Move messages between rmq and RSMQ, in order.

    Bodies are kept as they are, with rmq's header if there is one. Both on one server: every step
    is atomic, and a message is in one of the two queues at every moment. On two servers, or in a
    cluster: what was under way when the command is killed may be in both queues, at most 100
    messages; those of rmq come back after a clean. A body that is too long for the queue of RSMQ
    is moved to the rejected list.
    """
    if (to_rsmq is None) == (from_rsmq is None):
        raise click.UsageError("give either --to-rsmq or --from-rsmq")

    async def work() -> BridgeReport:
        from ..rmq import Bridge, Rmq

        settings = current_settings()
        url = settings.full_url()
        options = settings.options(patient=True)
        same = rmq_url in (None, url) and not url.startswith(("redis+cluster", "rediss+cluster"))
        other = Rmq(rmq_url or url, tag="rsmqctl", options=options)
        async with settings.client(patient=True) as rsmq, other as client:
            queue = client.queue(name)
            if to_rsmq is not None and not follow:
                await lengths_of(client, name)
            with progress("moving", count, sys.stderr.isatty()) as advance:
                moving = Bridge(
                    queue,
                    rsmq.queue(to_rsmq or from_rsmq or ""),
                    same_server=same,
                    follow=follow,
                    progress=advance,
                )
                try:
                    return await (
                        moving.to_rsmq(count) if to_rsmq is not None else moving.from_rsmq(count)
                    )
                except BaseException as error:
                    moved = moving.report.moved
                    if moved or not isinstance(error, aiorsmq_ng.QueueNotFound):
                        complain(f"{messages(moved)} moved before the end")
                    raise

    report = finish(work, patient=True)
    show_record({"moved": report.moved, "rejected": report.rejected, "doubtful": report.doubtful})
