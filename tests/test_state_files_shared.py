"""A state directory that others can write to, or that is no directory, is refused."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from smartlinkd.state_files import StateUnusable, claim

NOBODY = 65534


@pytest.mark.parametrize("mode", [0o777, 0o702, 0o1777])
def test_directory_that_every_user_can_write_to_is_refused_untouched(
    tmp_path: Path, mode: int
) -> None:
    tmp_path.chmod(mode)
    text = f"every user can write to {tmp_path}; run `chmod 700 {tmp_path}`"
    with pytest.raises(StateUnusable, match=text), claim(tmp_path):
        pytest.fail("it was given out")
    assert not any(tmp_path.iterdir())


def change_owner(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Give the directory to another user. Return that user's id and ours."""
    if os.geteuid() == 0:
        os.chown(directory, NOBODY, NOBODY)
        return NOBODY, 0
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    return owner, NOBODY


def user_name(uid: int) -> str:
    return pwd.getpwuid(uid).pw_name


def test_directory_of_another_user_is_refused_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, us = map(user_name, change_owner(tmp_path, monkeypatch))
    tmp_path.chmod(0o700)
    with pytest.raises(StateUnusable) as refused, claim(tmp_path):
        pytest.fail("it was given out")
    assert str(refused.value) == (
        f"state.directory: {tmp_path} belongs to {owner}, who may have put secrets there, and this "
        f"is {us}; start the daemon as {owner}, or if all that is in it is the daemon's own, run "
        f"`chown -R {us} {tmp_path}`"
    )
    assert not any(tmp_path.iterdir())


def test_users_without_a_name_are_shown_by_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody_known(uid: int) -> None:
        raise KeyError(uid)

    owner, us = change_owner(tmp_path, monkeypatch)
    monkeypatch.setattr(pwd, "getpwuid", nobody_known)
    text = f"belongs to {owner}, .* this is {us}; .* `chown -R {us} "
    with pytest.raises(StateUnusable, match=text), claim(tmp_path):
        pytest.fail("it was given out")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has a folder of root's")
def test_directory_of_root_that_is_open_to_the_daemons_group_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's volume often belongs to root."""
    tmp_path.chmod(0o2770)
    monkeypatch.setattr(os, "geteuid", lambda: NOBODY)
    with claim(tmp_path):
        assert any(tmp_path.iterdir())


def test_file_instead_of_the_directory_is_refused_and_kept(tmp_path: Path) -> None:
    place = tmp_path / "state"
    place.write_text("notes of the owner's")
    text = f"state.directory: {place} is no directory; name another one"
    with pytest.raises(StateUnusable, match=text), claim(place):
        pytest.fail("it was given out")
    assert place.read_text() == "notes of the owner's"
