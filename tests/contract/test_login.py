"""Login: wrong passwords, temporary tokens, the second factor, and what ends a session."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyotp
import pytest
import trio

from tests.config_file import WITHOUT_BROWSER
from tests.contract.second_factor import STEP, code_of, post, set_up

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Running
    from tests.e2e.conftest import RunProgram

Json = dict[str, Any]

PROXY = {**WITHOUT_BROWSER, "server": {"trusted_proxies": ["127.0.0.1"], "bind": "127.0.0.1:0"}}
"""Settings of a daemon that trusts `X-Forwarded-For`, so each test has its own client addresses."""
COST = ["argon2id", "v=19", "m=19456,t=2,p=1"]
BODIES: list[object] = [[], {}, {"password": 1}, {"password": "x" * 2000}]


@pytest.fixture(scope="module")
def daemon(running: Running) -> Iterator[Daemon]:
    with running(**PROXY) as daemon:
        yield daemon


@pytest.fixture
def own(running: Running) -> Iterator[Daemon]:
    """The test's own daemon, because the test changes who may log in."""
    with running(**PROXY) as daemon:
        yield daemon


async def log_in(daemon: Daemon, password: str, address: str) -> httpx.Response:
    headers = {"X-Forwarded-For": address}
    answer = await daemon.ask("POST", "/api/auth/login", {"password": password}, headers=headers)
    for name in ("token", "tempToken"):
        if token := answer.json().get(name):
            daemon.secrets.add(token)
    return answer


async def fail(daemon: Daemon, times: int, address: str) -> list[int]:
    """Try wrong passwords. Return the statuses."""
    return [(await log_in(daemon, "wrong", address)).status_code for _ in range(times)]


def wrong_code(totp: pyotp.TOTP) -> str:
    """Return a code that is right at no time near to now."""
    near = {totp.at(int(time.time()) + STEP * steps) for steps in range(-5, 6)}
    return next(code for code in map("{:06}".format, range(20)) if code not in near)


async def enable(daemon: Daemon) -> pyotp.TOTP:
    """Switch the second factor on with the code of the previous step."""
    totp = await set_up(daemon)
    given = {"secret": totp.secret, "code": code_of(totp, ahead=-STEP)}
    assert await post(daemon, "2fa/enable", **given) == (200, "")
    return totp


async def temp_token(daemon: Daemon, address: str) -> str:
    answer = await log_in(daemon, daemon.password, address)
    assert (answer.status_code, answer.json()["mfaRequired"]) == (200, True), answer.text
    return str(answer.json()["tempToken"])


async def verify(daemon: Daemon, temp: str, code: str, address: str) -> int:
    headers = {"X-Forwarded-For": address}
    body = {"tempToken": temp, "code": code}
    answer = await daemon.ask("POST", "/api/auth/verify-mfa", body, headers=headers)
    daemon.secrets.add(answer.json().get("token", daemon.password))
    return answer.status_code


def hash_of(password: str) -> str:
    """Return the output of `smartlinkd hash-password`."""
    command = [sys.executable, "-m", "tests.e2e.traced", "hash-password"]
    done = subprocess.run(command, input=password, capture_output=True, text=True, check=True)
    return done.stdout.strip()


# Wrong passwords


async def test_eleventh_failure_is_429_that_says_when(daemon: Daemon) -> None:
    assert await fail(daemon, 10, "203.0.113.1") == [401] * 10
    refused = await log_in(daemon, daemon.password, "203.0.113.1")
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert refused.json()["ok"] is False
    assert await fail(daemon, 1, "203.0.113.2") == [401]


async def test_wait_doubles_with_each_failure(daemon: Daemon) -> None:
    await fail(daemon, 10, "203.0.113.3")
    for expected in ("1", "2", "4"):
        refused = await log_in(daemon, "wrong", "203.0.113.3")
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, expected)
        if expected != "4":
            await trio.sleep(float(expected))  # as Retry-After says
            assert await fail(daemon, 1, "203.0.113.3") == [401]


