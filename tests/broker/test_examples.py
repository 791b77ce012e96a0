"""The examples of the broker run as they are written, also the one in another language."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from tools.conformance.installation import CACHE, NotInstalled, installation, run

from ..interop.drivers import INSTALL_LIMIT_S

EXAMPLES = Path(__file__).parents[2] / "examples" / "grpc"
GRPC_JS = ("@grpc/grpc-js@1", "@grpc/proto-loader@0")


async def start(*command, **environment):
    return await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
    )


async def lines(process):
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode().splitlines()


async def test_a_publisher_and_two_consumers(broker, rsmq):
    address = broker.addresses[0]
    for consumer in ("billing", "mail"):
        await rsmq.topic("example-news").subscribe(consumer)
    subscribers = [
        await start(sys.executable, EXAMPLES / "subscriber.py", address, consumer)
        for consumer in ("billing", "mail")
    ]

    published = await lines(await start(sys.executable, EXAMPLES / "publisher.py", address))
    handled = [await lines(process) for process in subscribers]

    assert published[-1] == "published 10 events"
    assert [found[-1] for found in handled] == ["billing is done", "mail is done"]
    assert handled[0][:-1] == [f"billing handles event {n}" for n in range(10)]


@pytest.fixture(scope="session")
def node_modules():
    """Install gRPC for Node, once."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node and npm are not both on the PATH")
    folder = CACHE / "node-grpc"
    try:
        witness = folder / "node_modules" / "@grpc" / "proto-loader"
        with installation(folder, " ".join(GRPC_JS), witness) as needed:
            if needed:
                (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
                install = ("install", "--no-audit", "--no-fund", "--no-save", "--ignore-scripts")
                run(npm, *install, "--prefix", folder, *GRPC_JS, limit_s=INSTALL_LIMIT_S)
    except NotInstalled as reason:
        pytest.skip(f"gRPC for Node cannot be installed: {reason}")
    return folder / "node_modules"


@pytest.mark.node
async def test_a_client_in_another_language(broker, node_modules, rsmq):
    said = await lines(
        await start(
            "node", EXAMPLES / "client.js", broker.addresses[0], NODE_PATH=str(node_modules)
        )
    )

    assert said == [f"message {n}" for n in range(10)] + ["5 queueNotFound", "done"]
    assert await rsmq.list_queues() == []
