"""The ready jobs."""

import html
import json
import os
import signal
import socket
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from unittest import mock

import pytest

from aiorsmq_ng import InvalidValue, QueueNotFound, RSMQError, Unavailable
from aiorsmq_ng._protocol.operations import messages
from aiorsmq_ng.cli.spark_start import spark_error
from aiorsmq_ng.spark import jobs
from aiorsmq_ng.spark.jobs.archive import _BatchWriter, _run
from aiorsmq_ng.spark.jobs.report_page import render

from .conftest import Bench, environment


@pytest.fixture
def options(bench):
    return {"url": bench.url, "namespace": bench.ns}


@pytest.fixture
def mails(server_url, ns):
    return Bench(server_url, ns, "mails")


@pytest.fixture(scope="module")
def lake(spark, server_url, tmp_path_factory):
    """Two queues of another namespace, archived; for tests that only read the archive."""
    ns = f"t{uuid.uuid4().hex[:12]}"
    target = str(tmp_path_factory.mktemp("archive") / "lake")
    Bench(server_url, ns, "jobs").fill_numbers(100)
    Bench(server_url, ns, "mails").fill_numbers(20, start=100)
    jobs.archive(spark, ["jobs", "mails"], target, options={"url": server_url, "namespace": ns})
    return target


def test_archive_holds_every_message_by_queue_and_day(spark, bench, mails, options, tmp_path):
    bench.fill_numbers(100)
    mails.fill_numbers(20, start=100)
    lake, told = str(tmp_path / "lake"), []

    summary = jobs.archive(
        spark,
        ["jobs", "mails"],
        lake,
        options={**options, "maxMessagesPerTrigger": "60"},
        progress=lambda *what: told.append(what),
    )
    rows = jobs.read_archive(spark, lake).collect()

    assert summary == {
        "target": lake,
        "rows": 120,
        "queues": {"jobs": 100, "mails": 20},
        "missing": [],
    }
    assert told == [(0, 60), (1, 60)]

    assert sorted(int(r.body) for r in rows) == list(range(120))
    assert {(r.queue, r.date) for r in rows} == {
        (name, datetime.now(UTC).date()) for name in ("jobs", "mails")
    }
    assert (bench.size, mails.size) == (0, 0)

    bench.fill_numbers(5, start=120)
    assert jobs.archive(spark, ["jobs"], lake, options=options)["rows"] == 5
    assert jobs.read_archive(spark, lake).count() == 125


def test_archive_goes_on_without_a_missing_queue_and_with_other_queues(
    spark, bench, mails, options, tmp_path
):
    bench.fill_numbers(3)
    lake = str(tmp_path / "lake")

    summary = jobs.archive(spark, ["mails"], lake, options=options)
    assert (summary["rows"], summary["queues"]) == (0, {"mails": 0})
    summary = jobs.archive(spark, ["none", "jobs"], lake, options=options)
    assert (summary["queues"], summary["missing"]) == ({"jobs": 3}, ["none"])
    with pytest.raises(QueueNotFound, match="'none'"):
        jobs.archive(spark, ["none"], lake, options=options)

    mails.fill_numbers(2, start=3)
    assert jobs.archive(spark, ["mails"], lake, options=options)["queues"] == {"mails": 2}
    assert sorted(int(r.body) for r in jobs.read_archive(spark, lake).collect()) == [*range(5)]


def test_archive_of_a_hundred_queues_is_one_query_of_few_batches(
    spark, server_url, ns, options, tmp_path
):
    """Ninety of them are empty; taken one after the other they would need minutes."""
    names = [f"queue-{number}" for number in range(100)]
    benches = [Bench(server_url, ns, name) for name in names]
    for number, bench in enumerate(benches[::10]):
        bench.fill_numbers(5, start=5 * number)
    batches = []

    summary = jobs.archive(
        spark,
        names,
        str(tmp_path / "lake"),
        options=options,
        progress=lambda *what: batches.append(what),
    )

    assert summary["queues"] == dict.fromkeys(names, 0) | dict.fromkeys(names[::10], 5)
    assert batches == [(0, 50)]
    assert [bench.size for bench in benches] == [0] * 100


