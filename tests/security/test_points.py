"""What is promised against attackers, point by point, and the tests that show it.

Each point is a sentence about the daemon, and has tests that fail when it is not true. They are
where the part they are about has its tests; those that need the whole daemon against somebody who
means harm are here. What is promised to clients that mean well is in the tables of `tests/api`.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

TOKENS = {
    "an unsigned token, or one with `alg: none`, is refused": [
        "auth/test_tokens.py::test_an_unsigned_token_is_refused",
        "auth/test_tokens.py::test_a_token_with_its_signature_left_out_is_refused",
        "security/test_tokens.py::test_no_forged_credential_opens_anything",
    ],
    "no other algorithm is taken (RS256 for HS256, HS512, …)": [
        "auth/test_tokens.py::test_any_header_but_ours_is_refused_though_well_signed",
        "auth/test_tokens.py::test_another_hash_is_refused_though_well_signed",
        "api/test_login.py::test_this_is_no_session_token",
    ],
    "`kid`, `jku`, `jwk` and `crit` are refused unread": [
        "auth/test_tokens.py::test_any_header_but_ours_is_refused_though_well_signed",
        "security/test_tokens.py::test_no_forged_credential_opens_anything",
    ],
    "wrong purpose, issuer, audience, times or password; claims left out or of another type": [
        "auth/test_tokens.py::test_every_claim_is_checked",
        "auth/test_tokens.py::test_every_claim_is_required",
        "api/test_login.py::test_this_is_no_session_token",
    ],
    "expired, and not yet valid": [
        "auth/test_tokens.py::test_a_token_is_good_to_the_end_of_its_lifetime",
        "auth/test_tokens.py::test_a_token_of_the_future_is_refused_but_for_a_clock_step",
        "api/test_login.py::test_a_session_ends_after_seven_days",
        "api/test_login.py::test_a_temporary_token_ends_after_five_minutes",
    ],
    "tampered, truncated, oversized": [
        "auth/test_tokens.py::test_a_tampered_token_is_refused",
        "auth/test_tokens.py::test_an_oversized_token_is_refused_undecoded",
        "auth/test_tokens.py::test_what_is_no_token_is_refused",
        "security/test_tokens.py::test_no_forged_credential_opens_anything",
    ],
    "a temporary token is no session, and a session is no temporary token": [
        "auth/test_login_with_second_factor.py::test_the_temporary_token_is_no_session",
        "auth/test_login_with_second_factor.py::test_a_session_is_no_temporary_token",
        "api/test_login.py::test_this_is_no_temporary_token",
        "security/test_tokens.py::test_this_is_no_session",
    ],
    "a session ends with the password, with the second factor's switch, and at the owner's word": [
        "api/test_sessions.py::test_a_new_password_ends_every_session",
        "api/test_second_factor.py::test_enable_ends_all_sessions_but_the_one_that_did_it",
        "api/test_sessions.py::test_the_operator_ends_every_session",
    ],
    "every operation of both APIs refuses every credential that is not for it": [
        "security/test_tokens.py::test_those_for_everybody_are_these",
        "security/test_tokens.py::test_no_forged_credential_opens_anything",
        "security/test_tokens.py::test_this_is_no_session",
        "security/test_tokens.py::test_this_is_no_token_of_the_crew",
        "security/test_tokens.py::test_the_sync_key_opens_the_cookie_s_operations_alone",
        "security/test_tokens.py::test_a_crew_s_other_addresses_ask_for_the_same",
    ],
    "a crew's user sees own executions alone; another crew's token opens nothing": [
        "api/crews/test_who_may_call.py::test_execution_of_another_owner_is_404_to_a_user",
        "api/crews/test_who_may_call.py::test_execution_of_another_crew_is_404",
        "crews/test_tokens.py::test_token_opens_no_other_crew",
    ],
    "a crew's token is compared in the same work, however wrong it is": [
        "crews/test_tokens.py::test_refusing_any_wrong_token_takes_the_same_steps",
        "api/crews/test_who_may_call.py::test_unknown_crew_looks_like_a_wrong_token",
    ],
    "a rotated crew token is wrong at once, and no rotation brings it back": [
        "api/crews/test_who_may_call.py::test_rotated_token_is_401_and_the_others_stay",
        "crews/test_tokens.py::test_rotated_token_is_never_valid_again",
    ],
}

GUESSING = {
    "passwords from one address: ten free, then a wait that doubles to a minute": [
        "api/test_too_many_tries.py::test_after_ten_failures_there_is_a_wait",
        "api/test_too_many_tries.py::test_the_wait_doubles_up_to_a_minute",
        "auth/test_login.py::test_guesses_side_by_side_do_not_pass_together",
        "auth/test_login.py::test_hanging_up_early_does_not_hide_a_failure",
    ],
    "from many addresses: no count is lost by being pushed out; an IPv6 /64 is one": [
        "auth/test_throttle.py::test_two_networks_cannot_push_each_other_out",
        "auth/test_throttle.py::test_a_newcomer_inherits_the_failures_that_gave_way",
        "api/test_too_many_tries.py::test_an_ipv6_network_is_one_address",
    ],
    "codes: few in all, whoever sends them; a temporary token dies of five": [
        "api/test_too_many_tries.py::test_wrong_codes_are_few_in_all",
        "api/test_too_many_tries.py::test_codes_of_a_session_are_tries_too",
        "api/test_login.py::test_a_temporary_token_dies_of_five_wrong_codes",
    ],
    "forged forwarding headers are no way around": [
        "api/test_too_many_tries.py::test_a_forged_address_is_no_way_around",
        "api/test_client_address.py::test_a_strangers_word_does_not_change_who_they_are",
    ],
    "the owner can still log in from a new address": [
        "api/test_too_many_tries.py::test_a_stranger_does_not_lock_the_owner_out",
        "auth/test_throttle.py::test_a_newcomers_first_try_is_free_however_bad_the_flood",
    ],
    "same status, body and time for every wrong password": [
        "api/test_wrong_guesses_look_alike.py"
        "::test_all_wrong_passwords_get_the_same_answer_in_the_same_time",
    ],
    "same status, body and time for wrong, used and stale codes": [
        "api/test_wrong_guesses_look_alike.py"
        "::test_all_wrong_codes_get_the_same_answer_in_the_same_time",
        "auth/test_login_with_second_factor.py::test_wrong_used_and_stale_codes_get_the_same_answer",
    ],
    "a code is good once, also after a restart and after the clock stepped back": [
        "api/test_second_factor.py::test_a_code_is_good_once",
        "api/test_second_factor.py::test_a_code_is_good_once_over_a_restart",
        "auth/test_totp.py::test_a_clock_that_jumped_and_came_back_neither_locks_out_nor_forgets",
        "auth/test_instances.py::test_a_code_sent_twice_at_the_same_moment_is_good_once",
    ],
    "a clock that was ahead for a day locks nobody out": [
        "api/test_second_factor.py::test_a_clock_that_was_ahead_locks_nobody_out",
        "auth/test_login_with_second_factor.py"
        "::test_a_clock_that_was_wrong_for_a_while_locks_nobody_out",
    ],
}

COOKIE = {
    "a cross-origin page reads and writes nothing, by simple requests and forms neither": [
        "security/test_cookie_endpoints.py::test_a_page_of_another_origin_reads_and_writes_nothing",
        "api/test_who_may_call.py::test_who_is_local",
        "api/test_requests.py::test_cors_is_for_the_extension_alone",
        "api/test_requests.py::test_another_content_type_is_400",
    ],
    "a name that leads here (DNS rebinding) reads and writes nothing": [
        "security/test_cookie_endpoints.py::test_a_name_that_leads_here_reads_and_writes_nothing",
        "api/test_client_address.py::test_a_name_that_may_be_a_strangers_is_not_local",
    ],
    "forged `X-Forwarded-For`, `Forwarded` and their like open nothing": [
        "security/test_cookie_endpoints.py::test_a_forged_forwarding_header_opens_nothing",
        "api/test_client_address.py::test_any_forwarding_header_of_a_stranger_makes_a_request_not_local",
        "api/test_client_address.py::test_headers_that_contradict_each_other_are_not_local",
    ],
    "an IPv4-mapped IPv6 address is the IPv4 address": [
        "security/test_cookie_endpoints.py::test_an_ipv4_client_of_an_ipv6_socket_is_no_other",
        "api/test_client_address.py::test_an_ipv4_address_in_ipv6_s_clothes_is_that_address",
        "http_server/test_guards.py::test_an_ipv4_client_of_an_ipv6_socket_has_its_own_address",
    ],
    "the sync key is compared whole, and opens nothing else": [
        "api/test_who_may_call.py::test_another_key_does_not",
        "security/test_tokens.py::test_the_sync_key_opens_the_cookie_s_operations_alone",
    ],
}

OUTBOUND = {
    "short links to private, loopback, link-local and metadata addresses, by any way of going on": [
        "security/test_outbound.py::test_a_short_link_leads_out_of_the_market_in_no_way",
        "security/test_outbound.py::test_no_link_makes_the_daemon_call_anybody",
        "marketplace/test_shortlinks.py::test_a_hop_that_is_not_the_markets_is_never_taken",
    ],
    "a redirect to what is no address is no error of ours": [
        "net/test_client.py::test_a_redirect_to_what_is_no_address_is_an_answer_like_any",
    ],
    "short links by rebinding: a name of the market's without its certificate is told nothing": [
        "security/test_outbound.py"
        "::test_a_name_of_the_market_that_leads_inside_tells_nothing_there",
    ],
    "webhooks to such addresses, literally": [
        "security/test_outbound.py::test_a_webhook_s_address_is_refused",
        "security/test_outbound.py::test_no_webhook_makes_the_daemon_call_its_own_machine",
        "net/test_egress_rules.py::test_all_others_need_to_be_named",
        "net/test_egress_rules.py::test_a_fault_names_the_field_and_not_the_address",
    ],
    "webhooks by name, by rebinding, by redirect, by a proxy of the environment": [
        "net/test_egress.py::test_addresses_that_are_not_allowed_get_no_connection",
        "net/test_egress.py::test_a_name_that_leads_elsewhere_the_second_time",
        "net/test_egress.py::test_of_a_names_addresses_only_the_allowed_are_tried",
        "net/test_egress.py::test_a_redirect_is_not_followed",
        "net/test_egress.py::test_proxies_of_the_environment_are_not_used",
    ],
    "`file:`, `javascript:` and `data:` links": [
        "marketplace/test_links.py::test_what_is_no_link",
        "security/test_outbound.py::test_no_link_makes_the_daemon_call_anybody",
        "security/test_outbound.py::test_a_webhook_s_address_is_refused",
    ],
    "hosts that only look like the marketplace's: suffix, punycode, userinfo, full stop, port": [
        "marketplace/test_links.py::test_look_alikes_are_no_links",
        "marketplace/test_links.py::test_a_redirect_may_not_leave_the_market",
        "security/test_outbound.py::test_no_link_makes_the_daemon_call_anybody",
    ],
    "no cookie of the owner's goes to a short link, and none is kept of one": [
        "api/test_convert_short_links.py::test_no_cookie_goes_there",
        "net/test_client.py::test_cookies_are_never_kept",
    ],
}

CHROMIUM = {
    "its debugging port is random, and on loopback": [
        "browser/test_reach.py::test_its_debugging_port_is_another_one_each_time",
        "browser/test_reach.py::test_its_debugging_port_is_on_loopback_alone",
    ],
    "its debugging port refuses other origins and other names": [
        "browser/test_chromium.py::test_pages_of_an_origin_cannot_connect_to_it",
        "browser/test_reach.py::test_no_page_gets_at_the_debugging_port",
        "browser/test_reach.py::test_a_name_that_leads_to_the_debugging_port_is_refused",
    ],
    "a page does not reach the daemon's own address, under any name, in any way": [
        "browser/test_reach.py::test_a_closed_port_is_reached_in_no_way",
        "browser/test_reach.py::test_an_open_one_is_reached_in_all_of_them",
        "e2e/test_own_address.py::test_its_pages_do_not_reach_it",
    ],
    "downloads are off": ["browser/test_reach.py::test_a_download_leaves_no_file"],
    "pop-ups, dialogs and permission prompts are off": [
        "browser/test_page.py::test_a_pop_up_is_closed_at_once",
        "browser/test_page.py::test_dialogs_are_dismissed",
        "browser/test_page.py::test_permissions_are_denied",
    ],
    "its sandbox is on, and looked at; accounts share nothing": [
        "e2e/test_sandboxed.py::test_chromium_runs_in_its_sandbox",
        "browser/test_instance.py::test_one_without_its_sandbox_does_not_start_and_says_what_to_do",
        "browser/test_page.py::test_two_contexts_share_nothing",
    ],
    "it has nothing of the daemon's: environment, user, privileges": [
        "browser/test_chromium.py"
        "::test_it_gets_a_private_home_another_user_and_none_of_our_environment",
        "processes/test_process_tree.py::test_command_cannot_gain_privileges",
        "processes/test_process_tree.py::test_command_gets_no_descriptor_of_the_daemons_and_leads_a_session",
    ],
}

HTTP = {
    "slow headers and silence": [
        "http_server/test_limits.py::test_a_head_that_drips_in_is_cut_off",
        "http_server/test_limits.py::test_a_connection_that_says_nothing_is_closed",
    ],
    "slow, endless and broken-off bodies": [
        "http_server/test_limits.py::test_a_body_that_stops_is_a_timeout",
        "http_server/test_limits.py::test_a_chunked_body_that_grows_larger_is_refused",
        "http_server/test_limits.py::test_a_body_that_says_it_is_larger_is_refused",
        "http_server/test_limits.py::test_a_body_that_ends_early_is_a_bad_request",
    ],
    "huge headers": [
        "http_server/test_guards.py::test_a_large_head_is_refused_even_when_it_comes_at_once",
    ],
    "clients that do not read": [
        "http_server/test_guards.py::test_a_client_that_stops_reading_does_not_delay_the_stop",
        "api/crews/test_sse.py::test_event_stream_whose_client_stops_reading_is_cut_off",
    ],
    "pipelining": [
        "security/test_http.py::test_pipelined_requests_are_answered_in_their_order",
        "http_server/test_limits.py::test_bytes_behind_the_body_are_the_next_request",
        "http_server/test_stop.py::test_a_request_behind_another_does_not_delay_it",
    ],
    "request smuggling: what can be read in two ways is refused, with all behind it": [
        "security/test_http.py::test_what_can_be_read_in_two_ways_is_refused_with_all_behind_it",
        "security/test_http.py::test_what_can_be_read_in_one_way_is_followed_by_the_next",
    ],
    "1000 idle connections shut nobody out, nor do hundreds that leave together": [
        "security/test_http.py::test_a_thousand_idle_connections_shut_nobody_out",
        "http_server/test_limits.py::test_any_number_of_silent_clients_shut_nobody_out",
        "http_server/test_limits.py::test_who_has_left_gives_way_before_that_is_noticed",
    ],
    "what ends the process as its HTTP server is shipped ends one client": [
        "http_server/test_hostile.py::test_a_hostile_client_that_reads_to_the_end_hurts_nobody",
        "http_server/test_hostile.py::test_a_hostile_client_that_leaves_at_once_hurts_nobody",
        "http_server/test_hostile.py::test_as_shipped_the_same_request_ends_the_server",
        "http_server/test_guards.py::test_an_exception_in_one_connection_ends_that_one_alone",
        "http_server/test_guards.py::test_h2c_is_answered_as_http1",
        "http_server/test_guards.py::test_a_websocket_upgrade_is_answered_as_http1",
    ],
    "20 000 mutated requests: others are served, the process lives, its memory is bounded": [
        "security/test_http.py::test_twenty_thousand_mutated_requests",
        "http_server/test_fuzz.py::test_no_mutated_request_hurts_the_next_client",
    ],
    "Schemathesis over the document, both APIs: no failure": [
        "security/test_schemathesis.py::test_nothing_is_otherwise_than_documented",
    ],
    "the page runs its own scripts alone, and text stays text": [
        "web/test_routes.py::test_policy_allows_own_files_and_pictures_of_one_host",
        "web/test_page_files.py::test_script_makes_no_markup_or_code_and_names_no_other_server",
        "e2e/page/test_crews.py::test_an_error_comes_first_and_stays_text",
    ],
}

SECRETS = {
    "planted, each is found nowhere after a run over everything": [
        "e2e/test_canaries.py::test_a_canary_is_found_in_every_spelling",
        "e2e/test_canaries.py::test_no_canary_is_found_anywhere",
    ],
    "nor after all that goes wrong while they are in use": [
        "e2e/test_secrets.py::test_no_secret_is_told",
        "e2e/crews/test_secrets.py::test_no_secret_is_told",
        "api/test_our_own_faults.py::test_a_bug_tells_no_secret",
        "auth/test_log.py::test_the_log_tells_the_events_and_no_secret",
    ],
    "in the journal webhook credentials are encrypted, and gone with the last call": [
        "store/test_credentials.py"
        "::test_what_is_read_is_the_credential_and_the_disk_does_not_have_it",
        "store/test_credentials.py::test_it_goes_with_the_last_delivery_after_the_end",
    ],
    "other processes of the same user do not read the daemon's memory": [
        "processes/test_process_limits.py::test_private_process_is_closed_to_its_user",
    ],
    "a crew's environment is told by none of its ends": [
        "crews/test_worker_end.py::test_quote_of_a_broken_line_hides_the_values_of_the_environment",
        "crews/test_worker_end.py::test_value_at_the_edge_of_the_quote_is_not_shown_in_part",
    ],
}

POINTS = TOKENS | GUESSING | COOKIE | OUTBOUND | CHROMIUM | HTTP | SECRETS


@cache
def names(path: Path) -> set[str]:
    """The tests in a file."""
    tree = ast.parse(path.read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {each.name for each in tree.body if isinstance(each, functions)}


@pytest.mark.parametrize("point", POINTS)
def test_there_are_such_tests(point: str) -> None:
    assert POINTS[point]
    for test in POINTS[point]:
        path, _, name = test.partition("::")
        assert name in names(TESTS / path), test


def test_no_test_of_this_folder_is_left_out() -> None:
    told = {test for tests in POINTS.values() for test in tests}
    here = Path(__file__).parent
    all_ = {
        f"security/{path.name}::{name}"
        for path in here.glob("test_*.py")
        for name in names(path)
        if name.startswith("test_") and path != Path(__file__)
    }
    controls = {  # what shows that the others would see it
        "security/test_cookie_endpoints.py::test_the_browser_itself_could",
        "security/test_tokens.py::test_they_are_good_for_what_they_are_for",
    }
    assert all_ - told == controls
