"""The worker that the manifests run: ``rsmqctl worker run jobs:worker``.

The server is that of ``RSMQ_URL``, which the Deployment takes from a Secret.
"""

import asyncio

from aiorsmq_ng import Retry, Worker

worker = Worker(concurrency=20, grace=30)


@worker.handler("jobs", retry=Retry(max_receives=5), timeout=60)
async def work(body: str) -> None:
    await asyncio.sleep(1)  # what this service is for
