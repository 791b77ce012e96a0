"""Access: tokens, roles, namespaces, certificates; and what a broker does not offer."""

import asyncio
import logging
import socket
import subprocess
import sys
import textwrap

import pytest

from aiorsmq_ng import (
    RSMQ,
    AccessDenied,
    InvalidValue,
    LeaseLost,
    NotSupported,
    Options,
    Retry,
    Unavailable,
)
from aiorsmq_ng.broker import Broker, BrokerOptions, Tls, Tokens

from ..support.streams import listening
from ..support.tls import Authority

LOCAL = BrokerOptions(listen=("127.0.0.1:0",), grace=0.5)
SECRET = "only-for-the-producer"
TOKENS = Tokens.read(
    """
    [all]
    token = "may-do-everything"
    roles = ["admin"]
    [maker]
    token = "only-for-the-producer"
    roles = ["producer"]
    queues = ["jobs"]
    [taker]
    token = "only-for-the-consumer"
    roles = ["consumer"]
    queues = ["jobs"]
    """
)


@pytest.fixture
async def guarded(inner):
    """The url of a broker that wants tokens."""
    await inner.create_queue("jobs")
    await inner.create_queue("other")
    async with Broker(inner, LOCAL, TOKENS) as broker:
        yield f"grpc://{broker.addresses[0]}"


async def test_tokens_open_what_they_are_for(guarded, ns):
    async with (
        RSMQ(guarded, ns=ns, token=SECRET) as maker,
        RSMQ(guarded, ns=ns, token="only-for-the-consumer") as taker,
    ):
        id = await maker.queue("jobs").send("x")
        message = await taker.queue("jobs").receive(wait=10)
        assert message.id == id
        # The dead-letter queue belongs to the queue.
        await message.reject("no use")

        with pytest.raises(
            AccessDenied, match=r"refused the call: .*'maker' lacks the role consumer"
        ):
            await maker.queue("jobs").receive()
        with pytest.raises(
            AccessDenied, match=r"refused the call: .*'maker' is not for queue 'other'"
        ):
            await maker.queue("other").send("x")
        for call in (taker.queue("jobs").purge(), taker.queue("other").exists()):
            # No name of a call of gRPC, which is not what the user called.
            with pytest.raises(AccessDenied, match="refused the call: token 'taker'"):
                await call


async def test_missing_and_wrong_tokens_are_reported_at_once_and_not_shown(guarded, ns, caplog):
    caplog.set_level(logging.DEBUG)
    for token in (None, "something-quite-wrong"):
        rsmq = RSMQ(guarded, ns=ns, token=token)
        with pytest.raises(AccessDenied, match="check token= or RSMQ_TOKEN") as refused:
            await rsmq.open()
        await rsmq.aclose()
        shown = repr(rsmq) + repr(vars(rsmq)) + repr(refused.value) + caplog.text
        assert "quite-wrong" not in shown


async def test_token_of_the_environment_is_taken_unless_one_is_given(guarded, ns, monkeypatch):
    monkeypatch.setenv("RSMQ_TOKEN", SECRET)
    monkeypatch.setenv("RSMQ_URL", guarded)
    async with RSMQ(ns=ns) as rsmq:
        await rsmq.queue("jobs").send("x")
    async with RSMQ(ns=ns, token="may-do-everything") as rsmq:
        assert await rsmq.queue("jobs").purge() == 1


def test_token_is_not_sent_to_another_machine_in_clear_text():
    for url in ("grpc://10.0.0.1", "grpc://broker.example:10001"):
        with pytest.raises(InvalidValue, match="clear text; use grpcs://") as refused:
            RSMQ(url, token=SECRET)
        assert SECRET not in str(refused.value)
        RSMQ(url, token=SECRET, options=Options(plain_password=True))
        RSMQ(url)
    for url in ("grpcs://10.0.0.1", "grpc://localhost:1", "grpc://[::1]:10001"):
        RSMQ(url, token=SECRET)


@pytest.mark.parametrize("token", ["two words\n", " begins", "ends ", "schlüssel"])
def test_token_that_cannot_be_one_is_refused(token):
    with pytest.raises(InvalidValue, match="printable ASCII"):
        RSMQ("grpc://localhost", token=token)


