"""Global options, which every command takes: the server, its credentials, the output."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

import click

import aiorsmq_ng

R = TypeVar("R")
Callback = TypeVar("Callback", bound=Callable[..., Any])

#: The library's default URL.
DEFAULT_URL, DEFAULT_NAMESPACE = "redis://localhost:6379", "rsmq"
FORMATS = ("json", "ndjson", "table", "csv")
#: Retry time of interactive commands: short, because the user waits for the answer.
_DEADLINE_S, _CONNECT_S = 5.0, 2.0
#: Retry time of long transfers, enough for a failover: resuming them by hand is expensive.
PATIENT_S = 60.0


@dataclass(slots=True)
class Settings:
    """The values of the global options."""

    redis_url: str | None = None
    namespace: str | None = None
    verbose: bool = False
    #: One of ``FORMATS``; None: the default of the command.
    output: str | None = None
    password_file: str | None = field(default=None, repr=False)
    password_prompt: bool = False
    insecure_tls: bool = False
    plain_password: bool = False
    token_file: str | None = field(default=None, repr=False)
    #: The password typed at the prompt; kept because a command may open a client twice.
    prompted: str | None = field(default=None, repr=False)

    def client(
        self,
        *,
        url: str = DEFAULT_URL,
        namespace: str = DEFAULT_NAMESPACE,
        patient: bool = False,
    ) -> aiorsmq_ng.RSMQ:
        """Return a client that is not open yet; *url* and *namespace* are defaults."""
        namespaces = (namespace if self.namespace is None else self.namespace).split(",")
        return aiorsmq_ng.RSMQ(
            self.full_url(url),
            ns=namespaces,
            token=self.token(),
            options=self.options(patient=patient),
        )

    def options(self, *, patient: bool = False) -> aiorsmq_ng.Options:
        """Return the settings of a client; *patient* is for long work."""
        return aiorsmq_ng.Options(
            deadline=PATIENT_S if patient else _DEADLINE_S,
            connect_timeout=_CONNECT_S,
            # An operator must be able to inspect a badly configured server; doctor reports it.
            allow_eviction=True,
            insecure_tls=self.insecure_tls,
            plain_password=self.plain_password,
        )

    def token(self) -> str | None:
        """Return the broker token from the file; without one the library reads RSMQ_TOKEN."""
        return None if self.token_file is None else _first_line("token", self.token_file)

    @property
    def has_address(self) -> bool:
        """True if a URL or a password was given, by an option or by the environment."""
        password = self.password_prompt or self.password_file is not None
        return bool(self.redis_url is not None or password or os.environ.get("RSMQ_PASSWORD"))

    def full_url(self, default: str = DEFAULT_URL) -> str:
        """Return the URL with its password from a file, the prompt or the environment."""
        url = _checked(default if self.redis_url is None else self.redis_url)
        if url.startswith("grpc") and not self.verbose:
            # The C library of gRPC would log errors that are reported here already.
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        if self.password_prompt:
            if not sys.stdin.isatty():
                raise click.UsageError("--password-prompt needs a terminal to ask on")
            if self.prompted is None:
                self.prompted = str(click.prompt("Password", hide_input=True, err=True))
            return with_password(url, self.prompted)
        if self.password_file is not None:
            return with_password(url, _first_line("password", self.password_file))
        password = os.environ.get("RSMQ_PASSWORD")
        return with_password(url, password) if password and not _has_password(url) else url


def seconds(value: str | float) -> int | float:
    """Parse an option in seconds; whole numbers become ``int``, to be printed as such."""
    try:
        number = float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a number of seconds") from None
    # Larger floats stay floats: as int, all of their digits would be printed.
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value not in (None, False):
        setattr(current_settings(context), str(parameter.name), value)


def global_options(*, hidden: bool = True) -> Callable[[Callback], Callback]:
    """Accept the global options; hidden on commands, where the group's help shows them."""
    # Only the group reads the environment, so that it does not override an option of the group.
    envvar = None if hidden else ["RSMQ_URL", "REDIS_URL"]

    def decorate(function: Callback) -> Callback:
        common: dict[str, Any] = {"callback": _keep, "expose_value": False, "hidden": hidden}
        for option in (
            click.option("-v", "--verbose", is_flag=True, help=_VERBOSE_HELP, **common),
            click.option("-o", "--output", type=click.Choice(FORMATS), help=_OUTPUT_HELP, **common),
            click.option("--password-prompt", is_flag=True, help=_PROMPT_HELP, **common),
            click.option("--password-file", metavar="FILE", help=_FILE_HELP, **common),
            click.option("--token-file", metavar="FILE", help=_BROKER_HELP, **common),
            click.option("--insecure-tls", is_flag=True, help=_INSECURE_HELP, **common),
            click.option("--plain-password", is_flag=True, help=_PLAIN_HELP, **common),
            click.option("--ns", "namespace", metavar="NAME", help=_NAMESPACE_HELP, **common),
            click.option(
                "-r", "--redis-url", metavar="URL", envvar=envvar, help=_URL_HELP, **common
            ),
        ):
            function = option(function)
        return function

    return decorate


