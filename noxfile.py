"""Checks that a change must pass: ``nox`` runs them on this interpreter."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import nox

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "types", "tests", "browser", "spark"]
nox.options.default_venv_backend = "venv"
nox.options.download_python = "never"
nox.options.reuse_existing_virtualenvs = True

#: What Spark needs.
JAVA = 17
#: Browsers that Playwright can drive.
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
GROUPS = nox.project.dependency_groups
PROJECT = nox.project.load_toml("pyproject.toml")
# Long forms of the tests; about two hours.
NIGHT = {
    "RSMQ_MODEL_EXAMPLES": "5000",
    "RSMQ_FUZZ_EXAMPLES": "20000",
    "RSMQ_TEST_SEEDS": "20000",
}


def _java() -> int:
    """Return the version of Java that Spark would start; 0 if there is none."""
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if program is None:
        return 0
    asked = [program, "-version"]
    shown = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603
    found = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(found[1]) if found else 0


@nox.session
def lint(session: nox.Session) -> None:
    """Style, imports, formatting; and the generated modules are those of the protos."""
    session.install(*GROUPS(PROJECT, "lint", "protos"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", "aiorsmq_ng/rpc/generate.py", "--check")


@nox.session
def protos(session: nox.Session) -> None:
    """Generate the modules of the protos, with the oldest tools that are supported."""
    session.install(*GROUPS(PROJECT, "protos"))
    session.run("python", "aiorsmq_ng/rpc/generate.py")


@nox.session
def docs(session: nox.Session) -> None:
    """Write the generated pages: rsmqctl, scripts, index of decisions."""
    session.install("-e", ".[all]", "pytest")
    for script in sorted(Path("tools/docs").glob("make_*.py")):
        session.run("python", str(script))


@nox.session
def types(session: nox.Session) -> None:
    """Mypy strict and pyright, on the package and on its public surface."""
    session.install("-e", ".[all]", "nox", *GROUPS(PROJECT, "typing", "test"))
    session.run("mypy")
    session.run("pyright")


@nox.session
def tests(session: nox.Session) -> None:
    """All tests, on real servers, in four processes; arguments go to pytest.

    The tests wait for half of their time, so more processes than processors are faster.
    """
    session.install("-e", ".[all]", *GROUPS(PROJECT, "test"))
    session.run("pytest", "-n", "4", *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Test the dashboard in a real browser: Chromium of the system, driven by Playwright.

    On Debian as root, a Chromium that is missing is installed; elsewhere the session is skipped.
    """
    if not (os.environ.get("RSMQ_CHROMIUM") or any(map(shutil.which, CHROMIUM))):
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            session.skip("needs Chromium, on the path or by RSMQ_CHROMIUM")
        session.run("apt-get", "update", "-qq", external=True, silent=True)
        session.run(
            "apt-get", "install", "-y", "--no-install-recommends", "chromium",
            external=True, silent=True, env={"DEBIAN_FRONTEND": "noninteractive"},
        )  # fmt: skip
    session.install("-e", ".[all]", *GROUPS(PROJECT, "test", "browser"))
    session.run("pytest", "-n", "2", "tests/dashboard/test_browser.py", *session.posargs)


@nox.session
def spark(session: nox.Session) -> None:
    """Test the Spark front on a real Spark, if there is Java; ``-- --long`` kills drivers too."""
    if _java() < JAVA:
        session.skip(f"Spark needs Java {JAVA} or later, on the path or by JAVA_HOME")
    session.install("-e", ".[all,spark]", *GROUPS(PROJECT, "test", "spark"))
    chosen = any(argument.startswith("tests") for argument in session.posargs)
    where = [] if chosen else ["tests/spark"]
    session.run("pytest", "-n", "2", *where, *session.posargs)


@nox.session
@nox.parametrize("pyspark", ["4.3.0", "4.2.1", "4.2.0", "4.1.4", "4.0.1"])
def spark_versions(session: nox.Session, pyspark: str) -> None:
    """Play every use of the Spark front once on each supported PySpark; 500 MB for each of them.

    ``-- --long`` also runs the example for Delta Lake, on 4.2, whose jars come from Maven Central.
    """
    if _java() < JAVA:
        session.skip(f"Spark needs Java {JAVA} or later, on the path or by JAVA_HOME")
    session.install("-e", ".[embedded,spark]", f"pyspark=={pyspark}")
    session.run("python", "tests/spark/smoke.py")
    if "--long" in session.posargs and pyspark.startswith("4.2."):
        groups = GROUPS(PROJECT, "test", "spark")
        session.install("-e", ".[all,spark]", *groups, f"pyspark=={pyspark}")
        session.run("pytest", "--long", "tests/spark/test_examples.py", "-k", "delta")