def test_token_for_a_server_is_refused():
    with pytest.raises(InvalidValue, match="a token is for a broker"):
        RSMQ("redis://localhost", token=SECRET)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("grpc://user:secret@localhost", "token= or RSMQ_TOKEN"),
        ("grpc://a:1,b:2", "one host"),
        ("grpc://localhost/0", "no path"),
        ("grpc://localhost?ssl_ca_certs=x", "use grpcs"),
        ("grpcs://localhost?ssl_cert_reqs=none", "does not take"),
        ("grpcs://localhost?ssl_certfile=x", "belong together"),
        ("grpc://localhost:99999", "cannot be read"),
        ("grpc+unix://host/path", "no host"),
        ("grpc+unix://", "names a socket"),
        ("grpc+unix:///path?ssl_ca_certs=x", "use grpcs"),
    ],
)
def test_url_that_cannot_be_meant_is_refused(url, words):
    with pytest.raises(InvalidValue, match=words) as refused:
        RSMQ(url)
    assert "secret" not in str(refused.value)


async def test_namespace_is_the_brokers(broker_url, ns):
    with pytest.raises(InvalidValue, match=f"serves namespace '{ns}', not 'other'; .*ns='{ns}'"):
        await RSMQ(broker_url, ns="other").open()
    with pytest.raises(InvalidValue, match="one namespace, not 2"):
        await RSMQ(broker_url, ns=[ns, "other"]).open()


async def test_missing_broker_is_reported_within_the_connect_timeout():
    rsmq = RSMQ("grpc://127.0.0.1:1", options=Options(connect_timeout=0.3))
    with pytest.raises(Unavailable, match="cannot be reached") as away:
        await rsmq.open()
    await rsmq.aclose()

    assert (away.value.executed, away.value.transient) == (False, True)