async def test_ipv6_network_of_64_bits_is_one_address(daemon: Daemon) -> None:
    await fail(daemon, 10, "2001:db8:1:2::1")
    assert await fail(daemon, 1, "2001:db8:1:2:ffff::9") == [429]
    assert await fail(daemon, 1, "2001:db8:1:3::1") == [401]


async def test_success_resets_the_address(daemon: Daemon) -> None:
    await fail(daemon, 9, "203.0.113.4")
    assert (await log_in(daemon, daemon.password, "203.0.113.4")).status_code == 200
    assert await fail(daemon, 11, "203.0.113.4") == [401] * 10 + [429]


async def test_malformed_body_is_no_failure(daemon: Daemon) -> None:
    headers = {"X-Forwarded-For": "203.0.113.5"}
    for body in BODIES * 3:
        answer = await daemon.ask("POST", "/api/auth/login", body, headers=headers)
        assert answer.status_code == 400
    assert await fail(daemon, 10, "203.0.113.5") == [401] * 10


async def test_wrong_codes_are_twenty_an_hour_over_all_addresses(own: Daemon) -> None:
    totp = await enable(own)
    statuses = []
    for n in range(21):
        temp = await temp_token(own, f"198.51.100.{n}")
        statuses.append(await verify(own, temp, wrong_code(totp), f"198.51.100.{n}"))
    assert statuses == [401] * 20 + [429]


# The password


async def test_daemon_without_a_password_does_not_start(
    run_program: RunProgram, tmp_path: Path
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'[state]\ndirectory = "{tmp_path / "state"}"\n')
    config.chmod(0o600)
    program = run_program("serve", "--config", str(config))
    assert await program.ended() == 2
    assert "auth.password_hash" in program.log.read_text()


@pytest.mark.parametrize("cost", ["m=1024,t=2,p=1", "m=19456,t=1,p=1"])
async def test_weaker_hash_is_refused_at_the_start(
    run_program: RunProgram, tmp_path: Path, cost: str
) -> None:
    weak = f"$argon2id$v=19${cost}$c2FsdHNhbHRzYWx0$aGFzaGhhc2hoYXNoaGFzaGhhc2hoYXNo"
    config = tmp_path / "config.toml"
    config.write_text(
        f'[state]\ndirectory = "{tmp_path / "state"}"\n[auth]\npassword_hash = "{weak}"\n'
    )
    config.chmod(0o600)
    program = run_program("serve", "--config", str(config))
    assert await program.ended() == 2
    assert "auth.password_hash" in program.log.read_text()


def test_hash_password_prints_argon2id_of_the_promised_cost() -> None:
    assert hash_of("correct horse battery").split("$")[1:4] == COST


# Sessions


async def test_new_password_ends_all_sessions(own: Daemon) -> None:
    token, another = await own.login(), "another horse battery"
    await own.kill()
    own.start()
    assert (await own.ask("GET", "/api/status", token=token)).status_code == 200
    text = own.config.read_text()
    replaced = re.sub(r'password_hash = ".*"', f'password_hash = "{hash_of(another)}"', text)
    assert replaced != text
    own.config.write_text(replaced)
    await own.kill()
    own.start()
    assert (await own.ask("GET", "/api/status", token=token)).status_code == 403
    assert (await log_in(own, own.password, "203.0.113.9")).status_code == 401
    own.secrets.add(another)
    assert (await log_in(own, another, "203.0.113.9")).status_code == 200


async def test_enabling_second_factor_ends_all_sessions_but_its_own(own: Daemon) -> None:
    other = (await log_in(own, own.password, "203.0.113.10")).json()["token"]
    assert (await own.ask("GET", "/api/status", token=other)).status_code == 200
    await enable(own)
    assert (await own.ask("GET", "/api/status", token=other)).status_code == 403
    assert (await own.ask("GET", "/api/status", token=await own.login())).status_code == 200


