"""A FastAPI service that takes orders, answers at once, and works on them in the background.

The lifespan opens the client and runs a worker beside the endpoints. In a real setup the worker
often is a process of its own (see ``worker.py``); the endpoints stay the same. To serve it, which
needs ``pip install uvicorn`` besides::

    uvicorn examples.fastapi_service:app

Run it with ``python examples/fastapi_service.py`` to see it answer a few requests, made inside the
process, and shut down. Needs ``pip install fastapi httpx``. It talks to the server in ``RSMQ_URL``,
or starts an embedded one. Its last line is: done
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Annotated, Any

import httpx
from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, PositiveInt

from aiorsmq_ng import RSMQ, Delivery, Queue, Unavailable, Worker
from aiorsmq_ng.worker import WorkerProbes

URL = os.environ.get("RSMQ_URL", "embedded://")

api = APIRouter()


class Order(BaseModel):
    """What clients post, and what the handler gets."""

    item: str
    count: PositiveInt


def make_worker(rsmq: RSMQ, queue: Queue) -> Worker:
    worker = Worker(rsmq, grace=20)

    @worker.handler(queue.name)
    async def ship(order: Order, message: Delivery) -> None:
        await asyncio.sleep(0.05)
        print(f"shipped {order.count} x {order.item} of order {message.id[:10]}")

    return worker


def orders_queue(request: Request) -> Queue:
    queue: Queue = request.app.state.orders
    return queue


@api.post("/orders", status_code=202)
async def take_order(order: Order, orders: Annotated[Queue, Depends(orders_queue)]) -> str:
    return await orders.send(order.model_dump_json())


@api.get("/health")
async def health(request: Request, response: Response) -> dict[str, Any]:
    worker: Worker = request.app.state.worker
    if not worker.health.ok:
        # Redis is gone, or the worker has ended; its health, and the log, say why.
        response.status_code = 503
    return asdict(worker.health)


@api.get("/livez")
@api.get("/readyz")
async def probe(request: Request) -> JSONResponse:
    """Answer a supervisor: restart this service, or wait until it is ready."""
    probes: WorkerProbes = request.app.state.probes
    live = request.url.path.endswith("/livez")
    answer = await (probes.livez() if live else probes.readyz())
    return JSONResponse(answer.as_dict(), answer.status)


async def unavailable(request: Request, error: Exception) -> JSONResponse:
    """Tell the client to come again: Redis is away. The log has a line about it."""
    return JSONResponse({"detail": "try again later"}, 503, {"retry-after": "5"})


def create_app(queue_name: str = "orders") -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with RSMQ(URL) as rsmq:
            app.state.orders = await rsmq.create_queue(queue_name, exist_ok=True)
            app.state.worker = make_worker(rsmq, app.state.orders)
            app.state.probes = WorkerProbes(app.state.worker)
            # The web server handles the signals, and ends the lifespan when one comes. A worker
            # that ends before shows in /health, and in the log.
            working = asyncio.create_task(app.state.worker.run(signals=False))
            try:
                yield
            finally:
                app.state.worker.stop()
                await asyncio.gather(working, return_exceptions=True)

    app = FastAPI(lifespan=lifespan)
    app.include_router(api)
    app.add_exception_handler(Unavailable, unavailable)
    return app


app = create_app()


async def drive(service: FastAPI, orders: int) -> None:
    transport = httpx.ASGITransport(app=service)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        for count in range(1, orders + 1):
            response = await client.post("/orders", json={"item": "lamp", "count": count})
            print(f"POST /orders: {response.status_code}, order {response.json()[:10]}")
        response = await client.post("/orders", json={"item": "lamp", "count": 0})
        print(f"POST /orders for no lamps: {response.status_code}")
        state = (await client.get("/health")).json()
        while state["done"] < orders:
            await asyncio.sleep(0.05)
            state = (await client.get("/health")).json()
        print(f"GET /health: {state['state']}, {state['done']} done, {state['failed']} failed")
        print(f"GET /readyz: {(await client.get('/readyz')).status_code}")


async def main() -> None:
    name = f"example-{uuid.uuid4().hex[:8]}"
    service = create_app(name)
    async with service.router.lifespan_context(service):
        await drive(service, orders=3)
    async with RSMQ(URL) as rsmq:
        await rsmq.delete_queue(name)
    print("done")


if __name__ == "__main__":
    asyncio.run(main())