async def test_server_that_is_no_broker_is_reported():
    async def hang_up(_reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with listening(hang_up) as port:
        rsmq = RSMQ(f"grpc://127.0.0.1:{port}", options=Options(connect_timeout=0.5))
        with pytest.raises(Unavailable):
            await rsmq.open()
        await rsmq.aclose()


async def test_what_a_broker_does_not_offer_is_said(rsmq, queue):
    with pytest.raises(NotSupported, match="cannot be done through a broker"):
        await rsmq.doctor()


async def test_what_waited_is_not_kept_for_a_client_of_a_broker(rsmq):
    with pytest.raises(NotSupported, match="keep_backlog"):
        await rsmq.topic("news", keep_backlog=1).subscribe("a")

    assert await rsmq.list_topics() == []


async def test_another_client_settles_by_the_whole_receipt_only(rsmq, queue, broker_url, ns):
    await queue.send("x")
    message = await queue.receive()
    async with RSMQ(broker_url, ns=ns) as other:
        with pytest.raises(InvalidValue, match="has no proof"):
            await other.queue("jobs").delivery(message.receipt[:3]).ack()
        await other.queue("jobs").delivery(message.receipt).ack()
    with pytest.raises(LeaseLost):
        await message.ack()


async def test_request_that_is_too_large_is_refused_before_it_is_believed_lost(inner, ns):
    await inner.create_queue("jobs", maxsize=-1)
    async with (
        Broker(inner, LOCAL) as broker,
        RSMQ(f"grpc://{broker.addresses[0]}", ns=ns) as rsmq,
    ):
        with pytest.raises(InvalidValue, match="larger than the broker takes"):
            await rsmq.queue("jobs").send(b"x" * (5 << 20))
        # What others sent is received, whatever its size.
        await inner.queue("jobs").send(b"x" * (5 << 20))
        assert len((await rsmq.queue("jobs").receive()).body) == 5 << 20


async def test_broker_on_a_unix_socket_has_a_url(inner, ns, tmp_path):
    path = tmp_path / "a socket"
    await inner.create_queue("jobs")
    async with Broker(inner, BrokerOptions(listen=(f"unix:{path}",), grace=0.5), TOKENS):
        url = f"grpc+unix://{path}".replace(" ", "%20")
        async with RSMQ(url, ns=ns, token=SECRET) as maker:
            await maker.queue("jobs").send("x")
    rsmq = RSMQ(url, ns=ns, options=Options(connect_timeout=0.3))
    with pytest.raises(Unavailable, match="the broker cannot be reached"):
        await rsmq.open()
    await rsmq.aclose()

    assert [m.text for m in await inner.queue("jobs").peek()] == ["x"]


async def test_dead_letters_and_limits_of_a_handle_hold(rsmq, inner):
    await rsmq.create_queue("jobs")
    queue = rsmq.queue("jobs", dead_letter="graves", retry=Retry(max_receives=1))
    await queue.send("poison")
    await (await queue.receive()).release()

    assert await queue.receive() is None
    assert [m.text for m in await inner.queue("graves").peek()] == ["poison"]


class TestTls:
    @pytest.fixture
    def authority(self, tmp_path):
        return Authority(tmp_path)

    @pytest.fixture
    async def secure(self, inner, authority):
        """A broker whose certificate is for localhost; its port."""
        issued = authority._ca.issue_cert("localhost")
        tls = Tls(certificate=issued.cert_chain_pems[0].bytes(), key=issued.private_key_pem.bytes())
        options = BrokerOptions(listen=("localhost:0",), grace=0.5, tls=tls)
        async with Broker(inner, options, TOKENS) as broker:
            yield broker.addresses[0].rpartition(":")[2]

    async def test_everything_works_over_tls(self, secure, authority, ns):
        url = f"grpcs://localhost:{secure}?ssl_ca_certs={authority.file}"
        async with RSMQ(url, ns=ns, token="may-do-everything") as rsmq:
            queue = await rsmq.create_queue("jobs")
            receiving = asyncio.create_task(queue.receive(wait=30))
            await queue.send("x")
            await (await receiving).ack()

    async def test_broker_that_asks_for_a_certificate(self, inner, authority, ns):
        issued = authority._ca.issue_cert("localhost")
        tls = Tls(
            certificate=issued.cert_chain_pems[0].bytes(),
            key=issued.private_key_pem.bytes(),
            client_ca=authority.file.read_bytes(),
        )
        options = BrokerOptions(listen=("localhost:0",), grace=0.5, tls=tls)
        async with Broker(inner, options) as broker:
            url = f"grpcs://{broker.addresses[0]}?ssl_ca_certs={authority.file}"
            # It is asked again until the time is over: several times, also on a slow machine.
            rsmq = RSMQ(url, ns=ns, options=Options(connect_timeout=6))
            with pytest.raises(Unavailable, match="may want a certificate by ssl_certfile"):
                await rsmq.open()
            await rsmq.aclose()
            certificate, key = authority.client_files()
            url += f"&ssl_certfile={certificate}&ssl_keyfile={key}"
            async with RSMQ(url, ns=ns) as rsmq:
                assert await rsmq.list_queues() == []

    @pytest.mark.parametrize(
        ("host", "trusts", "words"),
        [("localhost", False, "is not trusted"), ("127.0.0.1", True, "for another host")],
    )
    async def test_certificate_that_proves_nothing(
        self, secure, authority, ns, host, trusts, words
    ):
        url = f"grpcs://{host}:{secure}" + (f"?ssl_ca_certs={authority.file}" if trusts else "")
        rsmq = RSMQ(url, ns=ns, token=SECRET)
        with pytest.raises(Unavailable, match=words):
            await rsmq.open()
        await rsmq.aclose()

    @pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
    async def test_broker_with_tls_and_a_client_without(self, secure, ns, host):
        rsmq = RSMQ(f"grpc://{host}:{secure}", ns=ns)
        with pytest.raises(Unavailable, match="speaks TLS at this port; use grpcs://") as refused:
            await rsmq.open()
        assert not refused.value.transient
        await rsmq.aclose()

    async def test_silence_and_absence_are_not_taken_for_tls(self, ns):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            for scheme in ("grpc", "grpcs"):
                for url in (f"{scheme}://127.0.0.1:{port}", f"{scheme}://127.0.0.1:1"):
                    rsmq = RSMQ(url, ns=ns, options=Options(connect_timeout=0.5))
                    with pytest.raises(Unavailable) as refused:
                        await rsmq.open()
                    assert refused.value.transient
                    await rsmq.aclose()

    async def test_broker_without_tls(self, broker_url, ns):
        rsmq = RSMQ(broker_url.replace("grpc://", "grpcs://"), ns=ns)
        with pytest.raises(Unavailable, match="does not speak TLS"):
            await rsmq.open()
        await rsmq.aclose()

    async def test_file_that_is_missing(self, ns):
        rsmq = RSMQ("grpcs://localhost?ssl_ca_certs=/nowhere/ca.pem", ns=ns)
        with pytest.raises(Unavailable, match="check ssl_ca_certs"):
            await rsmq.open()
        await rsmq.aclose()


def test_missing_extra_is_said_with_the_line_to_type():
    program = """
        import asyncio, sys
        sys.modules["grpc"] = None
        from aiorsmq_ng import RSMQ
        asyncio.run(RSMQ("grpc://localhost").open())
        """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert 'pip install "aiorsmq-ng[grpc]"' in result.stderr
    assert "InvalidValue" in result.stderr


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy", "grpc_proxy"])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_no_proxy_of_the_environment_sees_a_token(guarded, ns, monkeypatch, variable, host):
    seen = bytearray()

    async def proxy(reader, _writer):
        seen.extend(await reader.read(65536))

    async with listening(proxy) as port:
        for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(variable, f"http://127.0.0.1:{port}")
        url = guarded.replace("127.0.0.1", host)
        async with RSMQ(url, ns=ns, token=SECRET, options=Options(connect_timeout=5)) as maker:
            await maker.queue("jobs").send("x")

    assert not seen