async def test_operators_revoke_ends_all_sessions(own: Daemon) -> None:
    token = await own.login()
    await own.run("tokens", "revoke")
    assert (await own.ask("GET", "/api/status", token=token)).status_code == 403


# The second factor


async def test_session_and_temporary_tokens_never_stand_in_for_one_another(own: Daemon) -> None:
    totp = await enable(own)
    temp = await temp_token(own, "203.0.113.11")
    assert (await own.ask("GET", "/api/status", token=temp)).status_code == 403
    session = await own.login()
    assert await verify(own, session, code_of(totp), "203.0.113.11") == 403
    assert await verify(own, temp, code_of(totp), "203.0.113.11") == 200


async def test_temporary_token_is_used_once(own: Daemon) -> None:
    totp = await enable(own)
    temp = await temp_token(own, "203.0.113.12")
    assert await verify(own, temp, code_of(totp), "203.0.113.12") == 200
    assert await verify(own, temp, code_of(totp, ahead=STEP), "203.0.113.12") == 403


async def test_temporary_token_is_dead_after_five_wrong_codes(own: Daemon) -> None:
    totp = await enable(own)
    temp = await temp_token(own, "203.0.113.13")
    wrong = wrong_code(totp)
    assert [await verify(own, temp, wrong, "203.0.113.13") for _ in range(5)] == [401] * 5
    assert await verify(own, temp, code_of(totp), "203.0.113.13") == 403


async def test_code_counts_one_step_early_and_late_and_once(own: Daemon) -> None:
    totp = await set_up(own)
    given = {"secret": totp.secret, "code": code_of(totp, ahead=-3 * STEP)}
    assert (await post(own, "2fa/enable", **given))[0] == 401
    given["code"] = code_of(totp, ahead=-STEP)
    assert (await post(own, "2fa/enable", **given))[0] == 200
    temp = await temp_token(own, "203.0.113.14")
    assert await verify(own, temp, code_of(totp, ahead=3 * STEP), "203.0.113.14") == 401
    later = code_of(totp, ahead=STEP)
    assert await verify(own, temp, later, "203.0.113.14") == 200
    await own.kill()
    own.start()
    temp = await temp_token(own, "203.0.113.14")
    assert await verify(own, temp, later, "203.0.113.14") == 401


async def test_setup_and_enable_while_enabled_are_400(own: Daemon) -> None:
    totp = await enable(own)
    token = await own.login()
    assert (await own.ask("GET", "/api/auth/2fa/setup", token=token)).status_code == 400
    given = {"secret": totp.secret, "code": code_of(totp)}
    assert (await post(own, "2fa/enable", **given))[0] == 400


async def test_disable_while_disabled_is_400(daemon: Daemon) -> None:
    assert (await post(daemon, "2fa/disable", code="123456"))[0] == 400


async def test_enable_takes_the_latest_setups_secret_alone(daemon: Daemon) -> None:
    first = await set_up(daemon)
    await set_up(daemon)
    foreign = pyotp.TOTP(pyotp.random_base32())
    for totp in (first, foreign):
        given = {"secret": totp.secret, "code": code_of(totp)}
        status, error = await post(daemon, "2fa/enable", **given)
        assert (status, error.startswith("secret")) == (400, True)


# Files


async def test_secret_and_second_factor_are_private_files_that_survive_a_kill(
    own: Daemon,
) -> None:
    totp = await enable(own)
    files = {path.name: path for path in own.state.iterdir() if path.is_file()}
    assert files.keys() >= {"signing-secret", "auth.json"}
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}
    await own.kill()
    own.start()
    assert (await own.ask("GET", "/api/status", token=await own.login())).status_code == 200
    temp = await temp_token(own, "203.0.113.15")
    assert await verify(own, temp, code_of(totp), "203.0.113.15") == 200
