"""Take one mechanism out at a time and see the tests go red: ``python -m tools.mutants``.

Each mutant is the whole tree, copied, with one piece of text replaced. A mutant whose tests stay
green means that nothing watches the mechanism.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .storms import report

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "docs" / "reports" / "fault-report.json"
SCRIPTS = "aiorsmq_ng/_protocol/scripts"
KIT = "conformance/src/rsmq_conformance"

TOPICS = (
    "tests/contract/test_topics.py",
    "tests/contract/test_topic_peers.py",
    "tests/contract/test_topic_steps.py",
    "tests/faults/test_topics.py",
)
KEPT = ("tests/contract/test_topic_kept.py",)
HEADERS = ("tests/contract/test_headers.py", "tests/redis/test_headers.py")
HOSTILE = ("tests/broker/test_hostile.py",)
CONNECTS = ("tests/faults/test_connects.py",)


@dataclass(frozen=True)
class Mutant:
    """One mechanism, how it is taken out, and the tests that must notice."""

    mechanism: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "rmq: a payload is moved only if it was in the unacked list",
        f"{SCRIPTS}/rmq/rmq_settle.lua",
        "if done == 1 and where == 'last' then",
        "if where == 'last' then",
        ("tests/rmq/test_client.py",),
    ),
    Mutant(
        "rmq: a connection without heartbeat takes nothing",
        f"{SCRIPTS}/rmq/rmq_take.lua",
        "if heartbeat and redis.call('EXISTS', heartbeat) == 0 then return nil end\n",
        "",
        ("tests/rmq/test_cleaner.py",),
    ),
    Mutant(
        "rmq: a heartbeat that expired is not revived",
        f"{SCRIPTS}/rmq/rmq_beat.lua",
        "if ARGV[2] ~= '1' and redis.call('EXISTS', KEYS[1]) == 0 then return 0 end\n",
        "",
        ("tests/rmq/test_cleaner.py",),
    ),
    Mutant(
        "rmq: the cleaner's script looks for the heartbeat again",
        f"{SCRIPTS}/rmq/rmq_retire.lua",
        "if heartbeat and not back and redis.call('TTL', heartbeat) > 0 then return {-1, -1} end\n",
        "",
        ("tests/rmq/test_cleaner.py",),
    ),
    Mutant(
        "rmq: a give-back waits for the take that is in flight",
        "aiorsmq_ng/rmq/prefetch.py",
        "if self._taking or not due:",
        "if not due:",
        ("tests/rmq/test_order_of_give_backs.py",),
    ),
    Mutant(
        "rmq: what was taken ahead goes back with a cancelled delivery",
        "aiorsmq_ng/rmq/prefetch.py",
        "batch = sorted([*self._returned, *self._buffer], key=number_of)",
        "batch = [*self._buffer, *self._returned]",
        ("tests/rmq/test_order_of_give_backs.py",),
    ),
    Mutant(
        "rmq: a damaged key does not end the cleaner",
        "aiorsmq_ng/rmq/cleaner.py",
        "        except QueueCorrupt as error:\n            # The others",
        "        except ZeroDivisionError as error:\n            # The others",
        ("tests/rmq/test_cleaner.py",),
    ),
    Mutant(
        "rmq: closing gives everything back before the names go",
        "aiorsmq_ng/rmq/client.py",
        "                await self._connections.retire()\n",
        "                pass\n",
        ("tests/rmq/test_client.py",),
    ),
    Mutant(
        "rmq: what waits takes nothing",
        "aiorsmq_ng/_transport/list_waiter.py",
        '"BLMOVE", key, key, "RIGHT", "RIGHT"',
        '"BLMOVE", key, key + "x", "RIGHT", "RIGHT"',
        ("tests/rmq/test_client.py",),
    ),
    Mutant(
        "rmq: a repeated settlement answers as the first attempt",
        f"{SCRIPTS}/rmq/rmq_settle.lua",
        "local before = recall(memory, ARGV[1], ARGV[2])\n",
        "local before = nil\n",
        ("tests/rmq/test_lost_replies.py",),
    ),
    Mutant(
        "rmq: what a lost reply held is found in the unacked list",
        "aiorsmq_ng/rmq/connection.py",
        "                self._in_doubt |= error.executed is None\n",
        "",
        ("tests/rmq/test_lost_replies.py",),
    ),
    Mutant(
        "rmq: closing waits for acks in the background before it gives back",
        "aiorsmq_ng/rmq/prefetch.py",
        "                await self.acks.drain()\n",
        "                pass\n",
        ("tests/rmq/test_background_acks.py",),
    ),
    Mutant(
        "rmq: a message whose ack failed in the background is taken again",
        "aiorsmq_ng/rmq/delivery.py",
        "                held_of(delivery).doubt()\n",
        "",
        ("tests/rmq/test_background_acks.py",),
    ),
    Mutant(
        "rmq: a failed ack in the background is raised by the next step",
        "aiorsmq_ng/rmq/consumer.py",
        "            prefetch.acks.raise_error()\n",
        "            pass\n",
        ("tests/rmq/test_background_acks.py",),
    ),
    Mutant(
        "background acks: the window is bounded",
        "aiorsmq_ng/_runtime/background_acks.py",
        "        if self._open >= WINDOW:\n",
        "        if False:\n",
        ("tests/faults/test_background_acks.py",),
    ),
    Mutant(
        "background acks: a lost lease is raised by the next step",
        "aiorsmq_ng/consumer.py",
        "            acks.raise_error()\n",
        "            pass\n",
        ("tests/contract/test_background_acks.py",),
    ),
    Mutant(
        "background acks: the end of a worker waits for them",
        "aiorsmq_ng/worker/worker.py",
        "        await self._executions.finish_acks()\n",
        "",
        ("tests/contract/test_background_acks.py",),
    ),
    Mutant(
        "conformance: a scenario whose call came too late is begun again",
        f"{KIT}/player.py",
        '                self._in_time(step["within"])\n',
        "                pass\n",
        ("tests/conformance/test_mutants.py",),
    ),
    Mutant(
        "conformance: a driver that ended is started again for the next scenario",
        f"{KIT}/driver.py",
        "                lost.request = request\n                self._end()\n",
        "                lost.request = request\n",
        ("tests/conformance/test_command.py",),
    ),
    Mutant(
        "conformance: a server of the user is not disturbed",
        f"{KIT}/command.py",
        "disturb=private",
        "disturb=True",
        ("tests/conformance/test_command.py",),
    ),
    Mutant(
        "conformance: what a scenario stored is removed",
        f"{KIT}/player.py",
        '            self._redis.call("DEL", *left)\n',
        "            pass\n",
        ("tests/conformance/test_command.py",),
    ),
    Mutant(
        "conformance: a key that is left for ever is found",
        f"{KIT}/player.py",
        "        if extra := sorted(set(lasting) - set(expected)):\n",
        "        if extra := []:\n",
        ("tests/conformance/test_mutants.py",),
    ),
    Mutant(
        "testing: the times of deliveries pass with those of visibility",
        f"{SCRIPTS}/testing/test_shift_time.lua",
        "  store_notes(deliveries, shifted)\n",
        "",
        ("tests/testing/test_time.py",),
    ),
    Mutant(
        "connections: those of the pool are closed with the client",
        "aiorsmq_ng/_transport/redis_driver.py",
        "            await self._pool.disconnect()\n",
        "            pass\n",
        CONNECTS,
    ),
    Mutant(
        "connections: that of wake-ups is closed with its listener",
        "aiorsmq_ng/_transport/subscribed_connection.py",
        "connection, self._connection = self._connection, None",
        "connection, self._connection = None, None",
        CONNECTS,
    ),
    Mutant(
        "connections: those to sentinels are closed with the client",
        "aiorsmq_ng/_transport/connect.py",
        "        for node in sentinel.sentinels:\n            await node.aclose()\n",
        "",
        CONNECTS,
    ),
    Mutant(
        "ids: what the sorted set holds is a message only if it can be an id",
        f"{SCRIPTS}/shared/_is_id.lua",
        "if size < 20 or size > 64 then return false end",
        "",
        ("tests/redis/test_planted_members.py",),
    ),
    Mutant(
        "ids: the field of a message is no id",
        f"{SCRIPTS}/shared/_is_id.lua",
        " and tail ~= 'rc' and tail ~= 'fr' and tail ~= 'meta'",
        "",
        ("tests/redis/test_planted_members.py",),
    ),
    Mutant(
        "ids: a receipt for something else is that of a message that is gone",
        f"{SCRIPTS}/shared/_check_receipt.lua",
        " or not is_id(ids[i])",
        "",
        ("tests/redis/test_planted_members.py",),
    ),
    Mutant(
        "ids: merging queues stores no attribute by a member",
        f"{SCRIPTS}/topic/_merge_queues.lua",
        " and is_id(page[i])",
        "",
        ("tests/redis/test_planted_members.py",),
    ),
    Mutant(
        "ids: a redrive goes on behind what it only removes",
        "aiorsmq_ng/_runtime/redrive.py",
        "            if ready >= before:\n                break",
        "            break",
        ("tests/redis/test_planted_members.py",),
    ),
    Mutant(
        "closing: what is held is given back",
        "aiorsmq_ng/client.py",
        "self._transport.close_last = self._keeper.close",
        "",
        ("tests/faults/test_close.py",),
    ),
    Mutant(
        "closing: what was leased ahead is given back first, as not begun",
        "aiorsmq_ng/_transport/transport.py",
        "(*self.closers, self.close_last)",
        "(self.close_last, *self.closers)",
        ("tests/unit/test_lease_renewal.py",),
    ),
    Mutant(
        "closing: a message whose holder settles it is not given back",
        "aiorsmq_ng/_runtime/lease_renewal.py",
        "            if not lease.pauses:\n                self._give_back(lease)",
        "            self._give_back(lease)",
        ("tests/faults/test_close.py",),
    ),
    Mutant(
        "closing: a message whose lease was being extended is given back after that",
        "aiorsmq_ng/_runtime/lease_renewal.py",
        "            if self._closing:\n                self._give_back(lease)\n            elif",
        "            if",
        ("tests/faults/test_close.py",),
    ),
    Mutant(
        "closing: a cancellation of all tasks is outlived",
        "aiorsmq_ng/_transport/transport.py",
        "                    await self._outlive_cancellation()",
        "                    pass",
        ("tests/faults/test_close.py",),
    ),
    Mutant(
        "closing: a second cancellation of all tasks is outlived, too",
        "aiorsmq_ng/_transport/transport.py",
        "for _ in range(2):",
        "for _ in range(1):",
        ("tests/faults/test_close.py",),
    ),
    Mutant(
        "closing: a settlement that such a cancellation interrupts is repeated",
        "aiorsmq_ng/_transport/lost_calls.py",
        "        elif any(waiting.is_wanted for waiting in call.callers):",
        "        elif False:",
        ("tests/unit/test_closing.py",),
    ),
    Mutant(
        "closing: a call that such a cancellation interrupts is recalled",
        "aiorsmq_ng/_transport/transport.py",
        "                await self._calls.lost.finish_interrupted(self._calls.complete)\n",
        "",
        ("tests/unit/test_closing.py",),
    ),
    Mutant(
        "side keys: one of another type is no error",
        f"{SCRIPTS}/shared/_side_key.lua",
        "if string.find(reply.err, 'WRONGTYPE', 1, true) then return nil end",
        "",
        ("tests/redis/test_side_keys.py",),
    ),
    Mutant(
        "side keys: any other error ends the script",
        f"{SCRIPTS}/shared/_side_key.lua",
        "  error(redis.REDIS_VERSION_NUM and reply or reply.err, 0)\n",
        "",
        ("tests/security/test_acl.py",),
    ),
    Mutant(
        "sync client: one that was not used before a fork is closed by the child",
        "aiorsmq_ng/_runtime/sync_client.py",
        "        if client.transport.is_gone:\n",
        "        if True:\n",
        ("tests/faults/test_sync_client.py",),
    ),
    Mutant(
        "spark: a signal that interrupts stop() does not leave claims behind",
        "aiorsmq_ng/spark/stream_reader.py",
        "            atexit.register(self.stop)\n",
        "",
        ("tests/spark/test_stopping.py",),
    ),
    Mutant(
        "spark: what was claimed ahead leaves room for queues that had nothing",
        "aiorsmq_ng/spark/stream_queues.py",
        "            more = divide(limit, rest, self._batch + 1)\n",
        "            more = divide(limit, {n: rest[n] for n in latest}, self._batch + 1)\n",
        ("tests/spark/test_stream_queues.py",),
    ),
    Mutant(
        "spark: what an earlier run left is given back though nothing else waits",
        "aiorsmq_ng/spark/stream_queues.py",
        "            given = self._left(limit, offsets) | ready | shares\n",
        "            given = ready | shares\n",
        ("tests/spark/test_stream_queues.py",),
    ),
    Mutant(
        "spark: a queue that was deleted begins as a new one",
        "aiorsmq_ng/spark/stream_queues.py",
        "            known = None if name in self._dropped else start.offsets.get(name)\n",
        "            known = start.offsets.get(name)\n",
        ("tests/spark/test_stream_queues.py",),
    ),
    Mutant(
        "spark: an unexpected error of the renewal is raised by the next call",
        "aiorsmq_ng/spark/stream_claims.py",
        "                except Exception as error:\n",
        "                except ZeroDivisionError as error:\n",
        ("tests/spark/test_stream_claims.py",),
    ),
    Mutant(
        "worker: a handler that has ended is not called stuck",
        "aiorsmq_ng/worker/handler_execution.py",
        "            for timer in self._timers:\n                timer.cancel()",
        "            pass",
        ("tests/contract/test_worker_leases.py",),
    ),
    Mutant(
        "worker: the move of its own message to the dead letters is logged",
        "aiorsmq_ng/worker/worker.py",
        "            log_move(letter)",
        "            pass",
        ("tests/contract/test_dead_letters.py",),
    ),
    Mutant(
        "worker: the search for queues goes on if other code cancels it",
        "aiorsmq_ng/worker/worker.py",
        'while found is None and self._state in ("running", "paused"):',
        "for _ in range(1):",
        ("tests/contract/test_worker_leases.py",),
    ),
    Mutant(
        "waiters: a message calls one waiter, not all",
        f"{SCRIPTS}/shared/_wake_waiters.lua",
        "#members_between(zset, '-inf', now, coming, idle)",
        "idle",
        ("tests/redis/test_waiters.py",),
    ),
    Mutant(
        "waiters: one more looks a moment later, should the called one not come",
        f"{SCRIPTS}/shared/_wake_waiters.lua",
        "cover(now + 1, now + MOMENT_MS, now + MOMENT_MS)",
        "",
        ("tests/redis/test_waiters.py",),
    ),
    Mutant(
        "waiters: one whose connection is gone is skipped",
        f"{SCRIPTS}/shared/_wake_waiters.lua",
        "local gone = subscribers == 0 and",
        "local gone = false and",
        ("tests/redis/test_waiters.py",),
    ),
    Mutant(
        "waiters: what a receive leaves is for others",
        f"{SCRIPTS}/queue/receive.lua",
        "if #notes > 0 then wake_waiters(zset, now, micros) end",
        "",
        ("tests/redis/test_waiters.py",),
    ),
    Mutant(
        "waiters: a wake-up of a loop without waiters is passed on",
        "aiorsmq_ng/_runtime/long_poll.py",
        "self._transport.begin(calls[channel]",
        "list(calls[channel]",
        ("tests/redis/test_waiters.py",),
    ),
    Mutant(
        "waiters: a wake-up that overtakes the reply is for the caller of that receive",
        "aiorsmq_ng/_runtime/long_poll.py",
        "            if not self._in_flight:\n                if loop",
        "            if True:\n                if loop",
        ("tests/redis/test_waiters.py",),
    ),
    Mutant(
        "waiters: a scheduled receive without waiters is passed on in time",
        "aiorsmq_ng/_runtime/long_poll.py",
        "if min(self._scheduled_at, self._fallback_at) <= asyncio",
        "if False and asyncio",
        ("tests/redis/test_waiters.py",),
    ),
    Mutant(
        "waiters: a loop that ends passes its scheduled receive on",
        "aiorsmq_ng/_runtime/long_poll.py",
        "            self._leave()\n",
        "",
        ("tests/redis/test_waiters.py",),
    ),
    Mutant(
        "waiters: a loop that no queue knows sends nothing when it ends",
        "aiorsmq_ng/_runtime/long_poll.py",
        "if self._registered and self._notifier",
        "if self._notifier",
        ("tests/unit/test_long_poll.py",),
    ),
    Mutant(
        "waiters: a loop without a connection sends nothing when it ends",
        "aiorsmq_ng/_runtime/long_poll.py",
        "if self._registered and self._notifier.is_subscribed(self._source.calls):",
        "if self._registered:",
        ("tests/unit/test_long_poll.py",),
    ),
    Mutant(
        "waiters: a loop that ended has another name the next time",
        "aiorsmq_ng/_runtime/long_poll.py",
        "            self._renew_name()\n            self._stopped.set()",
        "            self._stopped.set()",
        ("tests/unit/test_long_poll.py",),
    ),
    Mutant(
        "waiters: one that polls often leaves the slower ones registered",
        f"{SCRIPTS}/queue/_schedule_look.lua",
        "math.max(cap_ms, (tonumber(last[2]) or 0) - now)",
        "cap_ms",
        ("tests/redis/test_waiters.py",),
    ),
    Mutant(
        "waiters: a promise of its own covers nothing",
        f"{SCRIPTS}/queue/_schedule_look.lua",
        "return found[1] ~= waiter and found[1] or found[2]",
        "return found[1]",
        ("tests/redis/test_waiters.py",),
    ),
    Mutant(
        "create: an existing queue is found before the first write",
        f"{SCRIPTS}/queue/create_queue.lua",
        "if listed and present[1]",
        "if false and present[1]",
        ("tests/faults/test_full_server.py",),
    ),
    Mutant(
        "codec: a union with text is refused, for text is stored as it is",
        "aiorsmq_ng/codec.py",
        "if (stored := _stored_as(wanted)) != {_BY_CODEC}:",
        "if (stored := _stored_as(wanted)) in ({str}, {bytes}):",
        ("tests/property/test_codec.py",),
    ),
    Mutant(
        "codec: msgspec reads what it wrote around models",
        "aiorsmq_ng/codec.py",
        "if not _holds(wanted, _is_of_msgspec, set()):",
        "if True:",
        ("tests/property/test_codec.py",),
    ),
    Mutant(
        "codec: computed fields of a model are not sent",
        "aiorsmq_ng/codec.py",
        "by_alias=True, round_trip=True)",
        "by_alias=True)",
        ("tests/property/test_codec.py",),
    ),
    Mutant(
        "watch: ends with its client",
        "aiorsmq_ng/_transport/notifier.py",
        "                if closed:\n                    return\n",
        "",
        ("tests/contract/test_long_poll.py",),
    ),
    Mutant(
        "health: a server that does not answer is noticed",
        "aiorsmq_ng/_transport/server_monitor.py",
        "if not self._away and now - self._since >= AWAY_S:",
        "if False:",
        ("tests/contract/test_worker_health.py",),
    ),
    Mutant(
        "start: a refusal is not waited for",
        "aiorsmq_ng/_runtime/outage_retries.py",
        "if not error.transient:",
        "if False:",
        ("tests/unit/test_call_retries.py",),
    ),
    Mutant(
        "handlers: a class that no body can be is refused",
        "aiorsmq_ng/codec.py",
        "if stranger is not None:",
        "if False:",
        ("tests/contract/test_worker_start.py",),
    ),
    Mutant(
        "worker: looks before it creates",
        "aiorsmq_ng/worker/startup.py",
        "if not await queue.exists():",
        "if True:",
        ("tests/security/test_acl.py", "tests/broker_client/test_roles.py"),
    ),
    Mutant(
        "worker: needs no right to look at dead letters",
        "aiorsmq_ng/worker/startup.py",
        "except AccessDenied as error:",
        "except Unavailable as error:",
        ("tests/broker_client/test_roles.py",),
    ),
    Mutant(
        "worker: a wait for queues behind a broker has a limit",
        "aiorsmq_ng/worker/startup.py",
        "limit_s or math.inf",
        "math.inf",
        ("tests/contract/test_worker_health.py",),
    ),
    Mutant(
        "open: one try ends when the whole wait does",
        "aiorsmq_ng/client.py",
        "min(try_s, ends_at - anyio.current_time())",
        "try_s",
        ("tests/contract/test_worker_health.py",),
    ),
    Mutant(
        "open: what does not answer but is in use is kept",
        "aiorsmq_ng/_transport/transport.py",
        "if not in_use:",
        "if True:",
        ("tests/contract/test_worker_health.py",),
    ),
    Mutant(
        "bodies: keys of a body are not told",
        "aiorsmq_ng/codec.py",
        "isinstance(p, int) or p in known",
        "True",
        ("tests/unit/test_codec.py",),
    ),
    Mutant(
        "fence: rc and fr are compared",
        f"{SCRIPTS}/shared/_check_receipt.lua",
        "(stored[2 * i - 1] == rc and stored[2 * i] == fr)",
        "true",
        ("tests/contract/test_deliveries.py", "tests/lab/test_simulation.py"),
    ),
    Mutant(
        "clock: read inside the script, not before",
        f"{SCRIPTS}/shared/_clock.lua",
        "return seconds * 1000 + math.floor(micros / 1000),",
        "return seconds * 1000 + math.floor(micros / 1000) - 1500,",
        ("tests/contract/test_messages.py",),
    ),
    Mutant(
        "sequence: a send that ran is not run again",
        f"{SCRIPTS}/shared/_replay_send.lua",
        "if last == number and outcome then",
        "if false then",
        ("tests/contract/test_repeated_calls.py", "tests/storms"),
    ),
    Mutant(
        "sequence: late attempts of earlier calls do nothing",
        f"{SCRIPTS}/shared/_idempotency.lua",
        "if newest > number or (try > 0 and try <= tonumber(seen)) then return '' end",
        "if newest > number then return nil end",
        ("tests/contract/test_repeated_calls.py",),
    ),
    Mutant(
        "attempt token: a receive that ran answers as before",
        f"{SCRIPTS}/queue/receive.lua",
        "local before = recall(memory, ARGV[1], ARGV[2])",
        "local before = nil",
        ("tests/contract/test_repeated_calls.py", "tests/faults/test_lost_replies.py"),
    ),
    Mutant(
        "attempt token: what another client received since is left out",
        f"{SCRIPTS}/queue/_replay_receive.lua",
        "stored[2] == rc and stored[3] == fr",
        "stored[2]",
        ("tests/contract/test_repeated_calls.py",),
    ),
    Mutant(
        "recall: a receive given up by its caller is given back",
        "aiorsmq_ng/_transport/lost_calls.py",
        "if call.number and call.kind.undo and self._recalls < MAX_RECALLS:",
        "if False:",
        ("tests/unit/test_transport.py", "tests/faults/test_lost_replies.py"),
    ),
    Mutant(
        "rights: exist_ok finds a queue that the caller may not create",
        "aiorsmq_ng/client.py",
        "if not exist_ok or not await queue.exists():",
        "if True:",
        ("tests/security/test_acl.py", "tests/broker_client/test_roles.py"),
    ),
    Mutant(
        "tasks: one that is cancelled before its first step leaves no warning",
        "aiorsmq_ng/_common/tasks.py",
        "for coroutine in filter(_has_not_begun, self._new):",
        "for coroutine in ():",
        ("tests/unit/test_closing.py",),
    ),
    Mutant(
        "doctor: a call record, reason or marker of another type is named",
        f"{SCRIPTS}/doctor/doctor_keys.lua",
        "if stored and stored ~= 'none' and stored ~= 'string' then",
        "if false then",
        ("tests/redis/test_side_keys.py",),
    ),
    Mutant(
        "parked series: an open call's series is not used for others",
        "aiorsmq_ng/_transport/call_runner.py",
        "        for place, waiting in enumerate(call.callers):\n            waiting.fail(",
        "        self._numbers.release(call)\n"
        "        for place, waiting in enumerate(call.callers):\n            waiting.fail(",
        ("tests/unit/test_transport.py", "tests/faults/test_lost_replies.py"),
    ),
    Mutant(
        "late attempts: an extend that was overtaken hides nothing",
        f"{SCRIPTS}/queue/visibility.lua",
        "if known then",
        "if false then",
        ("tests/contract/test_repeated_calls.py",),
    ),
    Mutant(
        "closing leaves the memory of a call that is still open",
        "aiorsmq_ng/_transport/call_numbers.py",
        "        if (record := call.record) is not None:\n            self._doubtful.add(record)",
        "        pass",
        ("tests/unit/test_transport.py",),
    ),
    Mutant(
        "timeouts: an attempt that has less time than others brings the shared timer forward",
        "aiorsmq_ng/_transport/call_retries.py",
        "if at < self._wakes_at:",
        "if self._timer is None:",
        ("tests/unit/test_call_retries.py",),
    ),
    Mutant(
        "timeouts: the shared timer is set again for the attempts that go on",
        "aiorsmq_ng/_transport/call_retries.py",
        "        if self._in_flight:\n",
        "        if False:\n",
        ("tests/unit/test_call_retries.py",),
    ),
    Mutant(
        "timeouts: an attempt that was answered is not cancelled later",
        "aiorsmq_ng/_transport/call_retries.py",
        "        self._in_flight.pop(timeout, None)\n",
        "",
        ("tests/unit/test_call_retries.py",),
    ),
    Mutant(
        "doubt: a refusal after a lost reply is not taken for the outcome",
        "aiorsmq_ng/_transport/call_retries.py",
        "if call.in_doubt:\n",
        "if False:\n",
        ("tests/unit/test_transport.py",),
    ),
    Mutant(
        "pop is never repeated",
        "aiorsmq_ng/_transport/call.py",
        "self.may_repeat = number is not None or first.kind.repeatable",
        "self.may_repeat = True",
        ("tests/unit/test_transport.py", "tests/faults/test_outages.py"),
    ),
    Mutant(
        "dedup key: a second copy is refused",
        f"{SCRIPTS}/shared/_dedup_marker.lua",
        "if type(found) ~= 'string' then return false end",
        "return false",
        ("tests/contract/test_repeated_calls.py",),
    ),
    Mutant(
        "dedup key: a marker counts in the queue that it was made for",
        f"{SCRIPTS}/shared/_dedup_marker.lua",
        "return of == incarnation and id",
        "return id",
        ("tests/contract/test_dedup.py",),
    ),
    Mutant(
        "doctor: queues of rbmq are left alone",
        f"{SCRIPTS}/doctor/doctor_queue.lua",
        "if type_of(zset .. tail, redis.pcall) == 'hash' then",
        "if false then",
        ("tests/doctor/test_doctor.py",),
    ),
    Mutant(
        "side key: entries of messages that other clients deleted go",
        f"{SCRIPTS}/shared/_prune_notes.lua",
        "if not scores[i] then",
        "if false then",
        ("tests/contract/test_recover.py",),
    ),
    Mutant(
        "embedded: a folder that is another one now is refused",
        "aiorsmq_ng/embedded/server.py",
        "return _identity(os.stat(self._entry)) == self._identity",
        "return os.path.exists(self._entry)",
        ("tests/embedded/test_lifetime.py",),
    ),
    Mutant(
        "embedded: the caretaker leaves a server with users alone",
        "aiorsmq_ng/embedded/caretaker.py",
        "if not _lock(self._users):",
        "if _lock(self._users) and False:",
        ("tests/embedded/test_lifetime.py",),
    ),
    Mutant(
        "full server: consumers go on (allow-oom)",
        f"{SCRIPTS}/shared/_allow_writes_when_full.lua",
        "redis.call('HDEL', hash, '')",
        "",
        ("tests/faults/test_connections.py",),
    ),
    Mutant(
        "dirty connection: an unread reply is noticed",
        "aiorsmq_ng/_transport/redis_driver.py",
        "if not connection.is_connected or await redis_versions.has_unread(connection):",
        "if not connection.is_connected:",
        ("tests/faults/test_connections.py", "tests/faults/test_outages.py"),
    ),
    Mutant(
        "lease: counted from before the request",
        "aiorsmq_ng/_transport/call.py",
        "return kind.with_start_time(result, self.began_at)",
        "return kind.with_start_time(result, asyncio.get_running_loop().time())",
        ("tests/unit/test_transport.py",),
    ),
    Mutant(
        "durability: below the level is an error",
        "aiorsmq_ng/_transport/call.py",
        "if not durability.met_by(reached):",
        "if False:",
        ("tests/faults/test_durability.py",),
    ),
    Mutant(
        "durability: a repetition writes, so that WAIT speaks of it",
        "aiorsmq_ng/_transport/script_calls.py",
        "if question is not None and attempt > 1:",
        "if False:",
        ("tests/faults/test_durability.py",),
    ),
    Mutant(
        "failover: a master that was replaced delivers nothing",
        "aiorsmq_ng/_transport/redis_driver.py",
        "if self._has_sentinels and await",
        "if False and await",
        ("tests/faults/test_superseded.py",),
    ),
    Mutant(
        "failover: a node that was replaced delivers nothing",
        "aiorsmq_ng/_transport/cluster_driver.py",
        "if command.min_replicas and not asking:",
        "if False:",
        ("tests/unit/test_cluster_driver.py",),
    ),
    Mutant(
        "eviction: allkeys-* is refused",
        "aiorsmq_ng/_transport/server_check.py",
        'if policy.startswith("allkeys-"):',
        "if False:",
        ("tests/faults/test_durability.py",),
    ),
    Mutant(
        "receive: a reply of more than 1000 messages is whole",
        f"{SCRIPTS}/queue/_lease.lua",
        "for at = 4001, 4 * count do",
        "for at = 4001, 0 do",
        ("tests/contract/test_messages.py",),
    ),
    Mutant(
        "poison: the limit of deliveries is inside receive",
        f"{SCRIPTS}/queue/_lease.lua",
        "if not received_too_often(dead, rc, history) then return false end",
        "if true then return false end",
        ("tests/contract/test_worker.py",),
    ),
    Mutant(
        "cancellation: what was taken for a cancelled caller is given back",
        "aiorsmq_ng/_transport/call_runner.py",
        "self._tasks.undo(waiting.operation, result)",
        "pass",
        ("tests/unit/test_transport.py", "tests/faults/test_cancellation.py"),
    ),
    Mutant(
        "topics: a publish with an old version stores nothing",
        f"{SCRIPTS}/topic/publish.lua",
        "if not version_is(topic, ARGV[6]) then",
        "if false then",
        TOPICS,
    ),
    Mutant(
        "topics: a version is never used twice",
        f"{SCRIPTS}/topic/_topic_version.lua",
        "string.format('%.0f-%s', seconds * 1000000 + micros, nonce)",
        "(redis.call('HINCRBY', topic, 'count', 1))",
        TOPICS,
    ),
    Mutant(
        "topics: a publish that ran is not run again",
        f"{SCRIPTS}/topic/publish.lua",
        "  if known then\n",
        "  if false then\n",
        TOPICS,
    ),
    Mutant(
        "topics: an attempt whose repetition was refused comes late",
        f"{SCRIPTS}/shared/_replay_send.lua",
        "  redis.call('SET', memory, call_number .. ' void', 'PX', 3600000)\n",
        "",
        TOPICS,
    ),
    Mutant(
        "topics: late attempts of earlier calls do nothing",
        f"{SCRIPTS}/shared/_replay_send.lua",
        "if known and attempt == '1' and",
        "if false and",
        TOPICS,
    ),
    Mutant(
        "topics: all queues are looked at before the first write",
        f"{SCRIPTS}/topic/publish.lua",
        "local present = redis.call('ZCARD', zset)",
        "local present = 0",
        TOPICS,
    ),
    Mutant(
        "topics: a body must fit into every subscription",
        f"{SCRIPTS}/topic/publish.lua",
        "(least < 0 or target.maxsize < least)",
        "true",
        TOPICS,
    ),
    Mutant(
        "topics: a deleted queue ends its subscription",
        f"{SCRIPTS}/topic/publish.lua",
        "if target then add(target) else lost[#lost + 1] = ARGV[at] end",
        "if target then add(target) end",
        TOPICS,
    ),
    Mutant(
        "topics: the first subscription gets what waited",
        f"{SCRIPTS}/topic/topic_join.lua",
        "if ARGV[10] == '1' and not",
        "if false and not",
        TOPICS,
    ),
    Mutant(
        "topics: what is kept goes to a consumer once",
        f"{SCRIPTS}/topic/_retain_backlog.lua",
        "if redis.call('HSETNX', kept[2], 'to:' .. consumer, 1) == 0 then return end",
        "redis.call('HSETNX', kept[2], 'to:' .. consumer, 1)",
        KEPT,
    ),
    Mutant(
        "topics: what is kept is that of the last first subscription",
        f"{SCRIPTS}/topic/_retain_backlog.lua",
        "redis.call('UNLINK', kept[1], kept[2], headers_of(kept[1]))",
        "",
        KEPT,
    ),
    Mutant(
        "topics: what is kept has an end",
        f"{SCRIPTS}/topic/_retain_backlog.lua",
        "redis.call('PEXPIRE', kept[1], ttl)",
        "",
        KEPT,
    ),
    Mutant(
        "topics: what is kept stays for the next",
        f"{SCRIPTS}/topic/_merge_queues.lua",
        "if not copy then delete_messages(from, page) end",
        "delete_messages(from, page)",
        KEPT,
    ),
    Mutant(
        "topics: two first subscribers do not split what waited",
        f"{SCRIPTS}/topic/topic_join.lua",
        "and now - at < 10000 then return -1 end",
        "and false then return -1 end",
        TOPICS,
    ),
    Mutant(
        "topics: what the keeper left is not deleted",
        "aiorsmq_ng/_protocol/topic_state.py",
        "peers = self.copies(me.consumer)[1:]",
        "peers = self.copies(me.consumer)",
        TOPICS,
    ),
    Mutant(
        "suspects: leased alone",
        f"{SCRIPTS}/queue/_lease.lua",
        "if history and history.strikes > 0 then return",
        "if false then return",
        ("tests/contract/test_suspects.py", "tests/faults/test_poison.py"),
    ),
    Mutant(
        "suspects: handled while the worker holds nothing else",
        "aiorsmq_ng/worker/intake.py",
        "if batch[0].suspect:",
        "if False:",
        ("tests/contract/test_suspects.py",),
    ),
    Mutant(
        "suspects: a return in order is noted",
        f"{SCRIPTS}/queue/visibility.lua",
        "if how ~= '' then over[#over + 1] = n end",
        "",
        ("tests/contract/test_suspects.py",),
    ),
    Mutant(
        "suspects: what is known of deliveries is carried to the keeper",
        f"{SCRIPTS}/topic/_merge_queues.lua",
        "store_notes(to[3], notes)",
        "",
        ("tests/contract/test_topic_peers.py",),
    ),
    Mutant(
        "suspects: what is known of deliveries is renamed with a queue",
        f"{SCRIPTS}/topic/_merge_queues.lua",
        "for i = 1, 4 do",
        "for i = 1, 2 do",
        ("tests/contract/test_topic_peers.py",),
    ),
    Mutant(
        "headers: are renamed with a queue",
        f"{SCRIPTS}/topic/_merge_queues.lua",
        "for i = 1, 4 do",
        "for i = 1, 3 do",
        HEADERS,
    ),
    Mutant(
        "headers: are removed with their message",
        f"{SCRIPTS}/shared/_remove_messages.lua",
        "  if n > 0 then remove_headers(zset, with_headers(ids)) end\n",
        "",
        HEADERS,
    ),
    Mutant(
        "headers: go with a message to another queue",
        f"{SCRIPTS}/shared/_copy_headers.lua",
        "if found then",
        "if false then",
        HEADERS,
    ),
    Mutant(
        "headers: those that other clients leave behind are removed",
        f"{SCRIPTS}/shared/_store_headers.lua",
        "if added >= 8 and",
        "if false and",
        HEADERS,
    ),
    Mutant(
        "headers: a longer delay prolongs them, and a shorter one does not end them sooner",
        f"{SCRIPTS}/shared/_store_headers.lua",
        "left < least then",
        "true then",
        HEADERS,
    ),
    Mutant(
        "headers: a repeated receive brings them again",
        f"{SCRIPTS}/queue/_replay_receive.lua",
        "return rows, marks, read_headers(zset, with_headers(held))",
        "return rows, marks, {}",
        HEADERS,
    ),
    Mutant(
        "suspects: a claim keeps what is known of deliveries",
        f"{SCRIPTS}/spark/claim.lua",
        "local i, history = places[n], histories[n]",
        "local i, history = places[n], parse_note('', 0, 0)",
        ("tests/spark/test_claims.py",),
    ),
    Mutant(
        "suspects: a claim that is released keeps what is known of deliveries",
        f"{SCRIPTS}/spark/claim_release.lua",
        "note_of_return(notes[i],",
        "note_of_return(nil,",
        ("tests/spark/test_claims.py",),
    ),
    Mutant(
        "spark: a row keeps its id",
        f"{SCRIPTS}/spark/_store_rows.lua",
        "if string.byte(id) == 61 then",
        "if #id > 23 then",
        ("tests/spark/test_bulk_send.py",),
    ),
    Mutant(
        "spark: a read ends at its bytes",
        f"{SCRIPTS}/spark/_bodies.lua",
        "while count < #ids and bytes < most do\n    local upto",
        "while count < #ids do\n    local upto",
        ("tests/spark/test_bytes.py",),
    ),
    Mutant(
        "spark: bodies that may be long are read one by one",
        f"{SCRIPTS}/spark/_bodies.lua",
        "return math.max(1, math.min(16, math.floor(left / maxsize)))",
        "return 16",
        ("tests/spark/test_bytes.py",),
    ),
    Mutant(
        "spark: moved messages are read and released up to the bytes of a call",
        f"{SCRIPTS}/spark/_moved.lua",
        "      if bytes >= most then break end\n",
        "",
        ("tests/spark/test_bytes.py",),
    ),
    Mutant(
        "spark: a score belongs to one lean lease",
        f"{SCRIPTS}/shared/_lean_lease.lua",
        "redis.call('ZADD', leases_of(zset), 'NX', score, score) == 1",
        "redis.call('ZADD', leases_of(zset), score, score) >= 0",
        ("tests/spark/test_claim_model.py",),
    ),
    Mutant(
        "spark: a lean lease ends at half a millisecond",
        f"{SCRIPTS}/shared/_lean_lease.lua",
        "math.floor(ends) + 0.5",
        "math.floor(ends)",
        (
            "tests/spark/test_lean_claims.py",
            "tests/spark/test_claim_model.py",
        ),
    ),
    Mutant(
        "spark: every run of a claim has a lean lease of its own",
        f"{SCRIPTS}/spark/claim.lua",
        "if not lease or #ids[i] ~= width then",
        "if not lease then",
        ("tests/spark/test_claim_model.py",),
    ),
    Mutant(
        "spark: a claim counts a lean lease that expired",
        f"{SCRIPTS}/spark/claim.lua",
        "local lapsed = scores[i] and is_lean(scores[i])",
        "local lapsed = false",
        (
            "tests/spark/test_lean_claims.py",
            "tests/spark/test_claim_model.py",
        ),
    ),
    Mutant(
        "spark: what was received is looked up",
        f"{SCRIPTS}/spark/claim.lua",
        "local untouched = not expired and is_untouched(zset, hash)",
        "local untouched = not expired",
        ("tests/spark/test_claim_model.py",),
    ),
    Mutant(
        "spark: an acknowledgement removes the counts of received messages",
        f"{SCRIPTS}/spark/claim_ack.lua",
        "is_untouched(zset, hash), held",
        "true, held",
        ("tests/spark/test_claim_model.py",),
    ),
    Mutant(
        "spark: a released message is counted",
        f"{SCRIPTS}/spark/claim_release.lua",
        "if moved or part.lean then",
        "if moved then",
        ("tests/spark/test_claim_model.py",),
    ),
    Mutant(
        "spark: a dead letter leaves a mark in its claim",
        f"{SCRIPTS}/spark/claim_dead_letter.lua",
        "      done = place + width\n",
        "",
        ("tests/spark/test_claim_dead_letters.py",),
    ),
    Mutant(
        "spark: marks of dead letters tell runs apart",
        f"{SCRIPTS}/spark/claim_dead_letter.lua",
        "'.0f', number)",
        "'.0f', 0)",
        ("tests/spark/test_claim_dead_letters.py",),
    ),
    Mutant(
        "spark: a message that others received is not dead-lettered",
        f"{SCRIPTS}/spark/claim_dead_letter.lua",
        "return state[1] == true",
        "return true",
        (
            "tests/spark/test_claim_dead_letters.py",
            "tests/spark/test_claim_model.py",
        ),
    ),
    Mutant(
        "spark: a former holder of the ledger dead-letters nothing",
        f"{SCRIPTS}/spark/claim_dead_letter.lua",
        "if refused then return refused end",
        "",
        ("tests/spark/test_claim_dead_letters.py",),
    ),
    Mutant(
        "spark: a dead letter is not released",
        f"{SCRIPTS}/spark/claim_release.lua",
        "moved and not is_mark(ids[i])",
        "moved",
        (
            "tests/spark/test_claim_dead_letters.py",
            "tests/spark/test_claim_model.py",
        ),
    ),
    Mutant(
        "spark: a dead letter is not read again",
        f"{SCRIPTS}/spark/claim_read.lua",
        "if dead[i] then bodies[i] = false elseif",
        "if",
        (
            "tests/spark/test_claim_dead_letters.py",
            "tests/spark/test_claim_model.py",
        ),
    ),
    Mutant(
        "spark: dead letters are moved before their task has succeeded",
        "aiorsmq_ng/spark/stream_reader.py",
        "            self._dead_letter(slice, at, page, builder.undecodable)\n",
        "",
        ("tests/spark/test_stream_dead_letters.py",),
    ),
    Mutant(
        "spark: a ledger that holds moved messages never expires",
        f"{SCRIPTS}/spark/claim.lua",
        "  redis.call('PERSIST', ledger)\n",
        "",
        ("tests/spark/test_lean_claims.py",),
    ),
    Mutant(
        "spark: purge leaves lean leases",
        f"{SCRIPTS}/queue/purge.lua",
        "(counts[i] or is_lean(scores[i]))",
        "counts[i]",
        ("tests/spark/test_lean_claims.py",),
    ),
    Mutant(
        "spark: a commit of staged rows ends at its bytes",
        f"{SCRIPTS}/spark/stage_move.lua",
        "while #rows < upto and left > 0 do",
        "while #rows < upto do",
        ("tests/spark/test_bytes.py",),
    ),
    Mutant(
        "spark: a claim by leases ends at its bytes",
        f"{SCRIPTS}/spark/claim.lua",
        "elseif left < math.huge then",
        "elseif false then",
        ("tests/spark/test_bytes.py",),
    ),
    Mutant(
        "spark: a claim counts the bytes of its calls together",
        f"{SCRIPTS}/spark/claim.lua",
        "size > 0 and tonumber(known[3]) or 0",
        "0",
        ("tests/spark/test_bytes.py",),
    ),
    Mutant(
        "spark: a call sends rows up to its bytes",
        "aiorsmq_ng/spark/writers.py",
        "if sum(map(len, bodies[:most])) < options.send_bytes:",
        "if most:",
        ("tests/spark/test_bytes.py",),
    ),
    Mutant(
        "spark: a batch that its bytes ended is full",
        f"{SCRIPTS}/spark/claim.lua",
        "complete and 1 or 0, full and 1 or 0}",
        "complete and 1 or 0, total >= limit and 1 or 0}",
        ("tests/spark/test_bytes.py",),
    ),
    Mutant(
        "spark: few messages are asked for where few fit into a page",
        "aiorsmq_ng/spark/paging.py",
        "min(most, 2 * page.size)",
        "most",
        ("tests/spark/test_bytes.py",),
    ),
    Mutant(
        "spark: a claim of nothing is not open",
        f"{SCRIPTS}/spark/claim.lua",
        "if taken > 0 then\n  if size == 0",
        "if found > 0 then\n  if size == 0",
        ("tests/spark/test_claims.py",),
    ),
    Mutant(
        "topics: a queue that is renamed leaves its dedup keys where they are",
        f"{SCRIPTS}/shared/_queue_fields.lua",
        ", 'ng:incarnation'",
        "",
        ("tests/contract/test_topic_peers.py",),
    ),
    Mutant(
        "suspects: put back a few times only because of others that take long",
        "aiorsmq_ng/worker/intake.py",
        "if times > _MAX_POSTPONED:",
        "if False:",
        ("tests/contract/test_suspects.py",),
    ),
    Mutant(
        "suspects: deliveries given back unseen do not count",
        f"{SCRIPTS}/queue/_dead_letter.lua",
        "rc - (history and history.excused or 0) > dead.limit",
        "rc > dead.limit",
        ("tests/contract/test_suspects.py",),
    ),
    Mutant(
        "dead letters: a repeated receive tells again what it put aside",
        f"{SCRIPTS}/queue/receive.lua",
        "note_dead_letters(notes, 1, dead)",
        "",
        ("tests/contract/test_repeated_calls.py",),
    ),
    Mutant(
        "topics: what any other silent peer left is deleted",
        "aiorsmq_ng/_protocol/topic_state.py",
        "[m for m in peers if m.queue != me.queue and self.timed_out(m)][:_AT_ONCE]",
        "[]",
        TOPICS,
    ),
    Mutant(
        "topics: a keeper that unsubscribes is followed by another",
        "aiorsmq_ng/_protocol/topic_state.py",
        'successor=after.queue if after and ends else ""',
        'successor=""',
        ("tests/unit/test_topic_names.py",),
    ),
    Mutant(
        "topics: a peer that adopts is the keeper",
        f"{SCRIPTS}/topic/topic_adopt.lua",
        "settings .. '1' .. rest",
        "settings .. keeper .. rest",
        TOPICS,
    ),
    Mutant(
        "topics: a keeper adopts what it lacks",
        f"{SCRIPTS}/topic/topic_adopt.lua",
        "(sent or 0) < tonumber(since) and wanted or own",
        "own",
        TOPICS,
    ),
    Mutant(
        "topics: a keeper adopts only what it lacks",
        f"{SCRIPTS}/topic/topic_adopt.lua",
        "(sent or 0) < tonumber(since) and wanted or own",
        "wanted",
        TOPICS,
    ),
    Mutant(
        "topics: ids that run ahead count as older than a new subscription",
        f"{SCRIPTS}/topic/topic_join.lua",
        "math.max(seconds * 1000000 + micros, tonumber(redis.call('HGET', topic, 'last') or 0))",
        "seconds * 1000000 + micros",
        TOPICS,
    ),
    Mutant(
        "topics: a subscriber that dies on the way leaves a trace",
        f"{SCRIPTS}/topic/topic_join.lua",
        "'q:' .. queue, 'left ' .. record, 'first',",
        "'first',",
        TOPICS,
    ),
    Mutant(
        "topics: a newcomer takes the place of a keeper that is away with all",
        f"{SCRIPTS}/topic/topic_join.lua",
        "if not since and allowed and gap > tonumber(allowed) then",
        "if false then",
        TOPICS,
    ),
    Mutant(
        "topics: a time without any sign of life ends no subscription",
        f"{SCRIPTS}/topic/_peer_liveness.lua",
        "math.min(gap, timeout_ms / 3)",
        "gap",
        TOPICS,
    ),
    Mutant(
        "topics: siblings look for silent ones in turn",
        f"{SCRIPTS}/topic/_peer_liveness.lua",
        "math.floor(before * 10 / timeout_ms) < math.floor(clock * 10 / timeout_ms), gap",
        "true, gap",
        TOPICS,
    ),
    Mutant(
        "topics: silent peers that shared are forgotten",
        f"{SCRIPTS}/topic/_peer_liveness.lua",
        "> 2 * timeout_ms then",
        "< 0 then",
        TOPICS,
    ),
    Mutant(
        "topics: a peer that speaks up is not taken off",
        f"{SCRIPTS}/topic/_peer_liveness.lua",
        "return sign == '' or redis.call('HGET', heard, queue) == sign",
        "return true",
        TOPICS,
    ),
    Mutant(
        "topics: a peer that was taken for dead may come back",
        f"{SCRIPTS}/topic/_peer_liveness.lua",
        "  redis.call('ZADD', gone, string.format('%.0f', now), queue)\n",
        "",
        TOPICS,
    ),
    Mutant(
        "topics: a peer that was stopped comes back",
        "aiorsmq_ng/subscription.py",
        "            if not await self._beat():\n                raise",
        "            raise",
        TOPICS,
    ),
    Mutant(
        "topics: peers stay alive on a full server",
        f"{SCRIPTS}/topic/topic_beat.lua",
        "allow_writes_when_full(heard)\n",
        "",
        TOPICS,
    ),
    Mutant(
        "topics: a publish is resumed among new subscriptions",
        "aiorsmq_ng/topic.py",
        "        except TopicChanged:\n            # It has not run",
        "        except ZeroDivisionError:\n            # It has not run",
        TOPICS,
    ),
    Mutant(
        "topics: waiting keeps a peer alive",
        "aiorsmq_ng/subscription.py",
        "min(max(0.0, until - loop.time()), self._peer_timeout_s * _WAIT)",
        "max(0.0, until - loop.time())",
        TOPICS,
    ),
    Mutant(
        "topics: no consumer leads to the dead-letter queue of another",
        "aiorsmq_ng/_protocol/topic_names.py",
        "if raw.endswith(DEAD_SUFFIX.encode()):",
        "if False:",
        ("tests/unit/test_topic_names.py",),
    ),
    Mutant(
        "topics: all queues of a topic lie in one namespace",
        "aiorsmq_ng/_protocol/shards.py",
        "stem = name.partition(TOPIC_MARK)[0] or name",
        "stem = name",
        ("tests/unit/test_topic_names.py",),
    ),
    Mutant(
        "rsmqctl: a line break stays in its cell of CSV",
        "aiorsmq_ng/cli/output.py",
        "csv.writer(line, lineterminator=_CSV_END)",
        'csv.writer(line, lineterminator="")',
        ("tests/cli/test_hostile.py",),
    ),
    Mutant(
        "rsmqctl: completion offers nothing that a shell would run",
        "aiorsmq_ng/cli/completion.py",
        "if _is_plain(rsmq, name)",
        "if name",
        ("tests/cli/test_hostile.py",),
    ),
    Mutant(
        "passwords: only a word allows one to leave in clear text",
        "aiorsmq_ng/_transport/security_overrides.py",
        'if os.environ.get(variable) != "1":',
        "if False:",
        ("tests/unit/test_urls.py",),
    ),
    Mutant(
        "contexts: a call from another loop is refused before it is written",
        "aiorsmq_ng/_transport/transport.py",
        "if running_loop() is not self._loop_guard.here:",
        "if False:",
        ("tests/faults/test_contexts.py",),
    ),
    Mutant(
        "contexts: a forked child is refused, and touches nothing",
        "aiorsmq_ng/_transport/loop_guard.py",
        "guard.here = _FOREIGN",
        "pass",
        ("tests/faults/test_contexts.py",),
    ),
    Mutant(
        "contexts: a forked child of a process that used gRPC does not touch it",
        "aiorsmq_ng/rpc/forks.py",
        "if _users[0] != os.getpid():",
        "if False:",
        ("tests/faults/test_contexts.py",),
    ),
    Mutant(
        "contexts: a forked child does not collect its parent's clients",
        "aiorsmq_ng/_transport/loop_guard.py",
        "_inherited.append(guard)",
        "pass",
        ("tests/faults/test_contexts.py",),
    ),
    Mutant(
        "worker: the clock is looked at before a handler is called",
        "aiorsmq_ng/worker/handler_execution.py",
        "        self._batch[:] = still_leased(self._batch)\n",
        "",
        ("tests/contract/test_worker_edges.py",),
    ),
    Mutant(
        "consumer: the clock is looked at before a message is handed out",
        "aiorsmq_ng/_runtime/prefetch.py",
        "if not has_ended(message.lease, now):",
        "if not message.lease.lost:",
        ("tests/contract/test_worker_edges.py",),
    ),
    Mutant(
        "worker: a handler that ended in a stall is left to the fence",
        "aiorsmq_ng/worker/handler_execution.py",
        "asyncio.get_running_loop().call_soon(self._cancel_handler, reason)",
        "self._interrupted = True",
        ("tests/contract/test_worker_edges.py",),
    ),
    Mutant(
        "worker: a handler that is cancelled before its first step gives its messages back",
        "aiorsmq_ng/worker/handler_execution.py",
        "            give_back(self._batch)",
        "            self._stop_renewal()",
        ("tests/contract/test_worker_leases.py",),
    ),
    Mutant(
        "prefetch: a reply that comes after the end is given back",
        "aiorsmq_ng/_runtime/prefetch.py",
        """        if self._closed:
            # AnyIO""",
        """        if False:
            # AnyIO""",
        ("tests/unit/test_lease_renewal.py", "tests/storms/test_leaving.py"),
    ),
    Mutant(
        "worker: a second cancellation does not cut its end short",
        "aiorsmq_ng/worker/shutdown.py",
        "while not task.done():",
        "if not task.done():",
        ("tests/contract/test_worker_edges.py",),
    ),
    Mutant(
        "worker: ends before its client",
        "aiorsmq_ng/worker/worker.py",
        "self.rsmq.add_close_hook(self._client_closes)",
        "pass",
        ("tests/contract/test_worker_edges.py",),
    ),
    Mutant(
        "presence: an announcement does not overtake an older one",
        "aiorsmq_ng/_runtime/presence.py",
        "if keys in self._in_flight:",
        "if False:",
        ("tests/unit/test_presence.py",),
    ),
    Mutant(
        "consumer: rests after a step that was cancelled",
        "aiorsmq_ng/_runtime/prefetch.py",
        "if self._takers == 1 and not self.ended:",
        "if False:",
        ("tests/contract/test_edges.py",),
    ),
    Mutant(
        "consumer: the next step ends its rest",
        "aiorsmq_ng/_runtime/prefetch.py",
        "            self._idle_timer.cancel()\n",
        "",
        ("tests/contract/test_edges.py",),
    ),
    Mutant(
        "leases: a message that was handed over and not taken up is not renewed",
        "aiorsmq_ng/_runtime/lease_renewal.py",
        "if not lease.owned:",
        "if False:",
        ("tests/unit/test_lease_renewal.py",),
    ),
    Mutant(
        "leases: no renewal is sent beside an operation of the holder",
        "aiorsmq_ng/_runtime/lease_renewal.py",
        "            if lease.pauses:\n                continue\n",
        "",
        ("tests/unit/test_lease_renewal.py",),
    ),
    Mutant(
        "leases: what its holder has let go of is not renewed again",
        "aiorsmq_ng/_runtime/lease_renewal.py",
        "self._kept.pop(lease, None)\n            lease.on_lost",
        "lease.on_lost",
        ("tests/unit/test_lease_renewal.py",),
    ),
    Mutant(
        "consumer: collected in any thread, ended by the event loop",
        "aiorsmq_ng/_transport/loop_guard.py",
        "self._loop.call_soon_threadsafe(function)",
        "function()",
        ("tests/storms/test_leaving.py",),
    ),
    Mutant(
        "broker: nothing is received of a call that is refused",
        "aiorsmq_ng/broker/interceptor.py",
        "return grpc.stream_stream_rpc_method_handler(refuse)",
        "return grpc.unary_unary_rpc_method_handler(refuse)",
        HOSTILE,
    ),
    Mutant(
        "broker: windows do not grow for calls that are not let in",
        "aiorsmq_ng/broker/server.py",
        '("grpc.http2.bdp_probe", 0)',
        '("grpc.http2.bdp_probe", 1)',
        HOSTILE,
    ),
    Mutant(
        "broker: a request is counted before it is read",
        "aiorsmq_ng/broker/caller_limits.py",
        "        limits = self._limits\n        await self.expect(visit)",
        "        limits = self._limits",
        HOSTILE,
    ),
    Mutant(
        "broker: one caller leaves something to the others",
        "aiorsmq_ng/broker/memory_budget.py",
        "return -(-left // 2) if self._divided else left",
        "return left",
        HOSTILE,
    ),
    Mutant(
        "broker: what a wait brings is given back where replies are not read",
        "aiorsmq_ng/broker/receive.py",
        "if not CALL_BUDGET.get().more(_size(taken)):",
        "if not (CALL_BUDGET.get().more(_size(taken)) or True):",
        HOSTILE,
    ),
    Mutant(
        "broker: a stream takes nothing more where replies are not read",
        "aiorsmq_ng/broker/streams.py",
        "fits = self._budget.more(size)",
        "fits = self._budget.more(size) or True",
        HOSTILE,
    ),
    Mutant(
        "broker: patterns of queues do not open a subscription",
        "aiorsmq_ng/broker/tokens.py",
        "        if owner is None:",
        "        if owner is None or _fits(queue, self.queues):",
        ("tests/broker/test_rights.py",),
    ),
    Mutant(
        "broker: one list of names closes those that are missing",
        "aiorsmq_ng/broker/tokens.py",
        "if all(given is None for given in lists.values()) else ()",
        "if True else ()",
        ("tests/dashboard/test_access.py",),
    ),
    Mutant(
        "broker: a subscription is its consumer's",
        "aiorsmq_ng/broker/tokens.py",
        "return self.sees_topic(topic) and _fits(consumer, self.consumers)",
        "return self.sees_topic(topic)",
        ("tests/broker/test_rights.py",),
    ),
    Mutant(
        "broker: a receipt is checked against the rights of today",
        "aiorsmq_ng/broker/settle.py",
        "broker.check_receipt(content)  # the token may have changed",
        "pass",
        ("tests/broker/test_rights.py",),
    ),
    Mutant(
        "broker: a reject is checked against the rights of today",
        "aiorsmq_ng/broker/settle.py",
        "broker.check_target(content.dead_letter)  # likewise",
        "pass",
        ("tests/broker/test_rights.py",),
    ),
    Mutant(
        "broker: a receipt says whose a cut name is",
        "aiorsmq_ng/broker/delivery_replies.py",
        "            owner,\n        )",
        "            None,\n        )",
        ("tests/broker/test_rights.py",),
    ),
    Mutant(
        "broker: queues that calls wait for are counted",
        "aiorsmq_ng/broker/broker_context.py",
        "        count_sources(len(request.sources))\n",
        "",
        ("tests/broker/test_hostile.py",),
    ),
    Mutant(
        "broker: what waits for the next reply of GOMQ is counted",
        "aiorsmq_ng/broker/memory_budget.py",
        "        if self._size:\n            self._pool.add(caller, size)",
        "        if False:\n            self._pool.add(caller, size)",
        ("tests/broker/test_gomq.py",),
    ),
    Mutant(
        "broker: names of consumers are checked before anything is kept",
        "aiorsmq_ng/broker/broker_context.py",
        '        check_part("consumer", consumer)\n',
        "",
        ("tests/broker/test_gomq.py",),
    ),
    Mutant(
        "broker: of a subscription of GOMQ that fails no peer is kept",
        "aiorsmq_ng/compat/gomq/peer_registry.py",
        "            subscription = await self._join(consumer, name, key)\n",
        "            self._peer(consumer, name)\n"
        "            subscription = await self._join(consumer, name, key)\n",
        ("tests/broker/test_gomq.py",),
    ),
    Mutant(
        "broker: a caller forgets its own requests only",
        "aiorsmq_ng/broker/idempotency.py",
        "identity, method, request = key",
        'identity, method, request = "", *key[1:]',
        ("tests/broker/test_idempotency.py",),
    ),
    Mutant(
        "broker: a call with a request id is made although its client disconnects",
        "aiorsmq_ng/broker/uncancellable.py",
        "        return False\n",
        "        return bool(self._future.cancel())\n",
        ("tests/broker/test_uncancellable.py",),
    ),
    Mutant(
        "broker: a topic has a limit of subscriptions",
        "aiorsmq_ng/broker/broker_context.py",
        "        if len(there) >= most and ",
        "        if False and ",
        ("tests/broker/test_topics.py",),
    ),
    Mutant(
        "broker: messages that are peeked at are read in pages",
        "aiorsmq_ng/broker/inspection.py",
        "            step = min(count - done, max(_PAGE, left // largest))\n",
        "            step = count\n",
        ("tests/broker/test_queues.py",),
    ),
    Mutant(
        "broker: a request id is bound to its content",
        "aiorsmq_ng/broker/idempotency.py",
        "if made.content != content:",
        "if False:",
        ("tests/broker/test_idempotency.py",),
    ),
    Mutant(
        "broker client: receipts that are settled alike need no task",
        "aiorsmq_ng/_broker_client/message_calls.py",
        "if len(work) == 1:",
        "if not work:",
        ("tests/broker_client/test_driver.py",),
    ),
    Mutant(
        "broker client: another broker finishes the sends that have a dedup key",
        "aiorsmq_ng/_broker_client/message_calls.py",
        "if not (keyed := [request for request in requests if request.dedup]):",
        "if not (keyed := []):",
        ("tests/broker_client/test_faults.py",),
    ),
    Mutant(
        "broker: a receive for which the reply has no room is asked for again",
        "aiorsmq_ng/broker/receive.py",
        "if ready and not taken:",
        "if False:",
        ("tests/broker_client/test_faults.py",),
    ),
    Mutant(
        "notifier: one line of the log when wake-ups are lost",
        "aiorsmq_ng/_transport/notifier.py",
        "level = logging.DEBUG if self._lost else logging.INFO",
        "level = logging.INFO",
        ("tests/broker_client/test_faults.py",),
    ),
    Mutant(
        "transport: errors name the broker",
        "aiorsmq_ng/_transport/connect.py",
        'peer="the broker" if address is not None and address.kind == "broker" else "redis"',
        'peer="redis"',
        ("tests/broker_client/test_faults.py",),
    ),
    Mutant(
        "broker: a token does not go to a proxy",
        "aiorsmq_ng/_broker_client/channel.py",
        '"grpc.enable_http_proxy": int(address.tls is not None)',
        '"grpc.enable_http_proxy": 1',
        ("tests/broker_client/test_access.py",),
    ),
    Mutant(
        "progress: a cancellation waits for the batch under way",
        "aiorsmq_ng/_runtime/redrive.py",
        "await asyncio.wait([batch])",
        "raise",
        ("tests/contract/test_worker.py",),
    ),
    Mutant(
        "rsmqctl: a topic that is not there is not made up",
        "aiorsmq_ng/cli/topic.py",
        "if not any(known) and name not in await rsmq.list_topics():",
        "if False:",
        ("tests/cli/test_reports.py",),
    ),
    Mutant(
        "rsmqctl: a signal cuts nothing off an output without a buffer",
        "aiorsmq_ng/cli/__init__.py",
        "if isinstance(raw, io.RawIOBase):",
        "if False:",
        ("tests/cli/test_interrupted.py",),
    ),
    Mutant(
        "rsmqctl: what was received and not printed is given back",
        "aiorsmq_ng/cli/peek.py",
        "await message.release(unseen=True)",
        "pass",
        ("tests/cli/test_interrupted.py",),
    ),
    Mutant(
        "rsmqctl: a producer sends files without the right to look",
        "aiorsmq_ng/cli/transfer/commands.py",
        "except aiorsmq_ng.AccessDenied:",
        "except aiorsmq_ng.Unavailable:",
        ("tests/cli/test_rights.py",),
    ),
    Mutant(
        "dashboard: a write of another site is refused",
        "aiorsmq_ng/dashboard/access.py",
        'return None if site == "same-origin" else (403, "writes of other sites are refused")',
        "return None",
        ("tests/dashboard/test_access.py",),
    ),
    Mutant(
        "dashboard: foreign host names are refused",
        "aiorsmq_ng/dashboard/access.py",
        "return self._hosts is None or host in self._hosts or name in self._hosts",
        "return True",
        ("tests/dashboard/test_access.py",),
    ),
    Mutant(
        "dashboard: without a login other machines are refused",
        "aiorsmq_ng/dashboard/access.py",
        "return ANONYMOUS if _is_local(request) else None",
        "return ANONYMOUS",
        ("tests/dashboard/test_access.py",),
    ),
    Mutant(
        "dashboard: a token sees the queues of its patterns only",
        "aiorsmq_ng/dashboard/request_context.py",
        "if not self.caller.sees_queue(name):",
        "if False:",
        ("tests/dashboard/test_access.py",),
    ),
    Mutant(
        "dashboard: what is not shown is not searched",
        "aiorsmq_ng/dashboard/message_search.py",
        "shown = self._board.shown(self._queue.name, message.body)",
        "shown = message.body",
        ("tests/dashboard/test_access.py",),
    ),
    Mutant(
        "dashboard: what is extended is not found again",
        "aiorsmq_ng/dashboard/actions.py",
        'Manner(("leased",), once=True)',
        'Manner(("leased",))',
        ("tests/dashboard/test_actions.py",),
    ),
    Mutant(
        "dashboard: the sampler rests without a page",
        "aiorsmq_ng/dashboard/live_sampler.py",
        "                self._task.cancel()\n",
        "",
        ("tests/dashboard/test_live.py",),
    ),
)


