"""What a node of a cluster says counts if a replica, or the other nodes, vouch for it."""

import pytest

from aiorsmq_ng._transport.cluster_driver import ClusterDriver
from aiorsmq_ng._transport.driver import ReplyLost
from aiorsmq_ng._transport.script_calls import Command


class Connection:
    """Gives one reply after the other."""

    is_connected = True

    def __init__(self, *replies):
        self.replies = list(replies)

    def should_reconnect(self):
        return False

    async def can_read(self):
        return False

    async def check_health(self):
        pass

    async def connect(self):
        pass

    async def disconnect(self, nowait=False):
        pass

    async def send_packed_command(self, packed, check_health=True):
        pass

    async def read_response(self, disable_decoding=False):
        return self.replies.pop(0)


class Node:
    """A node with one connection."""

    host, port = "127.0.0.1", 1

    def __init__(self, name, *replies):
        self.name = name
        self.connection = Connection(*replies)

    def acquire_connection(self):
        return self.connection

    def release(self, connection):
        pass


class Client:
    """A cluster whose nodes are asked for the owner of the keys once, and then again: *after*."""

    def __init__(self, before, after):
        self.nodes_manager = self
        self.owner, self.after = before, after
        self.least_trusted = None

    async def initialize(self, last_failed_node_name=None):
        if last_failed_node_name is not None:
            self.least_trusted = last_failed_node_name
            if self.after is None:
                raise OSError("no node can be reached")
            self.owner = self.after

    def keyslot(self, key):
        return 7

    def get_node_from_slot(self, slot):
        return self.owner


LEASED = [[30000, 0, b"id", b"body", 1, 1]]
EMPTY = [[30000, -1]]
KEY = "{ns}:jobs"
WORDS = ("EVALSHA", "sha", 1, KEY)


def receive():
    """Return a command that takes messages, at the level ``replicated:1``."""
    command = Command(WORDS, KEY, min_replicas=1)
    command.needs_confirmation = lambda reply: any(len(part) > 2 for part in reply)
    return command


async def test_messages_that_a_replica_has_heard_of_count_without_asking():
    node = Node("a", LEASED, 1)
    client = Client(node, Node("b"))

    assert await ClusterDriver(client, own=False).execute(receive()) == LEASED
    assert client.least_trusted is None


async def test_messages_of_a_node_that_was_replaced_do_not_count():
    client = Client(Node("a", LEASED, 0), Node("b"))

    with pytest.raises(ReplyLost, match="another node"):
        await ClusterDriver(client, own=False).execute(receive())
    assert client.least_trusted == "a"


async def test_messages_of_a_node_without_replicas_count_if_the_others_name_it():
    node = Node("a", LEASED, 0)

    assert await ClusterDriver(Client(node, node), own=False).execute(receive()) == LEASED


async def test_messages_without_a_primary_check_do_not_count():
    with pytest.raises(ReplyLost, match="confirms the primary"):
        await ClusterDriver(Client(Node("a", LEASED, 0), None), own=False).execute(receive())


async def test_empty_reply_needs_no_primary_check():
    driver = ClusterDriver(Client(Node("a", EMPTY), None), own=False)

    assert await driver.execute(receive()) == EMPTY


@pytest.mark.parametrize("after", [None, "a"])
async def test_send_without_confirmation_is_reported_if_no_other_node_is_named(after):
    node = Node("a", [[b"id"]], 0)
    command = Command(
        ("EVALSHA", "sha", 1, "{ns}:jobs"), "{ns}:jobs", follow_up=("WAIT", 1, 10), min_replicas=1
    )

    driver = ClusterDriver(Client(node, after and node), own=False)
    assert await driver.execute(command) == [[b"id"]]
    assert command.confirmation == 0


async def test_send_to_a_node_that_was_replaced_is_made_again():
    command = Command(
        ("EVALSHA", "sha", 1, "{ns}:jobs"), "{ns}:jobs", follow_up=("WAIT", 1, 10), min_replicas=1
    )

    with pytest.raises(ReplyLost, match="another node"):
        await ClusterDriver(Client(Node("a", [[b"id"]], 0), Node("b")), own=False).execute(command)
