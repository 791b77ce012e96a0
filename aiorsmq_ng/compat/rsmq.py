"""RSMQ's own verbs in snake_case, as a mixin of the client.

``create_queue``, ``list_queues`` and ``delete_queue`` are methods of the client itself. The other
eight are here: each is one call of the method with the name that this library uses. Nothing in the
package calls them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._common.durations import Seconds
from ..delivery import Delivery
from ..models import Message, QueueAttributes

if TYPE_CHECKING:
    from ..queue import Queue


class RSMQVerbs:
    """The verbs of RSMQ that have another name in this library."""

    if TYPE_CHECKING:
        # What the client has; the verbs need no more of it.
        def queue(self, name: str) -> Queue:
            """Return a handle on a queue."""
            ...

        async def aclose(self) -> None:
            """Disconnect."""

    async def get_queue_attributes(self, name: str) -> QueueAttributes:
        """Describe a queue (RSMQ's name for ``Queue.attributes``).

        Args:
            name: name of the queue.
        """
        return await self.queue(name).attributes()

    async def set_queue_attributes(
        self,
        name: str,
        *,
        vt: Seconds | None = None,
        delay: Seconds | None = None,
        maxsize: int | None = None,
    ) -> QueueAttributes:
        """Change what is stored on a queue (RSMQ's name for ``Queue.set_attributes``).

        Args:
            name: name of the queue.
            vt: new lease in seconds; ``None`` leaves it.
            delay: new delay in seconds; ``None`` leaves it.
            maxsize: new limit in bytes, -1 for none; ``None`` leaves it.
        """
        return await self.queue(name).set_attributes(vt=vt, delay=delay, maxsize=maxsize)

    async def send_message(
        self,
        name: str,
        message: object,
        *,
        delay: Seconds | None = None,
        dedup_key: str | None = None,
    ) -> str:
        """Send a message and return its id (RSMQ's name for ``Queue.send``).

        Args:
            name: name of the queue.
            message: the body, as for ``Queue.send``.
            delay: seconds until the message becomes visible; by default the queue's ``delay``.
            dedup_key: name for this message; a second one with the same key is not stored within
                ``Options.dedup_window``.
        """
        return await self.queue(name).send(message, delay=delay, dedup_key=dedup_key)

    async def receive_message(self, name: str, *, vt: Seconds | None = None) -> Delivery | None:
        """Lease the next message (RSMQ's name for ``Queue.receive``).

        Args:
            name: name of the queue.
            vt: lease in seconds; by default that of the handle, else that stored on the queue.
        """
        return await self.queue(name).receive(vt=vt)

    async def pop_message(self, name: str) -> Message | None:
        """Take and delete the next message (RSMQ's name for ``Queue.pop``).

        Args:
            name: name of the queue.
        """
        return await self.queue(name).pop()

    async def delete_message(self, name: str, id: str) -> bool:
        """Delete a message (RSMQ's name for ``Queue.delete``).

        Args:
            name: name of the queue.
            id: id of the message.
        """
        return await self.queue(name).delete(id)

    async def change_message_visibility(self, name: str, id: str, vt: Seconds) -> bool:
        """Hide a message for *vt* (RSMQ's name for ``Queue.change_visibility``).

        Args:
            name: name of the queue.
            id: id of the message.
            vt: seconds from now until it is visible.
        """
        return await self.queue(name).change_visibility(id, vt)

    async def quit(self) -> None:
        """Disconnect (RSMQ's name for ``aclose``)."""
        await self.aclose()
