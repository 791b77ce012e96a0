"""Options and schemas: what is wrong is said in one sentence, with what to write instead."""

import asyncio
import dataclasses
import re
import subprocess
import sys

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from aiorsmq_ng import InvalidValue, NotSupported
from aiorsmq_ng._protocol.operations import queues
from aiorsmq_ng._protocol.shards import Shards
from aiorsmq_ng._runtime import sync_client
from aiorsmq_ng.spark.arrow_rows import check_schema, full_schema
from aiorsmq_ng.spark.options import ReadOptions, StreamReadOptions, WriteOptions, parse
from aiorsmq_ng.spark.writers import BatchSink
from aiorsmq_ng.testing import PrivateServer

from .conftest import ROOT, environment


def columns(**kinds):
    return StructType([StructField(name, kind()) for name, kind in kinds.items()])


@pytest.mark.parametrize(
    ("kind", "options", "sentence"),
    [
        (
            ReadOptions,
            {"fetchSise": "5"},
            "option 'fetchSise' is not known; did you mean 'fetchSize'",
        ),
        (
            ReadOptions,
            {"xyzzy": "5"},
            "option 'xyzzy' is not known; there are allowEviction",
        ),
        (ReadOptions, {"leaseMs": "5000"}, "option 'leaseMs' is one of readStream, not of read"),
        (ReadOptions, {"fetchSize": "x"}, "'fetchSize' is a whole number from 1 to 7000, not 'x'"),
        (ReadOptions, {"visibility": "some"}, "'visibility' is one of 'all', 'visible', 'hidden'"),
        (ReadOptions, {"sentAfter": "yesterday"}, "'sentAfter' is a time such as"),
        (ReadOptions, {"queue": "no:colon"}, "queue name 'no:colon' is not allowed"),
        (ReadOptions, {"queue": ""}, "option 'queue' is missing"),
        (ReadOptions, {"namespace": "a b"}, "namespace 'a b' is not allowed"),
        (StreamReadOptions, {"leaseMs": "1"}, "'leaseMs' is a whole number from 1000"),
        (StreamReadOptions, {"claimMod": "move"}, "did you mean 'claimMode'"),
        (StreamReadOptions, {"claimMode": "move"}, "needs a name in option 'ledger'"),
        (StreamReadOptions, {"ledger": "a b"}, "option 'ledger' is a name of letters"),
        (StreamReadOptions, {"failOnDataLoss": "perhaps"}, "'failOnDataLoss' is true or false"),
        (WriteOptions, {"sendSize": "0"}, "'sendSize' is a whole number"),
        (WriteOptions, {"jobId": "a:b"}, "option 'jobId' is a name of letters"),
        (WriteOptions, {"visibility": "all"}, "'visibility' is one of read, not of write"),
    ],
)
def test_wrong_option_is_one_clear_sentence(kind, options, sentence):
    with pytest.raises(InvalidValue) as caught:
        parse(kind, {"queue": "jobs", **options})
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_are_known_by_the_names_that_users_of_kafka_know():
    options = parse(
        StreamReadOptions,
        {"path": "jobs", "NS": "shop", "groupId": "etl", "maxOffsetsPerTrigger": "7"},
    )

    assert (options.queue, options.namespace) == ("jobs", "shop")
    assert (options.ledger, options.max_messages_per_trigger) == ("etl", 7)


def test_options_of_spark_itself_are_let_through():
    assert parse(WriteOptions, {"queue": "jobs", "checkpointLocation": "somewhere"}).queue == "jobs"


def test_url_is_taken_from_where_it_is_said_to_be(monkeypatch):
    monkeypatch.delenv("RSMQ_URL", raising=False)
    monkeypatch.setenv("SECRET_URL", "redis://from-env")
    used = []
    monkeypatch.setattr(sync_client, "shared_client", lambda url, *_, **__: used.append(url))

    parse(ReadOptions, {"queue": "jobs", "urlEnv": "SECRET_URL"}).client()
    parse(ReadOptions, {"queue": "jobs"}).client()

    assert used == ["redis://from-env", "redis://localhost:6379"]
    with pytest.raises(InvalidValue, match="environment variable 'NO_SUCH_URL' is not set"):
        parse(ReadOptions, {"queue": "jobs", "urlEnv": "NO_SUCH_URL"}).client()


@pytest.mark.parametrize("url", ["memory://", "grpc://broker", "grpcs://broker"])
def test_url_that_processes_of_spark_cannot_share_is_refused(url):
    with pytest.raises(InvalidValue, match="cannot be used from Spark"):
        parse(ReadOptions, {"queue": "jobs", "url": url}).client()


def test_refused_password_is_allowed_by_an_option_of_the_source():
    options = {"queue": "jobs", "url": "redis://:secret@db.example"}

    with pytest.raises(InvalidValue, match=r"allow it by .* or option 'plainPassword'$") as caught:
        parse(ReadOptions, options).client()

    assert "Options(" not in str(caught.value)
    parse(ReadOptions, options | {"plainPassword": "true"}).client()


