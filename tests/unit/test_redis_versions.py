"""What older versions of redis-py lack is made up for, and what is missing is named."""

import asyncio
from types import SimpleNamespace

import pytest

from aiorsmq_ng import InvalidValue
from aiorsmq_ng._transport import redis_versions


def test_tls_checks_the_name_in_the_certificate_unless_certificates_do_not_count():
    assert redis_versions.tls_settings({})["ssl_check_hostname"] is True
    assert redis_versions.tls_settings({"ssl_cert_reqs": "none"})["ssl_check_hostname"] is False
    assert redis_versions.tls_settings({"ssl_check_hostname": False})["ssl_check_hostname"] is False


def test_tls_option_that_the_installed_version_lacks_is_named(monkeypatch):
    monkeypatch.setattr(redis_versions, "_TLS", frozenset({"ssl_ca_certs"}))

    with pytest.raises(InvalidValue, match="does not know the option ssl_ca_path"):
        redis_versions.tls_settings({"ssl_ca_certs": "x", "ssl_ca_path": "y"})


def test_connection_goes_back_to_a_node_without_release():
    node = SimpleNamespace(_free=[])

    redis_versions.release(node, "connection")

    assert node._free == ["connection"]


async def test_moved_slot_is_noted_where_the_next_look_up_reads_it():
    nodes = SimpleNamespace(_moved_exception=None)

    await redis_versions.follow(nodes, "moved")

    assert nodes._moved_exception == "moved"


class OldNodes:
    def __init__(self):
        self.startup_nodes = {"a": 1, "b": 2}
        self.asked = []

    async def initialize(self):
        self.asked = list(self.startup_nodes)


async def test_node_in_doubt_is_asked_last_for_the_layout():
    nodes = OldNodes()

    await redis_versions.ask_for_nodes(nodes, last=SimpleNamespace(name="a"))

    assert nodes.asked == ["b", "a"]


@pytest.mark.parametrize(
    ("happened", "unread"),
    [
        (lambda reader: None, False),
        (lambda reader: reader.feed_data(b"x"), True),
        (lambda reader: reader.feed_eof(), True),
        (lambda reader: reader.set_exception(OSError()), True),
    ],
)
async def test_idle_stream_that_is_not_at_rest_is_noticed(happened, unread):
    reader = asyncio.StreamReader()
    happened(reader)

    assert await redis_versions.has_unread(SimpleNamespace(_reader=reader)) is unread


def test_connection_that_knows_no_marks_need_not_be_opened_again():
    assert redis_versions.should_reconnect(object()) is False