@nox.session
def lowest(session: nox.Session) -> None:
    """All tests with the oldest versions that pyproject.toml allows of what users install."""
    session.install("-e", ".[all]", *GROUPS(PROJECT, "test"))
    # Over what the tests' own tools ask for; import-linter is the one that does not start then.
    session.install("--no-deps", *_lowest("cli", "dashboard", "grpc"))
    session.run(
        "pytest", "-n", "3",
        "--ignore=tests/test_architecture.py", *session.posargs,
    )  # fmt: skip


def _lowest(*extras: str) -> list[str]:
    """Return the lower bounds of the dependencies, and of *extras*, as exact versions."""
    project = PROJECT["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    # A dependency of redis[hiredis]; pyproject.toml has no bound for it.
    wanted.append("hiredis>=3.0")
    return [re.sub(r"(\[.*\])?>=([^,]+).*", r"==\2", each) for each in wanted]


@nox.session(python=["3.11", "3.12", "3.13"])
def matrix(session: nox.Session) -> None:
    """All tests on every supported Python; fails if one is missing."""
    session.install("-e", ".[all]", *GROUPS(PROJECT, "test"))
    session.run("pytest", *session.posargs)


@nox.session
def seeds(session: nox.Session) -> None:
    """Simulate many worlds; the argument is their number, as in ``nox -s seeds -- 20000``."""
    session.install("-e", ".[all]", *GROUPS(PROJECT, "test"))
    count = session.posargs[0] if session.posargs else "2000"
    session.run(
        "pytest", "tests/lab/test_simulation.py", "-k", "every_world",
        env={"RSMQ_TEST_SEEDS": count},
    )  # fmt: skip


@nox.session
def faults(session: nox.Session) -> None:
    """Play the long storms and the soak (an hour and a half); write docs/reports/fault-report.md.

    Then, unless arguments chose something, the long forms of model, fuzz and simulation.
    """
    session.install("-e", ".[all]", *GROUPS(PROJECT, "test", "faults"))
    session.run("python", "-m", "tools.storms", *session.posargs)
    if not session.posargs:
        session.run(
            "pytest", "-n", "2", "--timeout", "0", "tests/property",
            "tests/lab/test_simulation.py", env=NIGHT,
        )  # fmt: skip


@nox.session
def conformance(session: nox.Session) -> None:
    """Play all known RSMQ clients, alone and in pairs; write docs/reports/conformance.md.

    Needs Node, Go and Rust, which install the clients; ``-- --page`` writes the page only.
    """
    session.install("-e", ".[all]", "-e", "conformance")
    session.run("python", "-m", "tools.conformance", *session.posargs)


@nox.session
def mutants(session: nox.Session) -> None:
    """Take out one mechanism at a time; the tests must go red for each."""
    session.install("-e", ".[all]", *GROUPS(PROJECT, "test"))
    session.run("python", "-m", "tools.mutants", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Ours, the peers and the limit, on a server of their own; ``-- --help`` names the options.

    ``-- --before REV --contenders ours before`` compares this checkout with a revision of it.
    """
    session.install("-e", ".[all]", "uvloop>=0.22", "matplotlib>=3.10,<4")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
def bench_topics(session: nox.Session) -> None:
    """Benchmark what a copy of a publication costs, beside sends to as many queues."""
    session.install("-e", ".[all]")
    session.run("python", "benchmarks/topics.py", *session.posargs)


@nox.session
def bench_transfer(session: nox.Session) -> None:
    """Benchmark export and import of a whole queue beside ``send_many``."""
    session.install("-e", ".[all]")
    session.run("python", "benchmarks/transfer.py", *session.posargs)


@nox.session
def bench_grpc(session: nox.Session) -> None:
    """Benchmark the broker beside Redis itself."""
    session.install("-e", ".[all]")
    session.run("python", "benchmarks/grpc_broker.py", *session.posargs)


@nox.session
def bench_spark(session: nox.Session) -> None:
    """Benchmark source and sink of Spark; ``-- --write`` writes tables of docs/reports/spark.md."""
    session.install("-e", ".[all,spark]")
    session.run("python", "-m", "benchmarks.spark", *session.posargs)