_URL_HELP = (
    "The server: redis://, unix://, redis+sentinel://, redis+cluster://, with TLS rediss://, "
    "rediss+sentinel://, rediss+cluster://, or "
    "embedded:// to start one; or a broker: grpc://, with TLS grpcs://. From RSMQ_URL, then "
    f"REDIS_URL; else {DEFAULT_URL}. "
    "Do not put passwords into it: other users can see command lines."
)
_FILE_HELP = (
    "Take the server's password from the first line of FILE. Without it, a URL that has none gets "
    "the one in RSMQ_PASSWORD."
)
_BROKER_HELP = "Take the token for a broker from the first line of FILE, not from RSMQ_TOKEN."
_PROMPT_HELP = "Ask for the server's password on the terminal."
_OUTPUT_HELP = (
    "How records are printed: json, ndjson (one object per line), table, or csv (text that a "
    "spreadsheet would take for a formula gets a ' in front).  [default: json]"
)
_NAMESPACE_HELP = (
    "The namespace: the prefix of all keys; several, separated by commas, are used as one.  "
    f"[default: {DEFAULT_NAMESPACE}]"
)
_INSECURE_HELP = (
    "Allow the URL to disable checks of the server's certificate, as RSMQ_INSECURE_TLS=1 does."
)
_PLAIN_HELP = (
    "Allow sending a password or token to another host without TLS, as RSMQ_PLAIN_PASSWORD=1 does."
)
_VERBOSE_HELP = "Print the log, and tracebacks of errors, on stderr."


def wait_for_server(function: Callback) -> Callback:
    """Add ``--wait-for-server``: how long a service waits at the start for its server."""
    return click.option(
        "--wait-for-server",
        type=click.FloatRange(min=0),
        metavar="SECONDS",
        help="How long to wait at the start for an unreachable server.  [default: no limit]",
    )(function)


def current_settings(context: click.Context | None = None) -> Settings:
    """Return the settings of the command that runs."""
    return (context or click.get_current_context()).ensure_object(Settings)


def examples(*lines: str) -> str:
    """Return an epilog of *lines* that click does not wrap."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)


def program(namespace: str | None) -> str:
    """Return the start of a command line for *namespace*, for users to copy."""
    if namespace in (None, DEFAULT_NAMESPACE):
        return "rsmqctl"
    return f"rsmqctl --ns {shlex.quote(str(namespace))}"


def with_password(url: str, password: str) -> str:
    """Return *url* with *password*, percent-encoded."""
    scheme, _, rest = url.partition("://")
    if scheme in ("embedded", "memory") or scheme.startswith("grpc"):
        return url
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    user, _, hosts = rest[:end].rpartition("@")
    return f"{scheme}://{user.partition(':')[0]}:{quote(password, safe='')}@{hosts}{rest[end:]}"


def _has_password(url: str) -> bool:
    authority = url.partition("://")[2].partition("/")[0]
    return ":" in authority.rpartition("@")[0]


def _first_line(what: str, file: str) -> str:
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise click.UsageError(f"{what} file {file!r} cannot be read: {reason}") from None
    if not lines or not lines[0]:
        raise click.UsageError(f"{what} file {file!r} has no {what} in its first line")
    return lines[0]


def _checked(url: str) -> str:
    """Refuse a URL whose password would be parsed as a port: the driver's error would show it."""
    if not url:
        raise aiorsmq_ng.InvalidValue("the url is empty; leave -r out for the default")
    try:
        urlsplit(url).port  # noqa: B018 - raises for an invalid port
    except ValueError:
        if "," not in url:  # the library parses a list of hosts
            raise aiorsmq_ng.InvalidValue(
                "host or port in the url is invalid; write '/', '#', '?' and '@' in a password "
                "as %2F, %23, %3F and %40"
            ) from None
    return url
