"""The command ``rsmq-conformance``: what it prints, writes and returns."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rsmq_conformance import command, driver, report

ROOT = Path(__file__).parents[2]
REFERENCE = f"{shlex.quote(sys.executable)} -m rsmq_conformance.reference"
OURS = shlex.join([sys.executable, str(ROOT / "conformance/adapters/aiorsmq_ng_driver.py")])
#: A client that breaks one rule, as a program.
FORGETFUL = """
import sys
from rsmq_conformance.reference import Reference, serve
class Forgetful(Reference):
    name = "forgetful"
    def store(self, qname, id, score, body):
        self.redis.call("ZADD", self.zset(qname), score, id)
        self.redis.call("HSET", self.hash(qname), id, body)
serve(Forgetful)
"""


@pytest.fixture(autouse=True)
def drivers_find_the_kit(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "conformance/src"))


@pytest.fixture
def forgetful(tmp_path):
    program = tmp_path / "forgetful.py"
    program.write_text(FORGETFUL)
    return shlex.join([sys.executable, str(program)])


def run(*words: object) -> int:
    return command.main([str(word) for word in words])


def test_client_that_keeps_the_rules_passes_with_a_report_and_a_badge(tmp_path, kit_url, capsys):
    status = run("--driver", REFERENCE, "--redis-url", kit_url, "--level", "L1", "--out", tmp_path)

    assert status == 0
    assert "reference  20/20" in capsys.readouterr().out
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["clients"][0]["levels"]["L1"] == "20/20"
    assert "| reference | 20/20 |" in (tmp_path / "report.md").read_text()
    badge = ElementTree.parse(tmp_path / "badge-reference.svg").getroot()
    assert badge.attrib["aria-label"] == "RSMQ: 20/20"


def test_client_that_breaks_a_rule_fails_and_its_reproducer_shows_why(
    tmp_path, kit_url, capsys, forgetful
):
    words = ("--redis-url", kit_url, "--scenario", "send-keys", "--scenario", "fifo")

    assert run("--driver", forgetful, *words, "--out", tmp_path) == 1
    assert 'q:Q.totalsent: expected "1", got null' in capsys.readouterr().out
    (file,) = (tmp_path / "failures").iterdir()
    assert file.name == "forgetful--send-keys.jsonl"
    assert run("replay", file, "--redis-url", kit_url) == 1
    said = capsys.readouterr().out
    assert '"verb": "sendMessage"' in said
    assert said.rstrip().endswith('q:Q.totalsent: expected "1", got null')
    assert run("replay", file, "--redis-url", kit_url, "--driver", REFERENCE) == 0


def test_reproducer_has_the_lines_that_the_driver_was_sent(tmp_path, kit_url, forgetful):
    only = ("--scenario", "send-keys", "--redis-url", kit_url, "--out", tmp_path, "--quiet")
    run("--driver", forgetful, *only)
    lines = (tmp_path / "failures/forgetful--send-keys.jsonl").read_text().splitlines()
    requests = [json.loads(line)["request"] for line in lines if '"request"' in line]
    replayed = subprocess.run(
        shlex.split(forgetful),
        input="".join(json.dumps(request) + "\n" for request in requests),
        env={**__import__("os").environ, driver.URL_VARIABLE: kit_url},
        capture_output=True,
        text=True,
        check=True,
    )

    assert [json.loads(line)["id"] for line in replayed.stdout.splitlines()] == [
        request["id"] for request in requests
    ]


def test_two_clients_are_played_in_pairs_both_ways(tmp_path, kit_url, capsys):
    words = ("--scenario", "handover", "--scenario", "race-create", "--redis-url", kit_url)

    assert run("--driver", OURS, "--driver", REFERENCE, *words, "--out", tmp_path) == 0
    assert "sends \\ receives" in capsys.readouterr().out
    (pair,) = json.loads((tmp_path / "report.json").read_text())["pairs"]
    handovers = [r["cast"] for r in pair["results"] if r["scenario"] == "handover"]
    assert len({tuple(cast.values()) for cast in handovers}) == 6
    assert ElementTree.parse(tmp_path / "matrix.svg").getroot().tag.endswith("svg")


def test_our_client_keeps_every_rule_and_every_advice(tmp_path, capsys):
    assert run("--driver", OURS, "--strict", "--out", tmp_path) == 0, capsys.readouterr().out


def test_advice_counts_only_if_asked_for(tmp_path, kit_url):
    program = tmp_path / "forgetful.py"
    program.write_text(
        "from rsmq_conformance.reference import Reference, serve\n"
        "class Plain(Reference):\n"
        "    name = 'plain'\n"
        "    def fields(self, id):\n"
        "        return (id, f'{id}:rc', f'{id}:fr')\n"
        "serve(Plain)\n"
    )
    plain = shlex.join([sys.executable, str(program)])
    words = ("--driver", plain, "--redis-url", kit_url, "--scenario", "leftovers-meta")

    assert run(*words, "--out", tmp_path) == 0
    assert run(*words, "--out", tmp_path, "--strict") == 1


def test_scenario_that_disturbs_a_server_is_not_played_on_that_of_the_user(tmp_path, kit_url):
    words = ("--driver", REFERENCE, "--redis-url", kit_url, "--scenario", "script-flush")

    assert run(*words, "--out", tmp_path) == 0
    (result,) = json.loads((tmp_path / "report.json").read_text())["clients"][0]["results"]
    assert result["state"] == "lacking"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("/no/such/program", "cannot start"),
        (f"{sys.executable} -c 'raise SystemExit(7)'", "ended with 7"),
        (f"{sys.executable} -c 'import os; os.close(0); raise KeyError(5)'", "KeyError: 5"),
        (f"{sys.executable} -c 'print(1); input()'", "not an answer to call 1"),
        (f"{sys.executable} -c 'print(chr(123)); input()'", "not a line of JSON"),
    ],
)
def test_driver_that_cannot_be_talked_to_ends_the_run_with_status_3(
    tmp_path, kit_url, capsys, program, said
):
    assert run("--driver", program, "--redis-url", kit_url, "--out", tmp_path) == 3
    assert said in capsys.readouterr().err


def test_driver_that_ends_during_a_scenario_is_started_again_for_the_next(tmp_path, kit_url):
    program = tmp_path / "fragile.py"
    program.write_text(
        "import os\n"
        "from rsmq_conformance.reference import Reference, serve\n"
        "class Fragile(Reference):\n"
        "    name = 'fragile'\n"
        "    def popMessage(self, qname):\n"
        "        os._exit(9)\n"
        "serve(Fragile)\n"
    )
    names = ("--scenario", "pop-keys", "--scenario", "receive-keys", "--scenario", "receive-vt")
    words = ("--driver", shlex.join([sys.executable, str(program)]), "--redis-url", kit_url)

    assert run(*words, *names, "--out", tmp_path) == 1
    results = json.loads((tmp_path / "report.json").read_text())["clients"][0]["results"]
    states = {result["scenario"]: result["state"] for result in results}
    assert states == {"pop-keys": "failed", "receive-keys": "passed", "receive-vt": "passed"}
    assert "ended with 9" in results[[*states].index("pop-keys")]["detail"]


def test_driver_that_does_not_answer_is_given_up(tmp_path, kit_url, capsys, monkeypatch):
    monkeypatch.setattr(driver, "ANSWER_LIMIT_S", 0.2)
    mute = f"{sys.executable} -c 'import sys; sys.stdin.read()'"

    assert run("--driver", mute, "--redis-url", kit_url, "--out", tmp_path) == 3
    assert "no answer within 0.2 s" in capsys.readouterr().err


def test_verb_that_a_client_does_not_have_is_no_failure_and_is_reported(tmp_path, kit_url, capsys):
    program = tmp_path / "small.py"
    program.write_text(
        "import json, sys\n"
        "for line in sys.stdin:\n"
        "    id = json.loads(line)['id']\n"
        "    hello = {'name': 'small', 'verbs': ['listQueues']}\n"
        "    print(json.dumps({'id': id, 'ok': hello}), flush=True)\n"
    )
    words = ("--driver", shlex.join([sys.executable, str(program)]), "--redis-url", kit_url)

    assert run(*words, "--scenario", "fifo", "--out", tmp_path) == 0
    (result,) = json.loads((tmp_path / "report.json").read_text())["clients"][0]["results"]
    assert result["state"] == "lacking"
    assert result["detail"] == "small has no popMessage, receiveMessage, sendMessage"
    line = f"small: 1 of 1 scenarios not played ({result['detail']}): fifo"
    assert line in capsys.readouterr().out.splitlines()
    assert f"## Not played\n\n- {line}\n" in (tmp_path / "report.md").read_text()


def test_server_that_is_not_there_ends_the_run_with_status_4(tmp_path, capsys):
    words = ("--driver", REFERENCE, "--redis-url", "redis://127.0.0.1:1/0", "--out", tmp_path)

    assert run(*words) == 4
    assert "no server at 127.0.0.1:1" in capsys.readouterr().err


def test_unknown_scenario_and_a_file_that_is_no_reproducer_are_wrong_usage(tmp_path, capsys):
    assert run("--driver", REFERENCE, "--scenario", "nonsense") == 2
    assert "no scenario nonsense" in capsys.readouterr().err
    (tmp_path / "x.jsonl").write_text("no json\n")
    assert run("replay", tmp_path / "x.jsonl") == 2
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 2


def test_list_names_every_scenario(capsys):
    assert run("--list") == 0
    listed = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    assert len(listed) == len(set(listed)) > 60


def test_nothing_is_left_on_the_server(tmp_path, kit_url):
    from rsmq_conformance.redis import Redis

    assert run("--driver", REFERENCE, "--redis-url", kit_url, "--out", tmp_path, "--quiet") == 0
    with Redis(kit_url) as redis:
        assert redis.keys("") == []


def test_file_names_of_reproducers_are_plain():
    assert report.slug("Node RSMQ (2) 0.12.4") == "node-rsmq-2-0.12.4"
