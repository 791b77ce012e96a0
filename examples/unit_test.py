"""Test code that uses queues, without any server: ``memory://`` from the extra ``fake``.

``register`` and ``greet_next`` stand for a program; the functions below them are its tests, in the
style of pytest-asyncio (``asyncio_mode = "auto"``). ``memory://<name>`` is shared by the clients of
one process that use the same name, and is empty again when the last of them is closed, so a name
per test keeps tests apart.

Run it with ``python examples/unit_test.py``, or with ``pytest examples/unit_test.py``. Its last
line is: done
"""

import asyncio
import uuid

from aiorsmq_ng import RSMQ, Queue


async def register(queue: Queue, user: str) -> None:
    await queue.send({"user": user})


async def greet_next(queue: Queue) -> str | None:
    delivery = await queue.receive()
    if delivery is None:
        return None
    async with delivery:
        user = delivery.json(dict[str, str])["user"]
        if not user:
            raise ValueError("a user without a name")
        return f"Hello {user}!"


def fresh_client() -> RSMQ:
    return RSMQ(f"memory://{uuid.uuid4()}")


async def test_registered_user_is_greeted_once() -> None:
    async with fresh_client() as rsmq:
        queue = await rsmq.create_queue("users")
        await register(queue, "Ada")

        assert await greet_next(queue) == "Hello Ada!"
        assert await greet_next(queue) is None


async def test_failed_greeting_leaves_the_message() -> None:
    async with fresh_client() as rsmq:
        queue = await rsmq.create_queue("users")
        await register(queue, "")

        try:
            await greet_next(queue)
        except ValueError:
            pass
        else:
            raise AssertionError("the greeting did not fail")
        attributes = await queue.attributes()
        assert (attributes.ready, attributes.totalrecv) == (1, 1)


if __name__ == "__main__":
    for test in (test_registered_user_is_greeted_once, test_failed_greeting_leaves_the_message):
        asyncio.run(test())
        print(f"{test.__name__} passed")
    print("done")
