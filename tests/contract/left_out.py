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
    "A receipt is the broker's, and is only known to the client that received the message.": (
        "test_a_delivery_is_settled_by_its_receipt_alone",
    ),
    "The broker is the last holder that the server knows.": ("test_reason_names_the_last_holder",),
    "Receives that share a call are one Receive.": (
        "test_callers_that_share_a_call_get_one_suspect_each",
    ),
    "One reply has a limited size.": (
        "test_recover_of_thousands_returns_each_once",
        "test_recover_that_is_cancelled_between_pages_makes_all_visible",
        "test_scan_of_large_bodies_reads_them_in_bounded_pages",
        "test_two_clients_share_a_queue_without_overlap",
    ),
    "Sends with dedup keys are calls of their own; which of two is first is open.": (
        "test_dedup_key_holds_among_sends_that_share_a_call",
    ),
    "Damage is looked for at the server.": ("test_queue_with_dedup_keys_is_healthy",),
    "So are receives with different leases.": ("test_waiters_with_wishes_of_their_own_get_them",),
    "The broker walks over the whole queue by itself, in one call of the client.": (
        "test_purge_tells_its_progress_also_of_the_page_that_a_cancellation_meets",
    ),
    "The broker looks after siblings, and moves what they left step by step.": (
        "test_long_queue_of_a_keeper_passes_on_in_steps",
        "test_peer_that_speaks_up_just_before_it_is_taken_off_stays",
        "test_siblings_look_for_silent_ones_in_turn",
        "test_subscriber_that_dies_while_a_long_backlog_is_moved_loses_nothing",
        "test_first_subscriber_gets_all_that_waited_though_another_comes_meanwhile",
        "test_second_subscriber_gets_the_rest_if_the_first_does_not_go_on",
    ),
    "Subscriptions are asked of the broker, which looks at every queue: seconds.": (
        "test_consumer_may_have_thousands_of_peers",
    ),
    "What looks may overtake what was cancelled; broker_client/test_faults.py waits.": (
        "test_blocked_pops_cancelled_while_messages_come_lose_nothing",
        "test_iteration_cancelled_twice_gives_back_what_was_prefetched",
        "test_iteration_that_is_cancelled_leaves_nothing_leased",
        "test_pop_that_is_cancelled_leaves_nothing_delivered",
        "test_recover_that_is_cancelled_makes_what_it_took_visible",
        "test_redrive_interrupted_leaves_every_message_in_one_queue",
    ),
    "Leases of a third of a second, renewed in time, and the like: on a busy machine luck.": (
        "test_recover_has_the_three_effects_of_redismq",
        "test_block_longer_than_its_lease_keeps_the_message",
        "test_handler_much_longer_than_its_lease_is_not_delivered_twice",
        "test_iteration_keeps_the_leases_of_prefetched_messages",
        "test_prefetched_messages_are_out_of_reach_for_others_beyond_their_lease",
    ),
}

#: Seconds each, and about nothing that a cluster or a broker changes: there with ``--long`` only.
LONG = {
    "test_pending_pages_through_long_queues_both_ways",
    "test_recover_without_a_server",
    "test_release_is_never_overtaken_by_a_renewal",
    "test_renewals_of_many_messages_share_calls",
    "test_scan_by_any_page_shows_each_once",
    "test_sends_one_after_the_other_are_received_in_order",
    "test_stats_tell_of_dead_letters_and_living_consumers",
    "test_weighted_order_prefers_and_never_starves",
}


def backends_of(name: str, *, long: bool) -> set[str]:
    """Return the backends that a test does not run on."""
    lists = {"cluster": CLUSTER, "broker": BROKER}
    found = {b for b, reasons in lists.items() if any(name in n for n in reasons.values())}
    return found if long or name not in LONG else {"cluster", "broker"}
