"""What URLs mean, and which are refused before anything is connected."""

import ssl

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, Options, Unavailable
from aiorsmq_ng._runtime.sync_client import SyncClient
from aiorsmq_ng._transport import security_overrides
from aiorsmq_ng._transport.connect import _guard
from aiorsmq_ng._transport.urls import is_loopback, read

SECRET = "hunter2"


def address(url, **options):
    return read(url, Options(**options))


def test_hosts_login_service_and_database_are_read():
    found = address("redis+sentinel://me:p%40ss@a:1,b,[::1]:3/mymaster/4", plain_password=True)

    assert found.hosts == (("a", 1), ("b", 26379), ("::1", 3))
    assert found.login == {"username": "me", "password": "p@ss"}
    assert (found.service, found.db, found.tls) == ("mymaster", 4, None)


@pytest.mark.parametrize(
    ("url", "hosts", "db"),
    [
        ("redis://localhost", (("localhost", 6379),), 0),
        ("redis://", (("localhost", 6379),), 0),
        ("redis://h:7/2", (("h", 7),), 2),
        ("redis://h:/2?db=3", (("h", 6379),), 3),
        ("redis://[::1]:7", (("::1", 7),), 0),
        ("redis+cluster://a,b:1,::1", (("a", 6379), ("b", 1), ("::1", 6379)), 0),
        ("rediss+sentinel://a/s?db=5", (("a", 26379),), 5),
    ],
)
def test_hosts_and_database_by_form(url, hosts, db):
    found = address(url)

    assert (found.hosts, found.db) == (hosts, db)


def test_options_that_are_fixed_are_left_out():
    assert address("redis://h?socket_timeout=1&protocol=3&max_connections=1") == address(
        "redis://h"
    )


@pytest.mark.parametrize(
    "option",
    [
        "ssl_cert_reqs=none",
        "ssl_cert_reqs=optional",
        "ssl_check_hostname=false",
        "ssl_check_hostname=0",
        "ssl_check_hostname=NO",
        "ssl_check_hostname=f",
        "ssl_ciphers=aNULL",
        "ssl_exclude_verify_flags=VERIFY_X509_STRICT",
        "ssl_min_version=769",
        "ssl_cert_reqs=required&ssl_cert_reqs=none",
    ],
)
@pytest.mark.parametrize("form", ["rediss://h", "rediss+sentinel://h/s", "rediss+cluster://h"])
def test_option_that_weakens_tls_is_refused_at_once_unless_allowed(form, option):
    with pytest.raises(InvalidValue, match="weakens the check"):
        RSMQ(f"{form}?{option}")

    name = option.split("=", 1)[0]
    assert name in address(f"{form}?{option}", insecure_tls=True).tls


def test_option_that_weakens_tls_for_the_sentinels_only_is_refused_too():
    with pytest.raises(InvalidValue, match="weakens the check"):
        RSMQ("rediss+sentinel://h/s?sentinel_ssl_cert_reqs=none")


@pytest.mark.parametrize(
    "option",
    ["ssl_cert_reqs=NONE", "ssl_cert_reqs=0", "ssl_check_hostname=off", "ssl_min_version=x"],
)
def test_tls_option_with_an_unknown_value_is_refused(option):
    with pytest.raises(InvalidValue, match=r"the option ssl_\w+ of the url"):
        RSMQ(f"rediss://h?{option}", options=Options(insecure_tls=True))


def test_tls_options_reach_the_driver_and_the_sentinels():
    found = address(
        "rediss+sentinel://h/s?ssl_ca_certs=a.pem&ssl_certfile=c&ssl_keyfile=k"
        "&sentinel_ssl_ca_certs=b.pem&sentinel_password=p&ssl_min_version=772"
    )

    assert found.tls["ssl_ca_certs"] == "a.pem"
    assert found.tls["ssl_min_version"] == ssl.TLSVersion.TLSv1_3
    assert found.sentinel_tls == found.tls | {"ssl_ca_certs": "b.pem"}
    assert found.sentinel_login == {"password": "p"}


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@db.example",
        f"redis://me:{SECRET}@10.0.0.1:6380/1",
        f"redis://db.example?password={SECRET}",
        f"redis+sentinel://:{SECRET}@localhost,db.example/s",
        f"redis+sentinel://db.example/s?sentinel_password={SECRET}",
        f"redis+cluster://:{SECRET}@127.0.0.1,db.example",
    ],
)
def test_password_for_another_machine_needs_tls_or_a_word(url):
    with pytest.raises(InvalidValue, match="clear text; use rediss") as caught:
        RSMQ(url)
    assert SECRET not in str(caught.value)

    RSMQ(url, options=Options(plain_password=True))
    RSMQ(url.replace("redis", "rediss", 1))


@pytest.mark.parametrize(
    "url",
    [
        f"redis://:{SECRET}@localhost",
        f"redis://:{SECRET}@127.9.9.9",
        f"redis://:{SECRET}@[::1]",
        f"unix://:{SECRET}@/run/redis.sock",
        f"redis+cluster://:{SECRET}@localhost:1,127.0.0.1:2",
        "redis://me@db.example",
        "redis://db.example",
    ],
)
def test_password_that_stays_on_this_machine_is_fine(url):
    assert SECRET not in repr(RSMQ(url))
    assert SECRET not in repr(address(url))


