"""Guards of the work itself: where requests may go, what stays private, that each attempt has one outcome."""

from __future__ import annotations

import functools

from tests.guards.catalogue import ANY, guard

_ADDRESS = "executors/test_http_addresses.py::"
_TRUST = "executors/test_http_trust.py::"
_HTTP = "executors/test_http.py::"
_MANY = "executors/test_http_many.py::"
_SECRET = "executors/test_secrets.py::"

_work = functools.partial(guard, database=ANY)

WORK = (
    _work(
        "only an allowed address is connected to",
        "",
        (
            "executors/http/network.py",
            "permitted = [address for address, why in judged if why is None]",
            "permitted = [address for address, _ in judged]",
        ),
        tests=(
            _ADDRESS + "test_a_name_that_leads_to_a_refused_address_is_refused_with_both",
            _ADDRESS + "test_every_redirect_is_checked_as_well",
        ),
    ),
    _work(
        "the address that was checked is the one that is connected to",
        "",
        ("executors/http/network.py", "connect_tcp(address, port, share)", "connect_tcp(host, port, share)"),
        tests=_ADDRESS + "test_a_name_that_changes_after_the_check_leads_nowhere_else",
    ),
    _work(
        "an IPv6 address is judged by the IPv4 address in it",
        "",
        ("executors/http/addresses.py", "return _refusal(inner)", "return _refusal(found)"),
        tests=_ADDRESS + "test_what_is_no_address_of_the_public_internet_is_refused",
    ),
    _work(
        "metadata services are refused where their address is public",
        "",
        ("executors/http/addresses.py", "if address in _METADATA:", "if not address:"),
        tests=_ADDRESS + "test_what_is_no_address_of_the_public_internet_is_refused",
    ),
    _work(
        "behind a proxy the addresses in URLs are checked",
        "",
        ("executors/http/exchange.py", "if self._means.proxy is not None and (", "if self._means is None and ("),
        tests=_TRUST + "test_the_proxy_of_the_settings_gets_every_request_and_its_password",
    ),
    _work(
        "one name that is not answered takes one thread",
        "",
        ("executors/http/names.py", "task = self._asked.get(host)", "task = None"),
        tests=_ADDRESS + "test_a_name_server_that_does_not_answer_holds_up_one_name_only",
    ),
    _work(
        "what is private stays on the job's host",
        "",
        (
            "executors/http/requests.py",
            "trusted = hop.trusted and _origin(url) == _origin(hop.url)",
            "trusted = hop.trusted",
        ),
        tests=_TRUST + "test_what_is_private_goes_along_on_the_same_host_only",
    ),
    _work(
        "who was away is not trusted again",
        "",
        (
            "executors/http/requests.py",
            "trusted = hop.trusted and _origin(url) == _origin(hop.url)",
            "trusted = _origin(url) == _origin(_url(self._target.url))",
        ),
        tests=_TRUST + "test_what_is_private_goes_along_on_the_same_host_only",
    ),
    _work(
        "a body with a secret stays on the job's host",
        "",
        (
            "executors/http/requests.py",
            "if content and self._target.private_content and not trusted:",
            "if content is self._target:",
        ),
        tests=_TRUST + "test_a_body_with_a_secret_is_not_carried_to_another_host",
    ),
    _work(
        "what is read of a response is bounded by what it unpacks to",
        "",
        (
            "executors/http/exchange.py",
            "if self._read_bytes > self._means.response_bytes_max:",
            "if self._read_bytes < 0:",
        ),
        tests=_HTTP + "test_a_small_body_that_unpacks_to_a_big_one_is_bounded_by_what_it_becomes",
    ),
    _work(
        "a request that is ended before it began has an outcome",
        "",
        (
            "executors/http/executor.py",
            "if self.ending is not None:",
            "if self.task is None:",
        ),
        tests=_MANY + "test_what_is_cancelled_as_it_begins_has_its_outcome_as_well",
    ),
    _work(
        "a host that does not answer leaves the gate",
        "",
        ("executors/http/gate.py", "call_later(HOLD_SECONDS, leave)", "call_later(3600, leave)"),
        tests=_MANY + "test_hosts_that_do_not_answer_hold_up_nobody_else",
    ),
    _work(
        "secrets are hidden in what is reported",
        "",
        ("executors/registry.py", "told = self._redacting(report) if redactors else report", "told = report"),
        tests=_SECRET + "test_a_command_gets_its_secrets_and_leaves_none_in_its_output",
    ),
    _work(
        "secrets are hidden in what a refusal says, and where a value is quoted",
        "",
        ("executors/secrets.py", "return \"'***'\"", "return str.__repr__(self)"),
        ("executors/registry.py", "Redactor(secrets).text(str(error))", "str(error)"),
        tests=_SECRET + "test_a_refusal_after_the_secret_was_put_in_does_not_show_it",
    ),
    _work(
        "what may become a secret is held back in a stream",
        "",
        ("executors/redaction.py", "begin = self._partial(data)", "begin = len(data)"),
        tests=_SECRET + "test_no_way_of_cutting_a_stream_lets_a_secret_through",
    ),
    _work(
        "a piece of a secret beside a middle that was left out is hidden",
        "",
        ("executors/redaction.py", "if output.bytes_cut and marker:", "if output.bytes_cut < 0:"),
        tests=_SECRET + "test_no_piece_of_a_secret_is_left_where_the_middle_was_left_out",
    ),
    _work(
        "a result without its secrets is still JSON",
        "",
        (
            "executors/redaction.py",
            "return text if redacted == text else json.dumps(self._value(json.loads(text)), ensure_ascii=False)",
            "return redacted",
        ),
        tests=_SECRET + "test_a_functions_result_exception_and_log_are_without_the_secret",
    ),
    _work(
        "the name of a secret leads nowhere else",
        "",
        ("executors/secrets.py", "if not _NAME.fullmatch(name):", "if name is None:"),
        tests=_SECRET + "test_a_name_leads_nowhere_else",
    ),
    _work(
        "a key or password in a target is a reference",
        "",
        ("executors/http/target.py", "if not has_reference(text):", "if text is None:"),
        tests=_TRUST + "test_a_malformed_target_is_refused_by_field",
    ),
    _work(
        "a wait that was asked for is bounded",
        "",
        (
            "policy/retry.py",
            "max(0, min(outcome.retry_after_us, bound))",
            "max(0, outcome.retry_after_us)",
        ),
        tests="unit/test_decisions.py::test_a_wait_that_was_asked_for_takes_the_place_of_the_back_off_within_its_bound",
    ),
    guard(
        "a wait that was asked for reaches the ledger",
        "",
        ("policy/retry.py", "if outcome.retry_after_us is not None:", "if False:"),
        tests="store/test_http_jobs.py::"
        "test_http_002_the_ledger_has_status_body_time_and_attempt_and_the_next_attempt_waits_as_asked",
    ),
)
