"""What is built is what is needed."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        check=True,
        capture_output=True,
        text=True,
    )
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        yield archive


def test_wheel_holds_every_script_and_the_typing_marker(wheel):
    names = set(wheel.namelist())
    scripts = {str(path.relative_to(ROOT)) for path in (ROOT / "aiorsmq_ng").rglob("*.lua")}

    assert len(scripts) > 10
    assert scripts <= names
    assert {"aiorsmq_ng/py.typed", "aiorsmq_ng/rpc/v1.proto"} <= names


def test_wheel_holds_the_package_and_what_spark_looks_for_only(wheel):
    top = {name.split("/")[0] for name in wheel.namelist()}

    assert {t for t in top if not t.endswith(".dist-info")} == {"aiorsmq_ng", "pyspark_rsmq.py"}


def test_wheel_holds_what_tests_of_users_need_and_not_our_laboratory(wheel):
    shipped = {name for name in wheel.namelist() if name.startswith("aiorsmq_ng/testing/")}

    assert {name.rpartition("/")[2] for name in shipped} == {
        *("__init__.py", "clients.py", "clock.py", "intercepts.py", "loops.py", "plugin.py"),
        *("proxy.py", "resp.py", "servers.py"),
    }


def test_core_depends_on_little(wheel):
    (metadata,) = [n for n in wheel.namelist() if n.endswith("METADATA")]
    lines = wheel.read(metadata).decode().splitlines()
    required = [x for x in lines if x.startswith("Requires-Dist") and "extra ==" not in x]

    assert sorted(r.split()[1].split("[")[0].split("<")[0].split(">")[0] for r in required) == [
        "anyio",
        "msgspec",
        "redis",
    ]
    assert "License-Expression: MIT" in lines


def test_no_file_records_where_packages_were_downloaded_from():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()

    assert not [f for f in tracked if f.endswith((".lock", "lock.json", "lock.yaml"))]


def test_page_of_the_package_index_has_full_addresses_only(wheel):
    (metadata,) = [n for n in wheel.namelist() if n.endswith("METADATA")]
    text = wheel.read(metadata).decode()
    links = re.findall(r"\]\(([^)]+)\)", text)

    assert len(links) > 20
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    named = re.findall(r"^Project-URL: (\w+)", text, re.MULTILINE)
    assert {"Homepage", "Changelog", "Issues"} <= set(named)