def test_archive_batch_that_runs_again_replaces_its_files(
    spark, bench, options, tmp_path, monkeypatch
):
    """Killed after the files were written, before Spark wrote that down."""
    bench.fill_numbers(10)
    target = str(tmp_path / "lake")
    write = _BatchWriter.__call__

    def dies(self, *batch):
        write(self, *batch)
        raise RuntimeError("killed here")

    monkeypatch.setattr(_BatchWriter, "__call__", dies)
    with pytest.raises(Exception, match="killed here"):
        jobs.archive(spark, ["jobs"], target, options=options)
    monkeypatch.undo()
    assert jobs.read_archive(spark, target).count() == 10
    assert bench.size == 10

    jobs.archive(spark, ["jobs"], target, options=options)

    assert sorted(int(r.body) for r in jobs.read_archive(spark, target).collect()) == list(
        range(10)
    )
    assert bench.size == 0


def test_archive_starts_again_if_python_was_late_and_not_if_something_is_wrong():
    class Writer:
        def __init__(self, *outcomes):
            self.outcomes = list(outcomes)

        id, recentProgress = "0123456789", ()  # noqa: N815

        def start(self):
            return self

        def stop(self):
            pass

        def awaitTermination(self, _seconds):
            if outcome := self.outcomes.pop(0):
                raise RuntimeError(outcome)
            return True

    late = "terminated with exception: Python worker failed to connect back."
    patient, wrong, hopeless = Writer(late, late, ""), Writer("no queue", ""), Writer(*[late] * 5)

    _run(patient)
    with pytest.raises(RuntimeError, match="no queue"):
        _run(wrong)
    with pytest.raises(RuntimeError, match="connect back"):
        _run(hopeless)

    assert (patient.outcomes, wrong.outcomes, len(hopeless.outcomes)) == ([], [""], 2)


def source_processes(spark):
    """Return the ids of the processes that Spark runs for the sources of its queries."""
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    listed = subprocess.run(
        ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True
    )
    rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
    return [
        int(pid)
        for pid, parent, command in rows
        if int(parent) == jvm and "python_streaming_source_runner" in command
    ]


def test_archive_whose_source_process_is_killed_names_it(spark, bench, options, tmp_path):
    """Spark's own error has no text."""
    bench.fill_numbers(3)

    def kill(*_):
        for pid in source_processes(spark):
            os.kill(pid, signal.SIGKILL)

    with pytest.raises(RSMQError, match="python_streaming_source_runner, on the driver"):
        jobs.archive(
            spark,
            ["jobs"],
            str(tmp_path / "lake"),
            options=options,
            every="1 second",
            progress=kill,
        )


def test_replay_sends_chosen_messages_to_where_they_came_from(spark, bench, mails, options, lake):
    done = jobs.replay(spark, lake, where="cast(body AS int) >= 95", options=options)

    assert done["rows"] == 25
    assert sorted(map(int, bench.bodies())) == [95, 96, 97, 98, 99]
    assert mails.size == 20


def test_replay_with_ids_sends_nothing_twice(spark, other, options, lake):
    for _ in range(2):
        jobs.replay(spark, lake, queue="out", keep_ids=True, options=options)

    assert other.size == 120


def test_replay_at_a_rate_lets_messages_come_one_by_one(spark, other, options, lake):
    jobs.replay(spark, lake, queue="out", pace=jobs.Pace(rate=0.01), options=options)

    assert [m.body for m in other.receive()] == [b"0"]
    scores = [score for _, score in other.redis.zrange(other.keys.zset, 0, -1, withscores=True)]
    assert scores[2] - scores[1] == pytest.approx(100_000, abs=50)


def test_replay_spread_over_time_hides_most(spark, other, options, lake):
    jobs.replay(spark, lake, queue="out", pace=jobs.Pace(spread=100_000), options=options)

    assert other.size == 120
    assert len(other.receive()) < 10


def test_pace_is_one_or_the_other():
    with pytest.raises(InvalidValue, match="a rate or a spread"):
        jobs.Pace(rate=1, spread=1)


def test_load_sends_rows_as_json_and_lines_as_they_are(spark, bench, other, options, tmp_path):
    (tmp_path / "rows.csv").write_text("name,price\ntea,3\nmilk,1\n")
    table = jobs.open_table(spark, str(tmp_path / "rows.csv"), "csv", {"header": "true"})
    lines = jobs.open_table(spark, str(tmp_path / "rows.csv"), "text")

    jobs.load(table, "jobs", options=options)
    jobs.load(lines, "out", options=options)

    assert {json.loads(b)["name"] for b in bench.bodies()} == {"tea", "milk"}
    assert set(other.bodies()) == {b"name,price", b"tea,3", b"milk,1"}


