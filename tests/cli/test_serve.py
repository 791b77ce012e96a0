"""``rsmqctl serve grpc``: the broker as a process."""

import asyncio
import os
import re
import signal
import sys

import grpc
import grpc.aio
import pytest
from redis.asyncio import Redis

from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub
from aiorsmq_ng.testing import PrivateServer

from ..support.tls import Authority
from ..support.waiting import until
from .test_worker import read_until

JOBS = [pb.Source(queue="jobs")]


class Served:
    """A broker in a process of its own."""

    def __init__(self, process, line):
        self.process = process
        self.line = line
        self.address = re.search(r"on (\S+) \(", line)[1]

    async def stop(self):
        self.process.send_signal(signal.SIGTERM)
        _, log = await self.process.communicate()
        return self.process.returncode, log.decode()


@pytest.fixture
async def start(server_url, ns):
    started = []

    async def start(*words, **environment):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "aiorsmq_ng.cli", "-r", server_url, "--ns", ns),
            *("serve", "grpc", "--listen", "127.0.0.1:0", *words),
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **environment},
        )
        started.append(process)
        line = (await process.stderr.readline()).decode()
        return Served(process, line)

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_it_runs_on_uvloop_where_that_is_installed(start, tmp_path):
    (tmp_path / "uvloop.py").write_text(
        "import asyncio, pathlib\n"
        "def new_event_loop():\n"
        "    pathlib.Path(__file__).with_name('used').touch()\n"
        "    return asyncio.new_event_loop()\n"
    )

    await start(PYTHONPATH=str(tmp_path))

    assert (tmp_path / "used").exists()


async def test_it_says_where_it_listens_serves_and_stops_in_good_order(start, queue):
    served = await start("--gomq", "share")
    assert re.search(r"over gRPC on 127.0.0.1:\d+ \(no TLS, no tokens, gomq: share\)", served.line)
    async with grpc.aio.insecure_channel(served.address) as channel:
        queues = QueuesStub(channel)
        await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"a", b"b"]))
        stream = queues.Consume(pb.ConsumeRequest(sources=JOBS, max_unsettled=1))
        (delivery,) = (await stream.read()).deliveries
        served.process.send_signal(signal.SIGTERM)

        async def stopping():
            try:
                await queues.GetInfo(pb.GetInfoRequest())
            except grpc.RpcError as error:
                return dict(tuple(error.trailing_metadata())).get("rsmq-code") == "stopping"

        await until(stopping)
        await queues.Ack(pb.AckRequest(receipts=[delivery.receipt]))
        _, log = await served.process.communicate()

    assert served.process.returncode == 0, log
    attributes = await queue.attributes()
    assert (attributes.ready, attributes.leased) == (1, 0)


async def test_a_second_signal_does_not_wait(start, queue):
    served = await start("--grace", "600")
    async with grpc.aio.insecure_channel(served.address) as channel:
        queues = QueuesStub(channel)
        await queue.send("x")
        stream = queues.Consume(pb.ConsumeRequest(sources=JOBS, vt_ms=600_000))
        await stream.read()
        served.process.send_signal(signal.SIGTERM)
        while b"stopping because" not in await served.process.stderr.readline():
            pass
        code, _ = await served.stop()

    assert code == 0
    assert (await queue.attributes()).ready == 1


async def test_tokens_come_from_a_file_or_the_environment(start, tmp_path):
    file = tmp_path / "tokens.toml"
    file.write_text('[ops]\ntoken = "0123456789abcdef"\nroles = ["admin"]\n')
    file.chmod(0o600)
    for words, environment, name in (
        (("--tokens", str(file)), {}, "ops"),
        ((), {"RSMQ_BROKER_TOKEN": "0123456789abcdef"}, "admin"),
    ):
        served = await start(*words, **environment)
        assert "1 token," in served.line
        async with grpc.aio.insecure_channel(served.address) as channel:
            queues = QueuesStub(channel)
            metadata = [("authorization", "Bearer 0123456789abcdef")]
            info = await queues.GetInfo(pb.GetInfoRequest(), metadata=metadata)
            with pytest.raises(grpc.RpcError):
                await queues.GetInfo(pb.GetInfoRequest())
        assert info.identity == name
        code, log = await served.stop()
        assert code == 0
        assert "0123456789abcdef" not in log


