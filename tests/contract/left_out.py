"""Tests of the contract that do not run on every backend, each with its reason."""

from __future__ import annotations

#: Tests that do not run on a cluster, by reason.
CLUSTER: dict[str, tuple[str, ...]] = {
    "A client of the caller's own is a client of one server.": (
        "test_callers_client_works_whatever_its_settings",
    ),
    "The namespace is in braces already.": ("test_namespace_in_braces_keeps_all_keys_in_one_slot",),
    "A worker that is given a URL uses the namespace rsmq, which is not in braces.": (
        "test_stop_hook_that_raises_keeps_nothing_open",
    ),
    "The test makes its users on one server.": (
        "test_user_who_may_not_scan_gets_the_rest",
        "test_rights_that_the_page_lists_are_enough",
    ),
}

#: Tests that do not run through a broker, by reason.
BROKER: dict[str, tuple[str, ...]] = {
    "The server knows the broker as the holder of what its clients have received.": (
        "test_reason_names_the_last_holder",
    ),
    "A broker has no call for it.": (
        "test_find_shows_a_message_of_each_state_and_changes_nothing",
        "test_find_of_a_message_that_is_gone_is_none",
        "test_find_in_a_missing_queue_says_so",
    ),
}

#: Seconds each, and about nothing that a cluster or a broker changes: there with ``--long`` only.
LONG = {
    "test_recover_of_thousands_returns_each_once",
    "test_renewals_of_many_messages_share_calls",
    "test_stats_tell_of_dead_letters_and_living_consumers",
}


def backends_of(name: str, *, long: bool) -> set[str]:
    """Return the backends that a test does not run on."""
    lists = {"cluster": CLUSTER, "broker": BROKER}
    found = {b for b, reasons in lists.items() if any(name in n for n in reasons.values())}
    return found if long or name not in LONG else {"cluster", "broker"}