class Survived(Exception):
    """The tests stayed green without the mechanism, or did not run; says what pytest said."""


def run(mutant: Mutant) -> str:
    """Return the test that noticed; raise ``Survived`` if none did."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        _copy(tree)
        path = tree / mutant.path
        text = path.read_text()
        if text.count(mutant.old) != 1:
            raise Survived(f"{mutant.path} does not hold its text once")
        path.write_text(text.replace(mutant.old, mutant.new))
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", *mutant.tests],
            cwd=tree, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(tree)},
            check=False,
        )  # fmt: skip
    red = re.search(r"^(?:FAILED|ERROR) tests/(\S+)::(.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if done.returncode != 1 or not red:
        raise Survived(f"the tests say\n{done.stdout[-2000:]}")
    return f"{red[1]} {red[2]}"


def _copy(tree: Path) -> None:
    """Copy what git knows or would know of this checkout."""
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    for name in names:
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tree / name)


def _chosen(words: list[str], part: str) -> tuple[Mutant, ...]:
    """Return the mutants with one of *words*, or all; of them the *part*, written as ``2/3``."""
    number, parts = map(int, part.split("/"))
    if not 1 <= number <= parts:
        raise SystemExit(f"there is no part {part}")
    found = [m for m in MUTANTS if not words or any(w in m.mechanism for w in words)]
    return tuple(found[number - 1 :: parts])


def main() -> None:
    """Take out every mechanism, or those chosen, and keep a complete list for the report."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mechanisms with one of these words")
    parser.add_argument("--part", default="1/1", help="of these, one part of several: 2/3")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    options = parser.parse_args()
    chosen = _chosen(options.words, options.part)
    rows, survivors = [], []
    with ThreadPoolExecutor(options.jobs) as pool:
        for mutant, playing in [(mutant, pool.submit(run, mutant)) for mutant in chosen]:
            try:
                noticed = playing.result()
            except Survived as told:
                survivors.append(mutant)
                print(f"SURVIVED: {mutant.mechanism}: {told}", flush=True)
            else:
                print(f"red: {mutant.mechanism}: {noticed}", flush=True)
                rows.append({"mechanism": mutant.mechanism, "noticed first by": f"`{noticed}`"})
    print(f"{len(chosen)} played, {len(rows)} red, {len(survivors)} survived")
    if survivors:
        raise SystemExit(1)
    if chosen == MUTANTS and REPORT.exists():
        figures = {**json.loads(REPORT.read_text()), "mutants": rows}
        REPORT.write_text(json.dumps(figures) + "\n")
        REPORT.with_suffix(".md").write_text("\n".join(report.page(figures)) + "\n")


if __name__ == "__main__":
    main()