def test_load_that_runs_again_under_its_name_sends_nothing(spark, bench, options):
    frame = spark.range(10).selectExpr("cast(id AS string) AS value")
    for _ in range(2):
        jobs.load(frame, "jobs", options={**options, "jobId": "once"})

    assert bench.size == 10


def test_report_tells_of_waits_retries_and_poison(spark, bench, options, tmp_path):
    bench.fill(b"fine", b"bad <script>")
    for _ in range(3):
        for message in bench.receive(2):
            if message.body == b"fine":
                bench.run(messages.ack(bench.keys, message.receipt))
            else:
                bench.redis.zadd(bench.keys.zset, {message.id: 1})
    bench.fill(b"without a check")
    jobs.archive(spark, ["jobs"], str(tmp_path / "lake"), options=options)

    found = jobs.report(spark, str(tmp_path / "lake"), tmp_path / "page.html")

    (queue,) = found["queues"]
    assert (queue["messages"], queue["received_again"], queue["most_receives"]) == (2, 1, 3)
    assert queue["never_received"] == 1
    assert queue["waited_p50"] == queue["waited_p99"] >= 0
    assert found["receives"] == [{"receives": 0, "messages": 1}, {"receives": 3, "messages": 1}]
    assert [row["receives"] for row in found["poison"]] == [3]
    assert sum(row["messages"] for row in found["arrivals"]) == 2
    page = (tmp_path / "page.html").read_text()
    for shown in ("id", "sent_at", "archived_at"):
        assert found["poison"][0][shown] in page
    for shown in ("source", "first_sent", "last_sent", "time_zone", "created"):
        assert found[shown] in page


@pytest.mark.parametrize(
    ("seconds", "step", "bars"),
    [(3600, 60, 60), (30 * 86_400, 86_400, 30)],
    ids=["an hour", "a month"],
)
def test_report_divides_any_period_into_bars_that_can_be_read(spark, seconds, step, bars):
    """In the time of the session: days begin at its midnight."""
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        found = jobs.report(
            spark,
            spark.range(300).selectExpr(
                "string(id) AS id", "'jobs' AS queue", "'x' AS body", "1 AS receive_count",
                f"timestamp'2026-11-16 00:00:00' + make_dt_interval(0, 0, 0, id % 100 * {seconds} "
                "/ 100) AS sent_at",
                "CAST(NULL AS timestamp) AS first_received_at", "current_timestamp AS archived_at",
            ),
        )  # fmt: skip
    finally:
        spark.conf.unset("spark.sql.session.timeZone")

    assert found["time_zone"] == "Asia/Kolkata"
    assert found["step_s"] == step
    assert len(found["arrivals"]) == bars
    assert found["arrivals"][0]["at"] == "2026-11-16 00:00:00"
    assert sum(row["messages"] for row in found["arrivals"]) == 300


def test_report_on_another_table_says_what_it_lacks(spark):
    with pytest.raises(InvalidValue, match="no archive: it has no column id, queue"):
        jobs.report(spark, spark.sql("SELECT 'x' AS body, 1 AS receive_count"))


def test_triage_groups_dead_letters_and_moves_the_chosen_ones(
    spark, bench, options, ns, server_url
):
    dead = Bench(server_url, ns, "jobs-dead")
    bench.fill(*[json.dumps({"type": t}).encode() for t in ("mail", "mail", "call")], b"none")
    for message in bench.receive(4):
        reason = "timeout" if b"mail" in message.body else "refused"
        bench.run(
            messages.reject(
                bench.keys, message.receipt, dead.keys, reason=reason, channel=dead.keys.wake
            )
        )

    seen = jobs.triage(spark, "jobs-dead", options=options)
    done = jobs.triage(
        spark, "jobs-dead", where="reason = 'timeout'", redrive_to="jobs", options=options
    )

    groups = {(g["reason"], g["type"]): g["count"] for g in seen["groups"]}
    assert groups == {
        ("timeout", "mail"): 2,
        ("refused", "call"): 1,
        ("refused", "unknown"): 1,
    }
    assert (done["messages"], done["redriven"]) == (2, 2)
    assert (bench.size, dead.size) == (2, 2)


