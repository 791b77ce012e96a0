"""Operations run one by one on one blocking connection, for processes without an event loop."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from hiredis import pack_command
from redis import exceptions as driver_errors
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.retry import Retry

from .._common.backoff import Backoff
from .._protocol.operation import Argument, Operation, Reply
from ..embedded import EmbeddedServer
from ..errors import InvalidValue, RSMQError, Unavailable
from ..options import Options
from . import allowances
from .call_numbers import TicketBook
from .calls import Call
from .driver import NotExecuted, ReplyLost, ScriptMissing, WrongLayout
from .error_mapping import ANSWERS, explain, has_stepped_down
from .redis_versions import read_reply, tls_settings
from .urls import is_loopback, read

R = TypeVar("R")

SCHEMES = ("redis", "rediss", "unix", "embedded", "redis+sentinel", "rediss+sentinel")
RETRY_BASE_S, RETRY_CAP_S = 0.05, 2.0
CONNECT_S = 5.0
#: How long closing may take to make the server forget.
FORGET_S = 2.0
#: Memories that are taken away when the runner is closed; more are left to expire.
MAX_MEMORIES = 10_000
#: A kept connection that rested longer than this is asked for a sign of life first.
REST_S = 15.0


class BlockingRunner:
    """Runs operations, each in one round trip, on one connection that is opened when needed.

    As the asynchronous transport does: a call that certainly did not run is tried again until the
    deadline, one whose reply was lost only if it may be repeated. Threads take turns.
    """

    def __init__(
        self,
        url: str,
        *,
        deadline_s: float,
        password: str | None = None,
        plain_password: bool = False,
    ) -> None:
        # The rule for passwords is applied below, because this one may come from elsewhere.
        address = read(url, Options(plain_password=True))
        if address.scheme not in SCHEMES:
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise InvalidValue(f"{address.scheme}:// cannot be used here; use one of {known}")
        if password is not None:
            address = replace(address, login=address.login | {"password": password})
        self._address = address
        self._options = Options(plain_password=plain_password)
        for host, _ in address.hosts:
            self._check_exposure(host)
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._connection: Any = None
        self._used_at = 0.0
        self._server: EmbeddedServer | None = None
        self._tickets = TicketBook()
        # What the server remembers for us and can forget when we go; not what an attempt that is
        # still on its way must find.
        self._memories: set[str] = set()
        self._doubtful: set[str] = set()

    def run(self, operation: Operation[R]) -> R:
        """Run *operation* and return its result, or raise what became of it."""
        deadline = time.monotonic() + self._deadline_s
        with self._lock:
            call = Call([operation], self._tickets.take() if operation.memory else None)
            try:
                reply = self._make_call(call, deadline)
            except WrongLayout as damage:
                raise operation.fail(damage.code) from damage.__cause__
            except NotExecuted as outage:
                raise Unavailable(f"redis is not reachable: {outage}", transient=True) from outage
            except ReplyLost as outage:
                raise operation.lost(
                    f"redis gave no answer: {outage}", executed=None, transient=True
                ) from outage
            finally:
                # An attempt that is still on its way must find the memory, whatever comes next.
                if call.in_doubt and call.memory is not None:
                    self._doubtful.add(call.memory)
            # An outcome that is known; after any error the series is not used again.
            self._settled(call)
        if isinstance(reply, bytes):
            raise operation.fail(reply.decode())
        result: R = call.result_of(operation, reply[0] if operation.merge else reply)
        return result

    def close(self) -> None:
        """Make the server forget, close the connection, leave an embedded server to its others."""
        with self._lock:
            if self._connection is not None and not self._is_stale():
                self._forget()
            self._disconnect()
            if self._server is not None:
                self._server.release()
                self._server = None

    def _settled(self, call: Call) -> None:
        if call.ticket is None or call.memory is None:
            return
        self._tickets.settle(call.ticket)
        if len(self._memories) < MAX_MEMORIES:
            self._memories.add(call.memory)

    def _forget(self) -> None:
        """Take away what the server remembers and nobody will ask for; the rest expires."""
        memories = self._memories - self._doubtful
        self._memories.clear()
        if memories:
            with suppress(RSMQError, WrongLayout, NotExecuted, ReplyLost):
                packed = pack_command(("UNLINK", *memories))  # type: ignore[arg-type]
                self._attempt(packed, time.monotonic() + FORGET_S)

    def _make_call(self, call: Call, deadline: float) -> Reply:
        """Return the reply to *call*, which is repeated as long as that is safe."""
        backoff = Backoff(RETRY_BASE_S, RETRY_CAP_S)
        script = call.first.script
        how: tuple[Argument, ...] = ("EVALSHA", script.sha)
        while True:
            packed = pack_command((*how, *call.words()))  # type: ignore[arg-type]
            try:
                return self._attempt(packed, deadline)
            except ScriptMissing:
                how = ("EVAL", script.source)
                continue
            except NotExecuted as error:
                pause_s = backoff.next_s()
                if time.monotonic() + pause_s >= deadline:
                    raise ReplyLost(str(error)) if call.in_doubt else error from error
            except ReplyLost:
                call.doubt()
                pause_s = backoff.next_s()
                if not call.may_repeat or time.monotonic() + pause_s >= deadline:
                    raise
            time.sleep(pause_s)

    def _attempt(self, packed: Any, deadline: float) -> Reply:
        connection = self._connected()
        try:
            connection.send_packed_command([packed], check_health=False)
            reply = read_reply(connection, max(1.0, deadline - time.monotonic()))
        except ANSWERS as error:
            if has_stepped_down(error):
                self._disconnect()
            explain(error)
        except Exception as error:
            self._disconnect()
            raise ReplyLost(str(error) or type(error).__name__) from error
        except BaseException:
            # A reply nobody read would be taken for that of the next call.
            self._disconnect()
            raise
        self._used_at = time.monotonic()
        return reply

    def _connected(self) -> Any:
        try:
            if self._server is not None:
                self._server.check_folder()
            if self._connection is not None and self._is_stale():
                self._disconnect()
            if self._connection is None:
                connection = self._make()
                connection.connect()
                self._connection = connection
                if self._address.kind == "sentinel":
                    self._check_role(connection)
        except RSMQError:
            raise
        except (driver_errors.RedisError, OSError) as error:
            for cause in (error, error.__cause__, error.__context__):
                if isinstance(
                    cause, driver_errors.ResponseError | driver_errors.AuthenticationError
                ):
                    explain(cause)
            if self._server is not None:
                self._server.ensure_running()
            raise NotExecuted(str(error).rstrip(".") or type(error).__name__) from error
        return self._connection

    def _check_role(self, connection: Any) -> None:
        """Refuse a server that was the master when the sentinel last looked."""
        connection.send_command("ROLE", check_health=False)
        if read_reply(connection, CONNECT_S)[0] != b"master":
            self._disconnect()
            raise driver_errors.ConnectionError("the server that sentinels name is no master")

    def _is_stale(self) -> bool:
        """Tell whether a kept connection is closed, or rested and gives no sign of life."""
        try:
            if self._connection.can_read(timeout=0):
                return True
            if time.monotonic() - self._used_at > REST_S:
                self._connection.send_command("PING", check_health=False)
                read_reply(self._connection, CONNECT_S)
        except Exception:
            return True
        return False

    def _make(self) -> Any:
        """Return a connection, not opened yet but for the search for a master."""
        address = self._address
        if address.kind == "embedded":
            if self._server is None:
                path = address.path
                self._server = EmbeddedServer.acquire(Path(path).expanduser() if path else None)
            address = read(self._server.url, Options())
        if address.kind == "unix":
            return self._connection_to(
                UnixDomainSocketConnection, {"path": address.path, "db": address.db}, address.login
            )
        host, port = address.hosts[0]
        if address.kind == "sentinel":
            host, port = self._find_master()
            self._check_exposure(host)
        place = {"host": host, "port": port, "db": address.db}
        if address.tls is None:
            return self._connection_to(Connection, place, address.login)
        return self._connection_to(SSLConnection, place, address.login, tls_settings(address.tls))

    def _connection_to(self, kind: Any, *settings: dict[str, Any]) -> Any:
        given: dict[str, Any] = {
            "protocol": 2,
            "decode_responses": False,
            "retry": Retry(NoBackoff(), 0),
            "socket_timeout": self._deadline_s,
            "socket_connect_timeout": CONNECT_S,
            "client_name": "aiorsmq-ng",
        }
        for more in settings:
            given |= more
        return kind(**given)

    def _find_master(self) -> tuple[str, int]:
        """Return host and port of the master that the first sentinel that knows it names."""
        address, refusal = self._address, None
        kind = Connection if address.sentinel_tls is None else SSLConnection
        for host, port in address.hosts:
            place = {"host": host, "port": port, "socket_timeout": CONNECT_S}
            tls = tls_settings(address.sentinel_tls) if address.sentinel_tls is not None else {}
            sentinel = self._connection_to(kind, place, address.sentinel_login, tls)
            try:
                sentinel.connect()
                sentinel.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service)
                found = sentinel.read_response(disable_decoding=True)
            except (driver_errors.RedisError, OSError) as error:
                refusal = error
                continue
            finally:
                sentinel.disconnect()
            if found:
                return found[0].decode(), int(found[1])
        raise driver_errors.ConnectionError(
            f"no sentinel names a master of {address.service!r}"
        ) from (refusal)

    def _check_exposure(self, host: str) -> None:
        address = self._address
        exposed = address.exposes_password_to(host) or (
            "password" in address.sentinel_login
            and address.sentinel_tls is None
            and not is_loopback(host)
        )
        if exposed and not allowances.plain_password(self._options):
            secure = address.scheme.replace("redis", "rediss", 1)
            raise InvalidValue(
                f"a password would be sent to another machine in clear text; use {secure}://, or "
                f"allow it by {allowances.PLAIN_PASSWORD}=1 in the environment or the option "
                "plainPassword"
            )

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.disconnect()


_runners: dict[tuple[Any, ...], BlockingRunner] = {}


def shared_runner(
    url: str, *, deadline_s: float, password: str | None = None, plain_password: bool = False
) -> BlockingRunner:
    """Return this process's runner for *url*; calls with the same arguments get the same one."""
    key = (os.getpid(), url, deadline_s, password, plain_password)
    if key not in _runners:
        _runners[key] = BlockingRunner(
            url, deadline_s=deadline_s, password=password, plain_password=plain_password
        )
    return _runners[key]


# A child must not talk on its parent's connections.
os.register_at_fork(after_in_child=_runners.clear)
