"""What is stored, as redis-cli would show it."""

from __future__ import annotations

from redis.asyncio import Redis

#: Fields of a hash without messages, before anything was sent.
FIRST_FIELDS = {"vt", "delay", "maxsize", "created", "modified"}
EMPTY_FIELDS = FIRST_FIELDS | {"totalsent", "totalrecv"}


class Wire:
    """The keys of one namespace, read and written without any RSMQ client."""

    def __init__(self, raw: Redis, ns: str) -> None:
        self._raw = raw
        self.ns = ns

    def key(self, rest: str) -> str:
        return f"{self.ns}:{rest}"

    async def keys(self) -> dict[str, str]:
        """Return every lasting key of the namespace, without its prefix, and its type."""
        found = [
            key
            async for key in self._raw.scan_iter(f"{self.ns}:*", count=1000)
            if b":ng:call:" not in key
        ]
        skip = len(self.ns) + 1
        return {k.decode()[skip:]: (await self._raw.type(k)).decode() for k in found}

    async def hash(self, queue: str) -> dict[str, str]:
        stored = await self._raw.hgetall(self.key(f"{queue}:Q"))
        return {field.decode(): value.decode() for field, value in stored.items()}

    async def ids(self, queue: str) -> list[str]:
        return [id.decode() for id in await self._raw.zrange(self.key(queue), 0, -1)]

    async def score(self, queue: str, id: str) -> str:
        """Return a score as text; within a script the reply is not made a float."""
        script = "return redis.call('ZSCORE', KEYS[1], ARGV[1])"
        return (await self._raw.eval(script, 1, self.key(queue), id)).decode()

    async def now_ms(self) -> int:
        seconds, micros = await self._raw.time()
        return seconds * 1000 + micros // 1000

    async def plant(
        self,
        queue: str,
        fields: dict[str, str | int],
        ids: tuple[str, ...] = (),
        *,
        listed: bool = True,
    ) -> None:
        """Store a queue as some other program would; the ids are visible in the order given."""
        await self._raw.hset(self.key(f"{queue}:Q"), mapping=fields)
        if listed:
            await self._raw.sadd(self.key("QUEUES"), queue)
        if ids:
            first = await self.now_ms() - len(ids)
            await self._raw.zadd(self.key(queue), {id: first + n for n, id in enumerate(ids)})


def sent_ms(id: str) -> int:
    """Return the whole milliseconds of the send time that the front of an id holds."""
    return int(id[:10], 36) // 1000