def test_error_names_no_option_that_the_source_does_not_have():
    options = {"queue": "jobs", "url": "rediss://db.example?ssl_cert_reqs=none"}

    with pytest.raises(InvalidValue, match=r"allow it by RSMQ_INSECURE_TLS=1 in the environment$"):
        parse(ReadOptions, options).client()


async def test_server_that_evicts_queues_is_allowed_by_an_option_of_the_source():
    async with PrivateServer("--maxmemory-policy", "allkeys-lru") as server:
        options = parse(ReadOptions, {"queue": "jobs", "url": server.url})
        client = options.own_client()
        with pytest.raises(NotSupported, match="use option 'allowEviction'"):
            await asyncio.to_thread(client.run, queues.exists(options.keys))
        await asyncio.to_thread(client.close)


def test_several_namespaces_are_used_as_one():
    options = parse(WriteOptions, {"queue": "jobs", "namespace": "{a}, {b}"})
    together = Shards.of(["{a}", "{b}"], nested=False)

    for name in ("jobs", "mails", "orders", "orders-dead"):
        assert options.keys_of(name) == together.queue(name)
    with pytest.raises(InvalidValue, match="each of them once"):
        parse(WriteOptions, {"queue": "jobs", "namespace": "a,a"})


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (columns(id=LongType), "column 'id' is string, not bigint"),
        (columns(body=IntegerType), "column 'body' is string or binary, not int"),
        (columns(everything=StringType), "there is no column 'everything'"),
    ],
)
def test_wrong_schema_is_one_clear_sentence(schema, sentence):
    with pytest.raises(InvalidValue, match=sentence):
        check_schema(schema)


def test_whole_schema_is_the_documented_one():
    expected = "struct<id:string,queue:string,body:{},sent_at:timestamp,visible_at:timestamp,"
    expected += "first_received_at:timestamp,receive_count:bigint>"

    for name in ("string", "binary"):
        assert full_schema(name).simpleString() == expected.format(name)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (columns(body=IntegerType), "column 'body' is string or binary, not int"),
        (columns(id=StringType), "there is no column 'body'"),
        (columns(body=StringType, price=IntegerType), "df.selectExpr"),
    ],
)
def test_rows_that_cannot_be_sent_are_refused_before_anything_is(schema, sentence):
    with pytest.raises(InvalidValue, match=sentence):
        BatchSink(parse(WriteOptions, {"queue": "jobs"}), schema, overwrite=False)


def test_processes_that_only_look_around_do_not_import_the_driver_of_redis():
    look = "import sys, pyspark_rsmq; sys.exit('redis' in sys.modules)"

    subprocess.run([sys.executable, "-c", look], env=environment(), check=True)


def documented():
    """Yield name and default of every option that the documentation lists."""
    text = (ROOT / "docs" / "reference" / "spark.md").read_text()
    table = text[text.index("\n## Options\n") :]
    for row in table.splitlines():
        if row.startswith("| `"):
            _, names, default, _ = re.split(r"\s*\|\s*", row, maxsplit=3)
            for name in re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", names)):
                yield name, default.strip("`")


def test_documentation_lists_every_option_with_its_default():
    defaults = {}
    for kind in (ReadOptions, StreamReadOptions, WriteOptions):
        for one in dataclasses.fields(kind):
            first, *rest = one.name.split("_")
            defaults[first + "".join(map(str.capitalize, rest))] = one.default
    listed = dict(documented())

    assert set(listed) == set(defaults)
    for name, default in defaults.items():
        if default:
            assert listed[name] == str(default).lower(), name


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"queue": "jobs"}, ("jobs",)),
        ({"path": "jobs, mails"}, ("jobs", "mails")),
        ({"queues": "jobs,mails"}, ("jobs", "mails")),
        ({"paths": '["jobs", "mails"]'}, ("jobs", "mails")),
        ({"queuesPattern": "jobs-.*"}, ()),
    ],
)
def test_queues_are_named_in_several_ways(given, names):
    options = parse(StreamReadOptions, given)

    assert options.names == names
    assert options.is_single == (given == {"queue": "jobs"})
    assert options.skips_missing == ("queuesPattern" in given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"queue": "jobs", "queues": "mails"}, "'queue' and 'queues' both name queues"),
        ({"queues": "jobs", "queuesPattern": ".*"}, "'queues' and 'queuesPattern' both"),
        ({"queues": "jobs,jobs"}, "'queues' names a queue twice"),
        ({"queues": "jobs,,mails"}, "name|queue"),
        ({"queuesPattern": "jobs-("}, "'queuesPattern' is a regular expression"),
        ({"queues": ""}, "'queue' is missing"),
    ],
)
def test_wrong_selections_of_queues_are_one_sentence(given, sentence):
    with pytest.raises(InvalidValue, match=sentence):
        parse(StreamReadOptions, given)