def test_loopback_is_known_by_name_and_number():
    for host in ("localhost", "LOCALHOST", "127.0.0.1", "::1", "::ffff:127.0.0.1"):
        assert is_loopback(host)
    for host in (
        "localhost.",
        "a.localhost",
        "127.0.0.1.",
        "localhost.example",
        "127.1",
        "10.0.0.1",
        "::2",
        "0.0.0.0",
        "127.0.0.1.evil",
    ):
        assert not is_loopback(host)


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("redis://h?ssl_ca_certs=x", "has no TLS"),
        ("redis+cluster://h?ssl_ca_certs=x", "has no TLS"),
        ("redis+cluster://h?db=1", "does not take; it takes: none"),
        ("rediss+cluster://h?ssl_ca_path=x", "does not take"),
        ("redis+sentinel://h/s?stream=1", "it takes: db, sentinel_password, sentinel_username"),
        ("redis://h?sentinel_password=1", "does not take"),
        ("redis://h?hunter2=1", "does not take"),
        ("redis://a,b", "has one host"),
        ("redis://h?db=x", "is a number"),
        ("redis://h/jobs", "is a number"),
        ("redis://h/1/2", "is a number"),
        ("redis+sentinel://h/s/one", "is a number"),
        ("rediss+sentinel://h", "names the service"),
        ("redis://:hunter2#x@h", "cannot be read"),
        ("redis://:hunter2/x@h", "cannot be read"),
        ("redis://h:0", "cannot be read"),
        ("redis://h:65536", "cannot be read"),
        ("redis://[::1", "cannot be read"),
        ("redis://a:b:c", "cannot be read"),
        ("embedded:///a%00b", "NUL"),
        ("hunter2://h", "is not known"),
    ],
)
def test_url_that_cannot_be_meant_is_refused_by_the_constructor(url, sentence):
    with pytest.raises(InvalidValue, match=sentence) as caught:
        RSMQ(url)

    assert "hunter2" not in str(caught.value).replace("scheme 'hunter2'", "")
    assert caught.value.__cause__ is None


@pytest.fixture
def unwarned(monkeypatch):
    """A process that has not warned yet, and whose environment allows nothing."""
    monkeypatch.setattr(security_overrides, "_warned", set())
    for variable in (security_overrides.PLAIN_PASSWORD, security_overrides.INSECURE_TLS):
        monkeypatch.delenv(variable, raising=False)
    return monkeypatch


PLAIN, WEAK = f"redis://:{SECRET}@db.example", "rediss://db.example?ssl_cert_reqs=none"


@pytest.mark.parametrize(
    ("url", "variable", "option"),
    [
        (PLAIN, "RSMQ_PLAIN_PASSWORD", "Options(plain_password=True)"),
        (WEAK, "RSMQ_INSECURE_TLS", "Options(insecure_tls=True)"),
    ],
)
def test_environment_allows_what_is_refused_with_one_warning(
    unwarned, caplog, url, variable, option
):
    for value in (None, "", "0", "no", "true"):
        if value is not None:
            unwarned.setenv(variable, value)
        with pytest.raises(InvalidValue) as refused:
            RSMQ(url)
        assert str(refused.value).endswith(f"by {variable}=1 in the environment or {option}")
    assert caplog.records == []

    unwarned.setenv(variable, "1")
    for _ in range(3):
        RSMQ(url)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("aiorsmq_ng.transport", "WARNING")
    assert record.message.startswith(f"{variable}=1: ")
    assert SECRET not in record.message


@pytest.mark.parametrize(
    "url", ["redis://db.example", f"redis://:{SECRET}@localhost", f"rediss://:{SECRET}@db.example"]
)
def test_environment_that_allows_what_is_not_used_is_not_warned_about(unwarned, caplog, url):
    for variable in (security_overrides.PLAIN_PASSWORD, security_overrides.INSECURE_TLS):
        unwarned.setenv(variable, "1")
    RSMQ(url)

    assert caplog.records == []


def test_one_word_of_the_environment_does_not_allow_the_other(unwarned):
    unwarned.setenv(security_overrides.INSECURE_TLS, "1")
    with pytest.raises(InvalidValue, match="clear text"):
        RSMQ(PLAIN)
    unwarned.delenv(security_overrides.INSECURE_TLS)
    unwarned.setenv(security_overrides.PLAIN_PASSWORD, "1")
    with pytest.raises(InvalidValue, match="weakens the check"):
        RSMQ(WEAK)


def test_environment_counts_for_brokers_found_servers_and_sync_clients(unwarned):
    def everywhere():
        yield lambda: RSMQ("grpc://broker.example", token=SECRET)
        found = read(f"redis+cluster://:{SECRET}@localhost", Options())
        yield lambda: _guard(found, Options(), ("db.example", 1))
        yield lambda: SyncClient(PLAIN, Options())

    for attempt in everywhere():
        with pytest.raises((InvalidValue, Unavailable), match="RSMQ_PLAIN_PASSWORD=1"):
            attempt()
    unwarned.setenv(security_overrides.PLAIN_PASSWORD, "1")
    for attempt in everywhere():
        attempt()