def test_pipeline_commands_run_the_jobs(spark, bench, tmp_path, monkeypatch, capsys):
    """On the session that is there; commands stop the one they started."""
    from aiorsmq_ng.cli import main

    monkeypatch.setattr(type(spark), "stop", lambda _: None)
    bench.fill_numbers(7)
    common = ["--ns", bench.ns, "-r", bench.url]

    assert main([*common, "pipeline", "archive", "-n", "jobs", "--to", f"{tmp_path}/lake"]) == 0
    archived = json.loads(capsys.readouterr().out)
    assert archived["rows"] == 7
    replay = ["pipeline", "replay", "--from", f"{tmp_path}/lake", "--where", "body < 5"]
    assert main([*common, *replay]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 5
    assert bench.size == 5
    assert main([*common, "pipeline", "report", "--from", f"{tmp_path}/lake"]) == 0
    assert json.loads(capsys.readouterr().out)["queues"][0]["messages"] == 7
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    load = ["pipeline", "load", "--from", f"{tmp_path}/in.txt", "--format", "text", "-n", "jobs"]
    assert main([*common, *load]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 2
    assert main([*common, "pipeline", "triage", "-n", "jobs"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 7

    assert main([*common, "pipeline", "archive", "-n", "none", "--to", f"{tmp_path}/x"]) == 1
    assert "queue 'none' does not exist" in capsys.readouterr().err
    wrong = ["pipeline", "replay", "--from", f"{tmp_path}/lake", "--where", "nonsense = 3"]
    assert main([*common, *wrong]) == 1
    told = capsys.readouterr().err
    assert "nonsense" in told
    assert "\tat " not in told
    assert main([*common, *load[:4], "--format", "nosuch", "-n", "jobs"]) == 1
    assert "Failed to find the data source: nosuch" in capsys.readouterr().err
    assert main([*common, "pipeline", "triage", "-n", "jobs", "--option", "wrong"]) == 2


@pytest.mark.parametrize(
    "queue",
    [r"$\frac{$", r"$\undefined$", r"\$a$", "$", "_hidden", "{0}%s", "<b>&", "a\nb", "日本"],
)
def test_report_page_is_drawn_whatever_the_queue_is_called(queue):
    page = render(findings([queue], 10))

    assert html.escape(queue) in page
    assert "<script>" not in page
    assert page.count('class="chart"') == 1
    assert "No message was received more than once. Of 10, consumers received 10" in page


def test_report_page_shows_steps_without_messages_and_few_colours_for_many_queues():
    page = render(findings([f"q{n:02d}" for n in range(30)], 10))

    assert page.count('title="2026-11-16') == 3  # two with messages, and the one between them
    assert "24 other queues" in page
    assert "10 queues with fewer messages are in the table above" in page


def test_report_page_of_an_empty_archive_says_so():
    page = render({**findings([], 0), "first_sent": None, "last_sent": None})

    assert page.count("The archive has no messages.") == 2
    assert "No message has a time of sending." in page


def findings(queues, messages):
    """Return what ``report`` finds if each queue has *messages* in two of three hours."""
    shares = {f"waited_p{share}": 0.5 for share in (50, 95, 99)}
    return {
        "source": "lake",
        "first_sent": "2026-11-16 10:00:01",
        "last_sent": "2026-11-16 12:00:01",
        "time_zone": "UTC",
        "created": "2026-11-18 10:00:00",
        "step_s": 3600,
        "queues": [
            {"queue": queue, "messages": messages, "bytes": 1, **shares} for queue in queues
        ],
        "arrivals": [
            {"at": f"2026-11-16 {hour}:00:00", "queue": queue, "messages": messages // 2}
            for hour in (10, 12)
            for queue in queues
        ],
        "receives": [{"receives": 1, "messages": messages * len(queues)}] if queues else [],
        "poison": [],
    }


@pytest.fixture
def no_jvm(monkeypatch, capsys):
    """Run a command that must have its answer before a JVM is asked for."""
    from aiorsmq_ng.cli import main

    def start(*_):
        raise AssertionError("Spark was started")

    monkeypatch.setattr(jobs, "session", start)

    def run(*args):
        status = main(["pipeline", *args])
        return status, capsys.readouterr().err

    return run


def noisy(said, outcome=None):
    """Return a start of Spark whose process writes to stderr."""

    def session(*_):
        subprocess.run(["sh", "-c", f"echo '{said}' >&2"], check=True)
        if outcome is not None:
            raise outcome
        return mock.Mock()

    return session


@pytest.mark.parametrize("verbose", [True, False])
def test_pipeline_shows_what_the_processes_of_spark_write_if_it_is_verbose(
    monkeypatch, capfd, verbose
):
    from aiorsmq_ng.cli import main

    monkeypatch.setattr(jobs, "session", noisy("WARN NativeCodeLoader"))
    monkeypatch.setattr(jobs, "report", lambda *_: {})

    assert main(["pipeline", "report", "--from", "lake", *(["--verbose"] if verbose else [])]) == 0
    assert ("NativeCodeLoader" in capfd.readouterr().err) == verbose


def test_pipeline_whose_spark_does_not_start_says_why(monkeypatch, capfd):
    from aiorsmq_ng.cli import main

    ended = RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited")
    monkeypatch.setattr(jobs, "session", noisy("spark-class: java: not found", ended))

    assert main(["pipeline", "report", "--from", "lake"]) == 1
    told = capfd.readouterr().err
    assert told == "rsmqctl: spark did not start: spark-class: java: not found\n"


@pytest.mark.long
def test_pipeline_writes_nothing_but_its_own_sentences_to_stderr(bench, tmp_path):
    bench.fill_numbers(3)

    archive = ("pipeline", "archive", "-n", "jobs", "--to", f"{tmp_path}/lake")
    result = subprocess.run(
        [sys.executable, "-m", "aiorsmq_ng.cli", "-r", bench.url, "--ns", bench.ns, *archive],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["rows"] == 3
    assert all(line.startswith("rsmqctl: ") for line in result.stderr.splitlines()), result.stderr


PIPELINES = [
    ("archive", "-n", "jobs", "--to", "lake"),
    ("replay", "--from", "lake"),
    ("replay", "--from", "lake", "-n", "jobs"),
    ("load", "--from", "in.txt", "--format", "text", "-n", "jobs"),
    ("triage", "-n", "jobs"),
    ("triage", "-n", "jobs", "--redrive-to", "none"),
]


@pytest.mark.parametrize("command", PIPELINES, ids=" ".join)
def test_pipeline_without_a_server_exits_with_4_before_spark_starts(no_jvm, command):
    status, told = no_jvm(*command, "-r", "redis://127.0.0.1:1")

    assert status == 4
    (sentence,) = told.splitlines()
    assert sentence.startswith("rsmqctl: redis cannot be reached: ")
    assert sentence.endswith("check that the server runs and that -r or RSMQ_URL names it")


def test_pipeline_on_a_server_that_never_answers_exits_with_4(no_jvm):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        status, told = no_jvm("triage", "-n", "jobs", "-r", url)

    assert status == 4
    assert "check that the server runs" in told


@pytest.mark.parametrize("command", [c for c in PIPELINES if "-n" in c], ids=" ".join)
def test_pipeline_on_a_missing_queue_says_so_before_spark_starts(no_jvm, bench, command):
    words = [word if word != "jobs" or "none" in command else "missing" for word in command]
    missing = "none" if "none" in command else "missing"
    status, told = no_jvm(*words, "-r", bench.url, "--ns", bench.ns)

    assert status == 1
    assert told == (
        f"rsmqctl: queue {missing!r} does not exist in namespace {bench.ns!r}; "
        f"create it with: rsmqctl --ns {bench.ns} queue create -n {missing}\n"
    )


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--option", "timoutMs=5"), "did you mean 'timeoutMs'?"),
        (("--option", "leaseMs=5"), "is one of readStream, not of read"),
        (("--option", "url=grpc://h"), "grpc:// url cannot be used from Spark"),
        (("--option", "url=redis://:x@db.example"), "RSMQ_PLAIN_PASSWORD=1"),
        (("--conf", "wrong"), "not of the form NAME=VALUE"),
    ],
    ids=str,
)
def test_pipeline_with_wrong_options_says_so_before_spark_starts(no_jvm, more, words):
    status, told = no_jvm("triage", "-n", "jobs", *more)

    assert status == 2
    assert words in told


def test_pipeline_that_creates_its_queue_needs_none(bench):
    jobs.check("write", ["later"], {**bench_options(bench), "createQueue": "true"})
    with pytest.raises(QueueNotFound):
        jobs.check("write", ["later"], bench_options(bench))

    assert not bench.redis.sismember(f"{bench.ns}:QUEUES", "later")  # it only looks


def test_outage_in_the_middle_of_a_job_exits_with_4_too():
    said = "Job aborted.\naiorsmq_ng.errors.Unavailable: redis cannot be reached: refused\n"

    assert isinstance(spark_error(RuntimeError(said)), Unavailable)
    assert str(spark_error(RuntimeError(said))) == "redis cannot be reached: refused"


def bench_options(bench):
    return {"url": bench.url, "namespace": bench.ns}