@pytest.mark.parametrize(
    ("words", "status", "complaint"),
    [
        (["--listen", "0.0.0.0:0"], 2, "needs TLS and tokens"),
        (["--listen", "nonsense"], 2, "not of the form host:port"),
        (["--cert", "missing.pem", "--key", "missing.key"], 2, "'missing.pem' cannot be read"),
        (["--tokens", "missing.toml"], 2, "cannot be read: No such file"),
        (["--client-ca", __file__], 2, "needs --cert and --key"),
        (["--cert", __file__], 2, "belong together"),
        (["--receipt-key", os.devnull], 2, "less than 16 bytes"),
        (["--gomq", "maybe"], 2, "'maybe' is not one of"),
        (["--cert", __file__, "--key", __file__], 2, "holds no certificate in PEM"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_sentence(ctl, words, status, complaint):
    outcome = ctl("serve", "grpc", *words)

    assert outcome.status == status
    assert complaint in outcome.err
    assert outcome.err.strip().count("\n") == 0


def test_files_that_make_no_tls_are_named(ctl, tmp_path):
    one, other = Authority(tmp_path, "one"), Authority(tmp_path, "other")
    certificate, key = (file.rename(f"{file}.one") for file in one.client_files())
    foreign = other.client_files()[1]
    locked = tmp_path / "locked"
    locked.write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMII=\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    for words, complaint in (
        (("--key", foreign), f"--key '{foreign}' is not the key of --cert '{certificate}'"),
        (("--key", certificate), f"--key '{certificate}' holds no key in PEM"),
        (("--key", locked), f"--key '{locked}' holds no key in PEM, or one with a password"),
        (("--key", key, "--client-ca", key), f"--client-ca '{key}' holds no certificate in PEM"),
    ):
        refused = ctl("serve", "grpc", "--cert", str(certificate), *map(str, words))
        assert refused.status == 2
        assert complaint in refused.err


def test_an_unreachable_server_has_a_status_of_its_own(call):
    words = ("serve", "grpc", "--listen", "127.0.0.1:0", "--wait-for-server", "0")
    outcome = call("-r", "redis://127.0.0.1:1", *words)

    assert outcome.status == 4
    assert "cannot be reached" in outcome.err


async def serve(url, ns, *words):
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiorsmq_ng.cli", "-r", url, "--ns", ns),
        *("serve", "grpc", "--listen", "127.0.0.1:0", *words),
        stderr=asyncio.subprocess.PIPE,
    )


async def test_it_waits_for_its_server_and_goes_on_through_an_outage(ns):
    async with PrivateServer(persistence="always") as server:
        server.kill()
        process = await serve(server.url, ns)
        log = await read_until(process, "the server does not answer, waiting for it")
        assert "over gRPC on" not in log
        await server.start()
        log += await read_until(process, "over gRPC on")
        server.kill()
        log += await read_until(process, "the server does not answer, waiting for it")
        await server.start()
        log += await read_until(process, "the server answers again")
        process.send_signal(signal.SIGTERM)
        _, rest = await process.communicate()

    log += rest.decode()
    assert process.returncode == 0
    assert log.count("does not answer") == log.count("answers again") == 2, log


async def test_a_signal_while_it_waits_for_the_server_ends_it_with_0(ns):
    process = await serve("redis://127.0.0.1:1", ns)
    await read_until(process, "the server does not answer, waiting for it")
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        _, log = await process.communicate()

    assert process.returncode == 0
    assert "stopped by SIGTERM while waiting" in log.decode()
    assert "Traceback" not in log.decode()


async def test_a_wrong_password_is_not_waited_for(ns):
    async with PrivateServer() as server:
        async with Redis.from_url(server.url) as admin:
            await admin.config_set("requirepass", "right")
        process = await serve(server.url.replace("redis://", "redis://:wrong@"), ns)
        async with asyncio.timeout(60):
            _, log = await process.communicate()

    assert process.returncode == 4
    assert "refused access" in log.decode()


def test_every_limit_with_an_option_is_set_by_it():
    from aiorsmq_ng.broker import Limits
    from aiorsmq_ng.cli import broker

    given = {option.name: None for option in broker.grpc.params}
    given |= {"listen": (), "insecure": False, "gomq": "off", "grace": 1.0}
    chosen = {name: 2000 + number for number, name in enumerate(broker._LIMITS)}
    given |= {f"max_{name}": value for name, value in chosen.items()}

    assert {f"max_{name}" for name in chosen} == {name for name in given if name.startswith("max_")}
    assert broker.read_options(given).limits == Limits(**chosen)
