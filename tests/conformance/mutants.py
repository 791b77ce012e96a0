"""The reference client with one thing done wrong: each mutant must be caught by its scenarios."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from typing import Any

from rsmq_conformance.reference import ATTRIBUTES, NAME, TAKE, Reference, Refused

MUTANTS: dict[str, type[Mutant]] = {}


class Mutant(Reference):
    """A faulty client. ``caught_by`` names the scenarios that must fail with it."""

    caught_by: tuple[str, ...] = ()

    def __init_subclass__(cls) -> None:
        MUTANTS[cls.__name__] = cls


def let_others_act() -> None:
    """Let another client act between two steps that should be one."""
    time.sleep(0.002)


# -- attributes


class QueueNotListed(Mutant):
    caught_by = ("create-default",)

    def create(self, qname, fields):
        done = super().create(qname, fields)
        self.redis.call("SREM", f"{self.ns}:QUEUES", qname)
        return done


class TimesInMilliseconds(Mutant):
    caught_by = ("create-default", "set-modified")

    def seconds(self, now_us):
        return now_us // 1000


class OtherDefaultSize(Mutant):
    caught_by = ("create-default",)

    def createQueue(self, qname, **given):
        return super().createQueue(qname, **{"maxsize": 65535, **given})


class AttributesInMilliseconds(Mutant):
    caught_by = ("create-default", "create-attributes", "set-attributes")
    caught_by += ("attributes-shared", "values-accepted")

    def stored(self, values):
        return {n: v * 1000 if n != "maxsize" else v for n, v in values.items()}


class UnlimitedIsLargest(Mutant):
    caught_by = ("create-unlimited",)

    def stored(self, values):
        return {n: 65536 if v == -1 else v for n, v in values.items()}


class SetResetsOthers(Mutant):
    caught_by = ("set-keeps-others",)

    def setQueueAttributes(self, qname, **given):
        return super().setQueueAttributes(qname, **{"vt": 30, "delay": 0, **given})


class SetChangesCreated(Mutant):
    caught_by = ("set-attributes", "set-modified")

    def setQueueAttributes(self, qname, **given):
        result = super().setQueueAttributes(qname, **given)
        self.redis.call("HSET", self.hash(qname), "created", result["modified"])
        return result


class SetNothingIsAllowed(Mutant):
    caught_by = ("set-nothing",)

    def setQueueAttributes(self, qname, **given):
        return super().setQueueAttributes(qname, **given or {"vt": 30})


class SetCreates(Mutant):
    caught_by = ("set-missing-queue",)

    def setQueueAttributes(self, qname, **given):
        self.redis.call("HSETNX", self.hash(qname), "vt", given.get("vt", 30))
        return super().setQueueAttributes(qname, **given)


class CreateOverwrites(Mutant):
    caught_by = ("create-exists",)

    def create(self, qname, fields):
        self.redis.call("HSET", self.hash(qname), *(w for pair in fields.items() for w in pair))
        return True


class CreateInTwoSteps(Mutant):
    caught_by = ("race-create",)

    def create(self, qname, fields):
        if self.redis.call("EXISTS", self.hash(qname)):
            return False
        let_others_act()
        self.redis.call("DEL", self.hash(qname))
        return super().create(qname, fields)


class ExistsByVt(Mutant):
    caught_by = ("half-queue",)

    def queue(self, qname):
        vt, delay, maxsize = self.redis.call("HMGET", self.hash(qname), *ATTRIBUTES)
        if vt is None:
            raise Refused("queueNotFound")
        return {"vt": int(float(vt)), "delay": int(delay or 0), "maxsize": int(maxsize or 65536)}


class SendCreates(Mutant):
    caught_by = ("missing-queue",)

    def sendMessage(self, qname, message, delay=None):
        if not self.redis.call("EXISTS", self.hash(qname)):
            self.createQueue(qname)
        return super().sendMessage(qname, message, delay)


class WholeVtOnly(Mutant):
    caught_by = ("fraction-vt",)

    def queue(self, qname):
        int(self.redis.call("HGET", self.hash(qname), "vt") or 0)
        return super().queue(qname)


class FreshQueueFails(Mutant):
    caught_by = ("attributes-fresh", "attributes-shared", "leftovers-create-again")

    def getQueueAttributes(self, qname):
        if self.redis.call("HGET", self.hash(qname), "totalrecv") is None:
            raise Refused("queueNotFound")
        return super().getQueueAttributes(qname)


class HiddenBySecond(Mutant):
    caught_by = ("hidden-exact",)

    def counts(self, qname):
        second = self.redis.now_us() // 1_000_000
        hidden = self.redis.call("ZCOUNT", self.zset(qname), f"{second}000", "+inf")
        return {**super().counts(qname), "hiddenmsgs": hidden}


class CountsVisibleOnly(Mutant):
    caught_by = ("attributes-reply", "realtime-publish")

    def counts(self, qname):
        counts = super().counts(qname)
        return {**counts, "msgs": counts["msgs"] - counts["hiddenmsgs"]}


class PublishesNothing(Mutant):
    caught_by = ("realtime-publish",)

    def sendMessage(self, qname, message, delay=None):
        self.realtime = False
        return super().sendMessage(qname, message, delay)


class ListsWithNamespace(Mutant):
    caught_by = ("list-queues",)

    def listQueues(self):
        return [f"{self.ns}:{name}" for name in super().listQueues()]


class DeletedQueueIsListed(Mutant):
    caught_by = ("delete-queue", "leftovers-delete-queue")

    def deleteQueue(self, qname):
        done = super().deleteQueue(qname)
        self.redis.call("SADD", f"{self.ns}:QUEUES", qname)
        return done


class DeletedQueueKeepsMessages(Mutant):
    caught_by = ("delete-queue", "leftovers-delete-queue")

    def deleteQueue(self, qname):
        if not self.redis.call("DEL", self.hash(qname)):
            raise Refused("queueNotFound")
        self.redis.call("SREM", f"{self.ns}:QUEUES", qname)
        return True


class DeletedQueueKeepsCounters(Mutant):
    caught_by = ("leftovers-create-again",)

    def deleteQueue(self, qname):
        sent = self.redis.call("HGET", self.hash(qname), "totalsent")
        done = super().deleteQueue(qname)
        self.redis.call("HSET", self.hash(qname), "totalsent", sent or 0)
        return done


# -- names and values


class NamesOf64(Mutant):
    caught_by = ("names-accepted",)

    def check_name(self, qname):
        super().check_name(qname)
        if len(qname) > 64:
            raise Refused("invalidFormat")


class AnyName(Mutant):
    caught_by = ("names-refused",)

    def check_name(self, qname):
        if ":" in qname:
            raise Refused("invalidFormat")


class NameWithLineFeed(Mutant):
    caught_by = ("names-newline",)

    def check_name(self, qname):
        if not re.match(NAME.pattern + "$", qname):
            raise Refused("invalidFormat")


class NameWithColon(Mutant):
    caught_by = ("names-colon",)

    def check_name(self, qname):
        super().check_name(qname.replace(":", "_"))


class ReservedName(Mutant):
    caught_by = ("name-reserved",)

    def check_name(self, qname):
        if not NAME.fullmatch(qname):
            raise Refused("invalidFormat")


class ValuesUnchecked(Mutant):
    caught_by = ("values-refused",)

    def check_value(self, name, value):
        pass


class LimitsExclusive(Mutant):
    caught_by = ("values-accepted",)

    def check_value(self, name, value):
        super().check_value(name, value)
        if value in (1024, 65536, 9_999_999):
            raise Refused("invalidValue")


class SizeOneLess(Mutant):
    caught_by = ("size-limit",)

    def check_size(self, message, maxsize):
        super().check_size(message + "x", maxsize)


class SizeUnchecked(Mutant):
    caught_by = ("size-limit",)

    def check_size(self, message, maxsize):
        pass


class SizeCheckedTooLate(Mutant):
    caught_by = ("size-limit",)

    def check_size(self, message, maxsize):
        self.too_long = maxsize != -1 and len(message) > maxsize

    def store(self, qname, id, score, body):
        super().store(qname, id, score, body)
        if self.too_long:
            self.deleteMessage(qname, id)
            raise Refused("messageTooLong")


class UnlimitedIsCapped(Mutant):
    caught_by = ("size-unlimited",)

    def check_size(self, message, maxsize):
        super().check_size(message, 65536 if maxsize == -1 else maxsize)


# -- sending


class ScoreInSeconds(Mutant):
    caught_by = ("send-keys", "receive-keys", "send-delay", "receive-vt", "visibility-keys")

    def score(self, now_us, seconds):
        return str(now_us // 1_000_000 + int(seconds))


class ScoreInMicroseconds(Mutant):
    caught_by = ("send-keys", "handover", "fifo", "message-sent")

    def score(self, now_us, seconds):
        return str(now_us + int(seconds) * 1_000_000)


class SentIsNotCounted(Mutant):
    caught_by = ("send-keys", "handover")

    def store(self, qname, id, score, body):
        self.redis.call("ZADD", self.zset(qname), score, id)
        self.redis.call("HSET", self.hash(qname), id, body)


class SentIsCountedInTwoSteps(Mutant):
    caught_by = ("race-send",)

    def store(self, qname, id, score, body):
        count = int(self.redis.call("HGET", self.hash(qname), "totalsent") or 0)
        let_others_act()
        super().store(qname, id, score, body)
        self.redis.call("HSET", self.hash(qname), "totalsent", count + 1)


class KeysExpire(Mutant):
    caught_by = ("send-keys", "receive-keys")

    def store(self, qname, id, score, body):
        super().store(qname, id, score, body)
        self.redis.call("EXPIRE", self.hash(qname), 3600)

    def take(self, qname, now_ms, score):
        self.redis.call("EXPIRE", self.zset(qname), 3600)
        return super().take(qname, now_ms, score)


class CountsReceivesAtSend(Mutant):
    caught_by = ("send-keys",)

    def store(self, qname, id, score, body):
        super().store(qname, id, score, body)
        self.redis.call("HSET", self.hash(qname), f"{id}:rc", 0)


class ShortIds(Mutant):
    caught_by = ("id-shape", "handover")

    def new_id(self, now_us):
        return super().new_id(now_us)[:30]


class IdTimeIsWrong(Mutant):
    caught_by = ("id-shape", "message-sent")

    def new_id(self, now_us):
        return super().new_id(now_us - 3_600_000_000)


class DelayIgnored(Mutant):
    caught_by = ("send-delay", "delayed-until")

    def sendMessage(self, qname, message, delay=None):
        return super().sendMessage(qname, message, 0)


class DefaultDelayIgnored(Mutant):
    caught_by = ("send-default-delay", "attributes-shared")

    def sendMessage(self, qname, message, delay=0):
        return super().sendMessage(qname, message, delay)


class ZeroDelayIsDefault(Mutant):
    caught_by = ("send-delay-zero",)

    def sendMessage(self, qname, message, delay=None):
        return super().sendMessage(qname, message, delay or None)


class BodyInAscii(Mutant):
    caught_by = ("body-text", "handover")

    def store(self, qname, id, score, body):
        super().store(qname, id, score, body.decode().encode("ascii", "replace"))


class BodyStripped(Mutant):
    caught_by = ("body-text",)

    def store(self, qname, id, score, body):
        super().store(qname, id, score, body.strip())


class BodyLineEnds(Mutant):
    caught_by = ("body-text",)

    def message(self, taken):
        found = super().message(taken)
        return found and {**found, "message": found["message"].replace("\r\n", "\n")}


class BodyIsJson(Mutant):
    caught_by = ("body-json",)

    def store(self, qname, id, score, body):
        with contextlib.suppress(ValueError):
            body = json.dumps(json.loads(body)).encode()
        super().store(qname, id, score, body)


class EmptyBodyIsDropped(Mutant):
    caught_by = ("body-empty",)

    def sendMessage(self, qname, message, delay=None):
        return bool(message) and super().sendMessage(qname, message, delay)


# -- receiving


def taking(old: str, new: str) -> str:
    assert old in TAKE
    return TAKE.replace(old, new)


class MutantTake(Mutant):
    """A receive whose script differs."""

    script = TAKE

    def take(self, qname, now_ms, score):
        keys = self.zset(qname), self.hash(qname)
        return list(self.redis.call("EVAL", self.script, 2, *keys, now_ms, score))


del MUTANTS["MutantTake"]


class ReceiveIsNotCounted(MutantTake):
    caught_by = ("receive-keys", "receive-again", "message-reply", "handover-again")
    script = taking("redis.call('HINCRBY', KEYS[2], id .. ':rc', 1)", "1")


class TotalIsNotCounted(MutantTake):
    caught_by = ("receive-keys", "receive-again", "pop-keys", "race-receive")
    script = taking("redis.call('HINCRBY', KEYS[2], 'totalrecv', 1)", "")


class FirstReceiveIsNotStored(MutantTake):
    caught_by = ("receive-keys", "message-reply")
    script = taking("if rc == 1 then", "if false then")


class FirstReceiveIsOverwritten(MutantTake):
    caught_by = ("receive-again", "handover-again", "pop-after-receive", "message-reply")
    script = taking("if rc == 1 then", "if true then")


class FirstReceiveInSeconds(MutantTake):
    caught_by = ("receive-keys", "message-reply")
    script = taking("id .. ':fr', ARGV[1])", "id .. ':fr', math.floor(ARGV[1] / 1000))")


class FirstReceiveIsNeeded(MutantTake):
    caught_by = ("fr-missing",)
    script = taking(" or '0'", " or error('no fr')")


class NewestFirst(MutantTake):
    caught_by = ("fifo",)
    script = taking(
        "local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1],",
        "local found = redis.call('ZREVRANGEBYSCORE', KEYS[1], ARGV[1], '-inf',",
    )


class TakesHidden(MutantTake):
    caught_by = ("hidden-until-vt", "delayed-until", "race-receive")
    script = TAKE.replace("'-inf', ARGV[1]", "'-inf', '+inf'")


class PhantomBlocks(MutantTake):
    caught_by = ("phantom",)
    script = taking("while found[1] and", "if found[1] and").replace(
        "  redis.call('ZREM', KEYS[1], found[1])\n", "  if true then return {} end\n"
    )


class PopLeavesBody(MutantTake):
    caught_by = ("pop-keys", "leftovers-many")
    script = taking("KEYS[2], id, id .. ':rc', id .. ':fr')", "KEYS[2], id .. ':rc')")


class PopLeavesMember(MutantTake):
    caught_by = ("pop-keys",)
    script = taking("  redis.call('ZREM', KEYS[1], id)\n", "")


class CountsEmptyReceives(MutantTake):
    caught_by = ("empty-queue", "leftovers-refused")
    script = "redis.call('HINCRBY', KEYS[2], 'totalrecv', 1)\n" + taking(
        "redis.call('HINCRBY', KEYS[2], 'totalrecv', 1)", ""
    )


class EmptyQueueIsAnError(Mutant):
    caught_by = ("empty-queue",)

    def message(self, taken):
        if not taken:
            raise Refused("noMessage")
        return super().message(taken)


class ReceivesInTwoSteps(Mutant):
    caught_by = ("race-receive", "race-pop", "race-work")

    def take(self, qname, now_ms, score):
        zset, hash = self.zset(qname), self.hash(qname)
        found = self.redis.call("ZRANGEBYSCORE", zset, "-inf", now_ms, "LIMIT", 0, 1)
        if not found:
            return []
        let_others_act()
        id = found[0].decode()
        rc = self.redis.call("HINCRBY", hash, f"{id}:rc", 1)
        self.redis.call("HINCRBY", hash, "totalrecv", 1)
        self.redis.call("HSETNX", hash, f"{id}:fr", now_ms)
        body = self.redis.call("HGET", hash, id) or b""
        if score == "pop":
            self.deleteMessage(qname, id)
        else:
            self.redis.call("ZADD", zset, score, id)
        return [found[0], body, rc, now_ms]


class VtIgnored(Mutant):
    caught_by = ("receive-vt", "vt-zero")

    def receiveMessage(self, qname, vt=None):
        return super().receiveMessage(qname)


class ZeroVtIsDefault(Mutant):
    caught_by = ("vt-zero",)

    def receiveMessage(self, qname, vt=None):
        return super().receiveMessage(qname, vt or None)


class DefaultVtIgnored(Mutant):
    caught_by = ("receive-keys",)

    def receiveMessage(self, qname, vt=30):
        return super().receiveMessage(qname, vt)


class SentInMicroseconds(Mutant):
    caught_by = ("message-sent",)

    def message(self, taken):
        found = super().message(taken)
        return found and {**found, "sent": found["sent"] * 1000}


class TextOnly(Mutant):
    caught_by = ("body-bytes",)

    def message(self, taken):
        if taken:
            taken[1].decode()
        return super().message(taken)


class PopStartsAgain(Mutant):
    caught_by = ("pop-after-receive",)

    def popMessage(self, qname):
        found = super().popMessage(qname)
        return found and {**found, "rc": 1}


class ScriptIsCachedOnce(Mutant):
    caught_by = ("script-flush",)
    loaded = False

    def take(self, qname, now_ms, score):
        if not ScriptIsCachedOnce.loaded:
            self.redis.call("SCRIPT", "LOAD", TAKE)
            ScriptIsCachedOnce.loaded = True
        digest = hashlib.sha1(TAKE.encode()).hexdigest()
        keys = self.zset(qname), self.hash(qname)
        return list(self.redis.call("EVALSHA", digest, 2, *keys, now_ms, score))


# -- settling


class DeleteIsAlwaysTrue(Mutant):
    caught_by = ("delete-twice",)

    def deleteMessage(self, qname, id):
        super().deleteMessage(qname, id)
        return True


class DeleteWantsThreeFields(Mutant):
    caught_by = ("delete-unreceived",)

    def deleteMessage(self, qname, id):
        done = self.redis.transaction(
            ("ZREM", self.zset(qname), id), ("HDEL", self.hash(qname), *self.fields(id))
        )
        return done == [1, 3]


class DeleteLeavesCounters(Mutant):
    caught_by = ("handover", "leftovers-delete", "leftovers-many")

    def fields(self, id: str) -> Any:
        return (id,)


class DeleteLeavesFirstReceive(Mutant):
    caught_by = ("handover", "leftovers-delete", "leftovers-many")

    def fields(self, id: str) -> Any:
        return (id, f"{id}:rc")


class MetaIsLeft(Mutant):
    caught_by = ("leftovers-meta",)

    def fields(self, id: str) -> Any:
        return (id, f"{id}:rc", f"{id}:fr")


class IdsOf32Only(Mutant):
    caught_by = ("short-id",)

    def deleteMessage(self, qname, id):
        if len(id) != 32:
            raise Refused("invalidFormat")
        return super().deleteMessage(qname, id)


class VisibilityIsAlwaysTrue(Mutant):
    caught_by = ("visibility-unknown",)

    def changeMessageVisibility(self, qname, id, vt):
        super().changeMessageVisibility(qname, id, vt)
        return True


class VisibilityZeroIsIgnored(Mutant):
    caught_by = ("visibility-zero",)

    def changeMessageVisibility(self, qname, id, vt):
        return super().changeMessageVisibility(qname, id, vt) if vt else True


class VisibilityCountsReceives(Mutant):
    caught_by = ("visibility-keys",)

    def changeMessageVisibility(self, qname, id, vt):
        self.redis.call("HINCRBY", self.hash(qname), f"{id}:rc", 1)
        return super().changeMessageVisibility(qname, id, vt)


class VisibilityIsAdded(Mutant):
    caught_by = ("visibility-keys",)

    def changeMessageVisibility(self, qname, id, vt):
        self.queue(qname)
        return bool(self.redis.call("ZINCRBY", self.zset(qname), vt * 1000, id))
